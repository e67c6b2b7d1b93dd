#include "api/device/device_calls.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/device/device_place.hpp"
#include "api/device/mappable.hpp"
#include "api/device/submit_call.hpp"

namespace epccl::api {
namespace {

using runtime::AlltoallCall, runtime::AlltoallvCall, runtime::CollectiveCall;
using runtime::OnDevice, runtime::StagedCalls;

/// Of a block, as much as a slice of all blocks has room for: whole units.
uint64_t part_of(const StagedCalls& staged, int blocks, uint64_t block_bytes, uint64_t unit) {
  const uint64_t fits = staged.slice_bytes() / static_cast<uint64_t>(std::max(blocks, 1)) / unit * unit;
  return std::min(std::max(fits, unit), block_bytes);
}

class GpuAlltoall final : public GpuCall<AlltoallCall> {
 public:
  using GpuCall::GpuCall;
  std::string text() const override { return fmt::format("alltoall count {} {}", call.count, call.datatype); }
  uint64_t bytes() const override { return call.block_bytes; }
  MappableBuffers::Used input() const override { return {call.input, total()}; }
  MappableBuffers::Used output() const override { return {call.output, total()}; }
  Status run_on_engines(const OnDevice& on, const AlltoallCall& each) const override {
    return on.alltoall->alltoall(each);
  }
  Status run_staged(const Place& place, const CallMemory& /*memory*/, AlltoallCall each) const override {
    const int ranks = communicator.ranks();
    const uint64_t element = each.count == 0 ? 1 : each.block_bytes / each.count;
    const StagedCalls::Blocks blocks{bytes_at(each.input),
                                     bytes_at(each.output),
                                     ranks,
                                     ranks,
                                     each.block_bytes,
                                     part_of(*place.on->staged, ranks, each.block_bytes, element)};
    return place.on->staged->run(
        *place.turn, blocks, [&](const std::byte* from, std::byte* to, uint64_t /*first*/, uint64_t part) {
          return communicator.alltoall(
              {from, to, part, part / element, each.datatype, runtime::EngineUse::never});
        });
  }
  double predict() const override { return communicator.predict_alltoall(call.block_bytes); }

 private:
  uint64_t total() const { return static_cast<uint64_t>(communicator.ranks()) * call.block_bytes; }
};

MappableBuffers::Used used_blocks(const void* buffer, const std::vector<uint64_t>& bytes,
                                  const std::vector<uint64_t>& offsets) {
  MappableBuffers::Used used{buffer};
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    used.bytes = std::max(used.bytes, offsets[i] + bytes[i]);
    used.pieces.push_back({bytes_at(buffer) + offsets[i], offsets[i], bytes[i]});
  }
  return used;
}

class GpuAlltoallv final : public GpuCall<AlltoallvCall> {
 public:
  GpuAlltoallv(runtime::Communicator& target, AlltoallvCall given, bool copied)
      : GpuCall(target, std::move(given), copied),
        input_(used_blocks(call.input, call.send_bytes, call.send_offsets)),
        output_(used_blocks(call.output, call.recv_bytes, call.recv_offsets)) {}
  std::string text() const override { return fmt::format("alltoallv {}", call.datatype); }
  // How much is moved is known when ranks have told each other.
  uint64_t bytes() const override { return 1; }
  MappableBuffers::Used input() const override { return input_; }
  MappableBuffers::Used output() const override { return output_; }
  Status run_on_engines(const OnDevice& on, const AlltoallvCall& each) const override {
    return on.alltoall->alltoallv(each);
  }
  Status borrow_for_staging(const OnDevice& on, CallMemory& memory) const override {
    EPCCL_ASSIGN(memory.input, on.rooms->borrow(input_.bytes));
    EPCCL_ASSIGN(memory.output, on.rooms->borrow(output_.bytes));
    return {};
  }
  Status run_staged(const Place& place, const CallMemory& memory, AlltoallvCall each) const override {
    return place.on->staged->run_whole(*place.turn, input_.pieces, memory.input->data(), output_.pieces,
                                       memory.output->data(), [&](const std::byte* from, std::byte* to) {
                                         each.input = from;
                                         each.output = to;
                                         each.engines = runtime::EngineUse::never;
                                         return communicator.alltoallv(each);
                                       });
  }
  double predict() const override { return communicator.predict_alltoall(call.mean()); }

