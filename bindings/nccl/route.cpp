#include "route.hpp"

namespace epccl::nccl {
namespace {

struct Seen {
  const Buffer* ordinary = nullptr;
  const Buffer* cuda = nullptr;
  bool pinned = false;
};

// Pinned memory is of both worlds. Where the communicator can, it goes with CUDA's, since the stream may be CUDA's too.
Seen look_at(const Call& call, bool pinned_is_cuda, void* context) {
  Seen seen;
  for (const Buffer& buffer : call.buffers) {
    if (buffer.pointer == nullptr) continue;
    const Memory memory = memory_of(buffer.pointer, context);
    const bool cuda = memory == Memory::device || (memory == Memory::pinned && pinned_is_cuda);
    (cuda ? seen.cuda : seen.ordinary) = &buffer;
    seen.pinned = seen.pinned || memory == Memory::pinned;
  }
  return seen;
}

bool is_epccl_stream(cudaStream_t stream) {
  return epcclIsStream(native(stream)) == 1;
}

Status without_real(const Call& call, const Buffer& buffer, const CudaSide* side) {
  const std::string why = side != nullptr
                              ? side->why_not.message()
                              : "it was made by a process without a GPU, or with EPCCL_DEVICE=host or cuda";
  return error(
      Code::invalid_usage,
      "{}: {} {} is CUDA memory, which needs a communicator of the real NCCL, and this one has none: {}",
      call.name, buffer.name, buffer.pointer, why);
}

bool agreed_native(const Call& call, const CudaSide* side) {
  if (side == nullptr) return false;
  switch (call.what) {
    case What::alltoall:
      return side->native.alltoall;
    case What::message:
      return side->native.groups;
    case What::collective:
      return side->runs_collectives();
    case What::registration:  // the real library's own calls are to know of it
      return side->real == nullptr &&
             (side->native.alltoall || side->native.groups || side->runs_collectives());
  }
  return false;
}

// From facts that all ranks share: what they agreed on, the kind of memory and whether the call is captured (for NCCL "a collective
// property of the operation"). Captured calls are the real library's where there is one: EPCCL's own graphs have run on one GPU only (docs/cuda.md, status).
// EPCCL takes no pinned memory for a GPU's in a collective; in a message it can be at one end, of which the other does not know.
bool runs_here(const Call& call, bool is_pinned, const CudaSide* side) {
  if (!agreed_native(call, side)) return false;
  return side->real == nullptr || ((!is_pinned || call.what == What::message) && !is_captured(call.stream));
}

// EPCCL's message of no bytes whose pointer tells nothing (NULL, or the end of a buffer). It is matched wherever it is issued.
Route route_of_nothing(const Call& call, const CudaSidePtr& side) {
  if (native(call.stream) == nullptr) return Route{};  // a default stream, the host's or CUDA's
  if (runs_here(call, false, side.get())) return Route{Runner::epccl_on_cuda, nullptr};
  return side->real != nullptr ? Route{Runner::real, side} : Route{};
}

// NCCL drops collectives that move nothing, whatever their pointers and streams are. These may differ between ranks then (NULL here,
// CUDA memory there), while EPCCL counts calls: so all ranks of a communicator with a side drop them, or the real library does.
Route route_of_empty_collective(const Call& call, const CudaSidePtr& side) {
  const bool to_real = side->real != nullptr && !is_epccl_stream(call.stream);
  return to_real ? Route{Runner::real, side} : Route{Runner::nobody, nullptr};
}

// Its stream would be the GPU's, which a call on host memory takes no part in: what is in front of it there may not have been written.
Status pinned_without_real(const Call& call, const CudaSide& side) {
  return error(
      Code::invalid_usage,
      "{}: pinned host memory in a collective on a CUDA stream needs a communicator of the real NCCL, and "
      "this one has none: {}",
      call.name, side.why_not.message());
}

}  // namespace

Result<Route> route(const Call& call) {
  const CudaSidePtr side = find_cuda_side(call.comm);
  if (side != nullptr && !side->ready)
    return error(Code::invalid_argument, "{}: the communicator is still being made", call.name);
  if (side != nullptr && call.count == 0 && call.what != What::message)
    return route_of_empty_collective(call, side);
  const bool has_real = side != nullptr && side->real != nullptr;
  const bool is_message = call.what == What::message && agreed_native(call, side.get());
  const Seen seen = look_at(call, has_real || (is_message && !is_epccl_stream(call.stream)),
                            side != nullptr ? side->context : nullptr);
  const bool is_collective = call.what == What::collective || call.what == What::alltoall;
  if (seen.pinned && is_collective && !has_real && agreed_native(call, side.get()) &&
      !is_epccl_stream(call.stream))
    return pinned_without_real(call, *side);
  if (seen.cuda != nullptr && seen.ordinary != nullptr)
    return error(Code::invalid_argument, "{}: {} {} is CUDA memory, {} {} is not: both must be of one kind",
                 call.name, seen.cuda->name, seen.cuda->pointer, seen.ordinary->name, seen.ordinary->pointer);
  if (seen.cuda != nullptr && runs_here(call, seen.pinned, side.get()))
    return Route{Runner::epccl_on_cuda, nullptr};
  if (seen.cuda != nullptr && side == nullptr && check_comm(call.comm) != ncclSuccess)
    return Route{};  // EPCCL refuses it
  if (seen.cuda != nullptr && !has_real) return without_real(call, *seen.cuda, side.get());
  if (seen.cuda != nullptr) return Route{Runner::real, side};
  if (call.count != 0 || is_epccl_stream(call.stream)) return Route{};
  // Nothing moves, but ranks whose pointers happen to differ (NULL here, CUDA memory there) must choose alike.
  return is_message ? route_of_nothing(call, side) : has_real ? Route{Runner::real, side} : Route{};
}

}  // namespace epccl::nccl
