#include "runtime/streams/staged_calls.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "device/held_streams.hpp"

namespace epccl::runtime {
namespace {

using device::CopyWork;
using device::QueueKind;

constexpr double call_check_period = 1e-3;
// The driver is asked so often where a word tells when the stream has come: for what the word does not tell, errors above all.
constexpr double event_look_period = 10e-3;
constexpr uint64_t most_fetched = 64;

/// What is allocated for a call that borrows so many bytes: calls that need a little more or less can use it, too, and it costs little more.
uint64_t room_for(uint64_t bytes) {
  constexpr uint64_t least = 4096, doubled_below = 1 << 20;
  if (bytes <= doubled_below) return std::bit_ceil(std::max(bytes, least));
  const uint64_t unit = std::bit_floor(bytes) / 8;
  return (bytes + unit - 1) / unit * unit;  // NOLINT(clang-analyzer-core.DivideZero): bytes are many
}

// Where there is no thread for it the worker stays, idle.
void end_elsewhere(std::unique_ptr<device::HostStream> worker) {
  device::HostStream* const it = worker.release();
  try {
    std::thread([it] { const std::unique_ptr<device::HostStream> ended(it); }).detach();
  } catch (const std::exception& none) {
    log::warn(log::coll, -1, "a worker's thread is left behind: no thread to end it: {}", none.what());
  }
}

}  // namespace

DeviceRoom::DeviceRoom(DeviceRoom&& other) noexcept
    : device_(other.device_),
      kind_(other.kind_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceRoom::~DeviceRoom() {
  if (data_ != nullptr) static_cast<void>(device_->free(data_));
}

Status DeviceRoom::reserve(uint64_t bytes) {
  if (bytes <= bytes_) return {};
  EPCCL_ASSIGN(void* larger, device_->allocate(kind_, bytes));
  if (data_ != nullptr) static_cast<void>(device_->free(data_));
  data_ = static_cast<std::byte*>(larger);
  bytes_ = bytes;
  return {};
}

StagedCalls::StagedCalls(device::Device& device, uint64_t slice_bytes, Owner owner)
    : device_(device),
      slice_bytes_(slice_bytes),
      owner_(std::move(owner)),
      watched_(std::make_shared<HoldWatch::Worker>(owner_.watched)),
      first_calls_(std::make_shared<FirstCalls>(owner_.first_calls)),
      few_bytes_(device),
      slots_{Slot(device), Slot(device)} {}

Result<std::unique_ptr<StagedCalls>> StagedCalls::open(device::Device& device, uint64_t slice_bytes,
                                                       uint64_t least_slice, Owner owner) {
  std::unique_ptr<StagedCalls> calls(
      new StagedCalls(device, slice_bytes, std::move(owner)));  // private constructor
  EPCCL_TRY(calls->prepare(std::max(slice_bytes, least_slice)));
  return calls;
}

Status StagedCalls::prepare(uint64_t slot_bytes) {
  for (Slot& slot : slots_) {
    EPCCL_TRY(slot.input.reserve(slot_bytes));
    EPCCL_TRY(slot.output.reserve(slot_bytes));
  }
  EPCCL_TRY(few_bytes_.reserve(most_fetched));
  // So that there are words: memory is made visible when a call takes the first.
  EPCCL_TRY(StreamHold::make(device_).status());
  EPCCL_ASSIGN(in_, device_.make_queue(QueueKind::copy_engine));
  EPCCL_ASSIGN(out_, device_.make_queue(QueueKind::copy_engine));
  for (Slot& slot : slots_) {
    EPCCL_ASSIGN(slot.copied_in, device_.make_event());
    EPCCL_ASSIGN(slot.copied_out, device_.make_event());
  }
  worker_ = std::make_unique<device::HostStream>();
  worker_->enqueue([this]() -> Status {
    worker_id_ = std::this_thread::get_id();
    watched_->runs_here();
    return {};
  });
  return worker_->synchronize();
}

StagedCalls::~StagedCalls() {
  watched_->close();
  // The last one to hold a communicator may be the work that ran on it: a thread cannot wait for its own end.
  if (worker_ != nullptr && worker_id_.load() == std::this_thread::get_id()) {
    end_elsewhere(std::move(worker_));
  } else {
    worker_.reset();
  }
}

// Who waits for the end finds nothing of the call under way.
StagedCalls::Turn::~Turn() {
  hold_.reset();
  before_.reset();
  end_.reset();
  users_.reset();
  if (waited_for_ != nullptr) waited_for_->reaches(*call_, CallStage::over);
}

void StagedCalls::Turn::share_with(const StagedCalls& calls) {
  const device::HostStream::Watchers& worker = calls.worker_->watchers();
  if (hold_ == nullptr || std::ranges::find(workers_, worker) != workers_.end()) return;
  workers_.push_back(worker);
  hold_->waits_for(calls.watched_, calls.owner_.communicator);
  if (!calls.first_calls_->begin(is_on_null_stream_)) return;
  waited_for_ = calls.first_calls_;
  longest_wait_ = waited_for_->longest();
}

Status StagedCalls::Turn::mark() {
  if (users_->capturing())
    return error(Code::invalid_usage,
                 "the stream is being captured into a graph, and the call is made by a thread that waits for "
                 "the stream, which cannot be captured");
  return users_->record(*before_);
}

Status StagedCalls::Turn::hold() {
  if (hold_ == nullptr) return {};
  return waited_for_ != nullptr ? hold_->begin_without_waiting(*users_) : hold_->begin(*users_);
}

// What is queued waits for what was queued before it. A stream that waits for a thread is no such thing, and what the thread has to queue
// may come to stand behind the call, in a hardware queue.
Status StagedCalls::Turn::queue_behind() {
  if (hold_ == nullptr || !hold_->has_begun()) return {};
  if (waited_for_ == nullptr && !queues_behind_held_) return {};
  if (waited_for_ != nullptr) {
    if (wait_for_threads()) return {};
    EPCCL_ASSIGN(end_, device_->make_event());
    is_behind_ = true;
  }
  behind_ = QueuedBehind{hold_->come(), end_.get(), hold_->release(),
                         [as = waited_for_, call = call_, hold = hold_.get()](device::WordValue over) {
                           hold->is_queued(over);
                           if (as != nullptr) as->reaches(*call, CallStage::queued);
                         },
                         [hold = hold_.get()] { hold->let_queues_go(); }};
  return {};
}

// The communicator's own come before this one in its order, on all ranks.
bool StagedCalls::Turn::wait_for_threads() const {
  return device::HeldStreams::wait_for_threads(hold_->communicator());
}

const QueuedBehind* StagedCalls::Turn::behind() {
  if (!behind_) return nullptr;
  if (!is_behind_) is_behind_ = !wait_for_threads();
  return is_behind_ ? &*behind_ : nullptr;
}

Status StagedCalls::Turn::go_on_behind() {
  return users_->wait(*end_);
}

Status StagedCalls::Turn::hold_after_all() {
  return hold_->begin(*users_);
}

Result<std::shared_ptr<StagedCalls::Turn>> StagedCalls::plan_turn(void* stream, Holds holds) {
  auto turn = std::make_shared<Turn>();
  turn->device_ = &device_;
  EPCCL_ASSIGN(turn->users_, device_.borrow_stream(stream));
  EPCCL_ASSIGN(turn->before_, device_.make_event());
  if (holds == Holds::nothing) return turn;
  EPCCL_ASSIGN(turn->hold_, StreamHold::make(device_));
  turn->is_on_null_stream_ = device_.is_null_stream(stream);
  turn->queues_behind_held_ = owner_.queues_behind_held;
  turn->share_with(*this);
  return turn;
}

Result<std::shared_ptr<StagedCalls::Turn>> StagedCalls::take_turn(void* stream, Holds holds) {
  EPCCL_ASSIGN(std::shared_ptr<Turn> turn, plan_turn(stream, holds));
  EPCCL_TRY(turn->mark());
  EPCCL_TRY(turn->hold());
  return turn;
}

Status StagedCalls::wait_for(const device::QueueEvent& event, bool checks, const StreamHold* behind) {
  double next_check = now_seconds() + call_check_period, next_look = 0;
  for (int round = 0;; ++round) {
    if (behind != nullptr && behind->has_come()) return {};
    const bool is_told = behind != nullptr && behind->has_begun();
    if (const double now = now_seconds(); !is_told || now >= next_look) {
      next_look = now + event_look_period;
      EPCCL_ASSIGN(const bool is_complete, event.complete());
      if (is_complete) return {};
    }
    if (round < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    if (const double now = now_seconds(); checks && now >= next_check) {
      next_check = now + call_check_period;
      EPCCL_TRY(owner_.check());
    }
  }
}

Status StagedCalls::begun(const Turn& turn, bool inside) {
  if (turn.before_ == nullptr) return {};
  EPCCL_ASSIGN(const bool is_complete, turn.before_->complete());
  if (is_complete) return {};
  const bool gives_way = owner_.give_way();
  Status status = wait_for(*turn.before_, inside, turn.hold_.get());
  if (!gives_way) return status;
  Status failure = owner_.take_back();
  return status.ok() ? failure : status;
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
    EPCCL_TRY(wait_for(*slot.copied_in));
    if (slice + 1 < slices)
      EPCCL_TRY(copy_in(call, (slice + 1) * part, bytes_of(slice + 1), slots_[(slice + 1) % 2]));
    EPCCL_TRY(wait_for(*slot.copied_out));  // of the slice before the last
    EPCCL_TRY(run_slice(slot.input.data(), slot.output.data(), slice * part, bytes_of(slice)));
    EPCCL_TRY(copy_out(call, slice * part, bytes_of(slice), slot));
  }
  return {};
}

Status StagedCalls::run(const Turn& turn, const Blocks& call, const RunSlice& run_slice) {
  EPCCL_TRY(begun(turn));
  Status status = run_slices(call, run_slice);
  // Nothing of this call moves any more, whatever became of it.
  for (device::Queue* queue : {in_.get(), out_.get()}) status = queue->run_out(std::move(status));
  return status;
}

// One that is not much larger; else the largest that is not much smaller, which is to grow: sizes that vary from call to call leave one room.
std::unique_ptr<DeviceRoom> StagedCalls::Kept::take(uint64_t bytes, device::MemoryKind kind) {
  const std::lock_guard lock(mutex);
  const auto fits = [bytes](const DeviceRoom& room) { return room.bytes() >= bytes; };
  const auto is_better = [&](const DeviceRoom& one, const DeviceRoom& other) {
    if (fits(one) != fits(other)) return fits(one);
    return fits(one) ? one.bytes() < other.bytes() : one.bytes() > other.bytes();
  };
  auto best = memory.end();
  for (auto it = memory.begin(); it != memory.end(); ++it) {
    const DeviceRoom& room = **it;
    if (room.kind() != kind || room.bytes() > 2 * room_for(bytes) || room.bytes() < bytes / 2) continue;
    if (best == memory.end() || is_better(room, **best)) best = it;
  }
  if (best == memory.end()) return nullptr;
  std::unique_ptr<DeviceRoom> found = std::move(*best);
  memory.erase(best);
  return found;
}

Result<StagedCalls::Borrowed> StagedCalls::borrow(uint64_t bytes, device::MemoryKind kind) {
  std::unique_ptr<DeviceRoom> found = kept_->take(bytes, kind);
  if (found == nullptr) found = std::make_unique<DeviceRoom>(device_, kind);
  if (found->bytes() < bytes || found->data() == nullptr) {
    const device::HeldStreams::Quiet quiet;
    EPCCL_TRY(found->reserve(room_for(bytes)));
  }
  return Borrowed(found.release(), [kept = kept_](DeviceRoom* memory) {
    const std::lock_guard lock(kept->mutex);
    kept->memory.emplace_back(memory);
  });
}

Status StagedCalls::run_whole(const Turn& turn, const std::vector<Piece>& inputs, std::byte* input,
                              const std::vector<Piece>& outputs, std::byte* output,
                              const RunWhole& run_whole) {
  EPCCL_TRY(begun(turn));
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
  EPCCL_TRY(begun(turn));
  const CopyWork work{few_bytes_.data(), from, bytes};
  EPCCL_TRY(in_->run_out(in_->copy({&work, 1})));
  std::memcpy(to, few_bytes_.data(), bytes);
  return {};
}

}  // namespace epccl::runtime