 private:
  const MappableBuffers::Used input_, output_;
};

class GpuCollective final : public GpuCall<CollectiveCall> {
 public:
  GpuCollective(runtime::Communicator& target, CollectiveCall given, bool copied, const void* scalar)
      : GpuCall(target, std::move(given), copied), scalar_(scalar) {}
  std::string text() const override { return call.text(); }
  uint64_t bytes() const override { return call.what.bytes; }
  MappableBuffers::Used input() const override {
    return {call.input, static_cast<uint64_t>(inputs(communicator.rank())) * bytes()};
  }
  MappableBuffers::Used output() const override {
    return {call.output, static_cast<uint64_t>(outputs(communicator.rank())) * bytes()};
  }
  bool graph_makes_it(const OnDevice& on) const override {
    return scalar_ == nullptr && GpuCall::graph_makes_it(on) && on.collectives->kernels_name_all(call);
  }
  runtime::EngineChoice choose(const OnDevice& on) const override {
    return on.collectives->choose_engines(call);
  }
  bool has_to_be_read() const override { return scalar_ != nullptr; }
  Status read(const Place& place, CollectiveCall& each) const override {
    if (scalar_ == nullptr) return {};
    return place.on->staged->fetch(*place.turn, &each.reduction->scalar_bits, bytes_at(scalar_),
                                   each.what.unit);
  }
  Status run_on_engines(const OnDevice& on, const CollectiveCall& each) const override {
    return on.collectives->run(each);
  }
  Status run_staged(const Place& place, const CallMemory& /*memory*/, CollectiveCall each) const override {
    const StagedCalls::Blocks blocks{
        bytes_at(each.input),
        bytes_at(each.output),
        inputs(communicator.rank()),
        outputs(communicator.rank()),
        each.what.bytes,
        part_of(*place.on->staged, most_blocks(), each.what.bytes, each.what.unit)};
    return place.on->staged->run(*place.turn, blocks,
                                 [&](const std::byte* from, std::byte* to, uint64_t first, uint64_t part) {
                                   CollectiveCall slice = each;
                                   slice.what.bytes = part;
                                   slice.input = from;
                                   slice.output = to;
                                   slice.engines = runtime::EngineUse::never;
                                   if (part < each.what.bytes)
                                     slice.part = fmt::format(", {} bytes from {} on", part, first);
                                   return communicator.collective(slice);
                                 });
  }
  double predict() const override { return communicator.predict_collective(call); }

 private:
  int inputs(int rank) const { return algorithms::input_blocks(communicator.cluster(), call.what, rank); }
  int outputs(int rank) const { return algorithms::output_blocks(communicator.cluster(), call.what, rank); }
  // Of a buffer of any rank: slices are the same everywhere.
  int most_blocks() const {
    int most = 1;
    for (int rank = 0; rank < communicator.ranks(); ++rank)
      most = std::max({most, inputs(rank), outputs(rank)});
    return most;
  }

  const void* const scalar_;  // null: none
};

}  // namespace

Status submit_on_device(device::Device& device, CommPtr communicator, AlltoallCall call, bool copied,
                        void* stream) {
  auto made = std::make_shared<GpuAlltoall>(*communicator, call, copied);
  return submit_call<AlltoallCall>(device, std::move(communicator), std::move(made), stream);
}

Status submit_on_device(device::Device& device, CommPtr communicator, AlltoallvCall call, bool copied,
                        void* stream) {
  auto made = std::make_shared<GpuAlltoallv>(*communicator, std::move(call), copied);
  return submit_call<AlltoallvCall>(device, std::move(communicator), std::move(made), stream);
}

Status submit_on_device(device::Device& device, CommPtr communicator, CollectiveCall call, bool copied,
                        const void* scalar, void* stream) {
  EPCCL_TRY(check_scalar(device, scalar));
  auto made = std::make_shared<GpuCollective>(*communicator, std::move(call), copied, scalar);
  return submit_call<CollectiveCall>(device, std::move(communicator), std::move(made), stream);
}

}  // namespace epccl::api
