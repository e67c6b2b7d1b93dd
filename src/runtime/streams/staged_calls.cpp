#include "runtime/streams/staged_calls.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace epccl::runtime {
namespace {

using device::CopyWork;
using device::QueueKind;

constexpr uint64_t most_fetched = 64;

}  // namespace

StagedCalls::StagedCalls(const DeviceWorker& worker, DeviceRooms& rooms, uint64_t slice_bytes)
    : worker_(worker),
      rooms_(rooms),
      slice_bytes_(slice_bytes),
      few_bytes_(worker.device()),
      slots_{Slot(worker.device()), Slot(worker.device())} {}

Result<std::unique_ptr<StagedCalls>> StagedCalls::open(const DeviceWorker& worker, DeviceRooms& rooms,
                                                       uint64_t slice_bytes, uint64_t least_slice) {
  std::unique_ptr<StagedCalls> calls(new StagedCalls(worker, rooms, slice_bytes));  // private constructor
  EPCCL_TRY(calls->prepare(std::max(slice_bytes, least_slice)));
  return calls;
}

Status StagedCalls::prepare(uint64_t slot_bytes) {
  device::Device& device = worker_.device();
  for (Slot& slot : slots_) {
    EPCCL_TRY(slot.input.reserve(slot_bytes));
    EPCCL_TRY(slot.output.reserve(slot_bytes));
  }
  EPCCL_TRY(few_bytes_.reserve(most_fetched));
  EPCCL_ASSIGN(in_, device.make_queue(QueueKind::copy_engine));
  EPCCL_ASSIGN(out_, device.make_queue(QueueKind::copy_engine));
  for (Slot& slot : slots_) {
    EPCCL_ASSIGN(slot.copied_in, device.make_event());
    EPCCL_ASSIGN(slot.copied_out, device.make_event());
  }
  return {};
}

Status StagedCalls::copy_in(const Blocks& call, uint64_t first, uint64_t bytes, Slot& slot) {
  if (call.input_blocks > 0 && bytes > 0) {
    CopyWork work{slot.input.data(), call.input + first, bytes};
    work.rows = static_cast<uint32_t>(call.input_blocks);
    work.source_stride = call.block_bytes;
    work.destination_stride = bytes;
    EPCCL_TRY(in_->copy({&work, 1}));
  }
  return in_->record(*slot.copied_in);
}

Status StagedCalls::copy_out(const Blocks& call, uint64_t first, uint64_t bytes, Slot& slot) {
  if (call.output_blocks > 0 && bytes > 0) {
    CopyWork work{call.output + first, slot.output.data(), bytes};
    work.rows = static_cast<uint32_t>(call.output_blocks);
    work.source_stride = bytes;
    work.destination_stride = call.block_bytes;
    EPCCL_TRY(out_->copy({&work, 1}));
  }
  return out_->record(*slot.copied_out);
}

Status StagedCalls::run_slices(const Blocks& call, const RunSlice& run_slice) {
  const uint64_t part = std::max<uint64_t>(call.part_bytes, 1);
  const uint64_t slices = std::max<uint64_t>((call.block_bytes + part - 1) / part, 1);
  const auto bytes_of = [&](uint64_t slice) {
    return std::min(call.part_bytes, call.block_bytes - slice * part);
  };
  EPCCL_TRY(copy_in(call, 0, bytes_of(0), slots_[0]));
  for (uint64_t slice = 0; slice < slices; ++slice) {
    Slot& slot = slots_[slice % 2];
    EPCCL_TRY(worker_.wait_for(*slot.copied_in));
    if (slice + 1 < slices)
      EPCCL_TRY(copy_in(call, (slice + 1) * part, bytes_of(slice + 1), slots_[(slice + 1) % 2]));
    EPCCL_TRY(worker_.wait_for(*slot.copied_out));  // of the slice before the last
    EPCCL_TRY(run_slice(slot.input.data(), slot.output.data(), slice * part, bytes_of(slice)));
    EPCCL_TRY(copy_out(call, slice * part, bytes_of(slice), slot));
  }
  return {};
}

Status StagedCalls::run(const Turn& turn, const Blocks& call, const RunSlice& run_slice) {
  EPCCL_TRY(worker_.begun(turn));
  Status status = run_slices(call, run_slice);
  // Nothing of this call moves any more, whatever became of it.
  for (device::Queue* queue : {in_.get(), out_.get()}) status = queue->run_out(std::move(status));
  return status;
}

Status StagedCalls::run_whole(const Turn& turn, const std::vector<Piece>& inputs, std::byte* input,
                              const std::vector<Piece>& outputs, std::byte* output,
                              const RunWhole& run_whole) {
  EPCCL_TRY(worker_.begun(turn));
  EPCCL_TRY(copy_pieces_in(inputs, input));
  EPCCL_TRY(run_whole(input, output));
  return copy_pieces_out(outputs, output);
}

Status StagedCalls::copy_pieces_in(const std::vector<Piece>& pieces, std::byte* host) {
  std::vector<CopyWork> copies;
  copies.reserve(pieces.size());
  for (const Piece& piece : pieces) copies.push_back({host + piece.offset, piece.device, piece.bytes});
  return in_->run_out(in_->copy(copies));
}

Status StagedCalls::copy_pieces_out(const std::vector<Piece>& pieces, const std::byte* host) {
  std::vector<CopyWork> copies;
  copies.reserve(pieces.size());
  for (const Piece& piece : pieces) copies.push_back({piece.device, host + piece.offset, piece.bytes});
  return out_->run_out(out_->copy(copies));
}

// Through pinned memory: with other memory the driver itself would wait for the copy, whoever it keeps meanwhile.
Status StagedCalls::fetch(const Turn& turn, void* to, const std::byte* from, uint64_t bytes) {
  if (bytes > few_bytes_.bytes())
    return error(Code::internal_error, "{} bytes where {} can be fetched", bytes, few_bytes_.bytes());
  EPCCL_TRY(worker_.begun(turn));
  const CopyWork work{few_bytes_.data(), from, bytes};
  EPCCL_TRY(in_->run_out(in_->copy({&work, 1})));
  std::memcpy(to, few_bytes_.data(), bytes);
  return {};
}

}  // namespace epccl::runtime
