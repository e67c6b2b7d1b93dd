// The host side of NCCL's interface for device code. Without a real communicator there is no device code: a rank's memory is
// then within reach of its own device alone, and teams follow from that as NCCL computes them.
#include <cstring>

#include "entry_points.hpp"
#include "route.hpp"

namespace epccl::nccl {
namespace {

constexpr int contexts_for_device_networking = 4;  // NCCL_GIN_MAX_CONTEXTS
constexpr size_t slot_bytes = 16;

struct Place {
  int rank = 0, ranks = 0;  // 0 ranks: no such communicator
};

Place place_of(ncclComm_t comm) {
  Place place;
  if (from_native(epcclCommUserRank(native(comm), &place.rank)) != ncclSuccess ||
      from_native(epcclCommCount(native(comm), &place.ranks)) != ncclSuccess)
    return {};
  return place;
}

constexpr int reachable = 1;

ncclResult_t needs_real(const char* name, ncclComm_t comm) {
  if (const ncclResult_t checked = check_comm(comm); checked != ncclSuccess) return checked;
  const CudaSidePtr side = find_cuda_side(comm);
  return refuse(error(Code::invalid_usage,
                      "{} needs a communicator of the real NCCL, and this one has none: {}", name,
                      side != nullptr ? side->why_not.message() : "it is for host memory"));
}

Status check_outputs(const char* name, const void* handle, const void* requirement) {
  if (handle != nullptr && requirement != nullptr) return {};
  return error(Code::invalid_argument, "{}: {} is NULL", name, handle == nullptr ? "outHandle" : "outReq");
}

}  // namespace

ncclResult_t DevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t* requirements,
                           ncclDevComm_t* outDevComm) {
  const CudaSidePtr side = find_real_side(comm);
  if (side == nullptr) return needs_real("ncclDevCommCreate", comm);
  return call_real(*side, "ncclDevCommCreate", side->library->DevCommCreate,
                   [&](auto function, ncclComm_t real) { return function(real, requirements, outDevComm); });
}

ncclResult_t DevCommDestroy(ncclComm_t comm, const ncclDevComm_t* devComm) {
  const CudaSidePtr side = find_real_side(comm);
  if (side == nullptr) return needs_real("ncclDevCommDestroy", comm);
  return call_real(*side, "ncclDevCommDestroy", side->library->DevCommDestroy,
                   [&](auto function, ncclComm_t real) { return function(real, devComm); });
}

// Requirements are sums: what the sessions of device code index.

ncclResult_t LsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
                                         ncclDevResourceRequirements_t* outReq) {
  if (Status checked = check_outputs("ncclLsaBarrierCreateRequirement", outHandle, outReq); !checked.ok())
    return refuse(checked);
  // A barrier has an epoch, a state and a multicast inbox, and an inbox for each rank.
  const size_t words = static_cast<size_t>(nBarriers) * (3 + static_cast<size_t>(team.nRanks));
  outHandle->nBarriers = nBarriers;
  *outReq = {};
  outReq->bufferSize = words * sizeof(uint32_t);
  outReq->bufferAlign = alignof(uint32_t);
  outReq->outBufferHandle = &outHandle->bufHandle;
  return ncclSuccess;
}

ncclResult_t GinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int nBarriers,
                                         ncclGinBarrierHandle_t* outHandle,
                                         ncclDevResourceRequirements_t* outReq) {
  if (Status checked = check_outputs("ncclGinBarrierCreateRequirement", outHandle, outReq); !checked.ok())
    return refuse(checked);
  // A barrier has one signal, and an epoch for each context.
  *outReq = {};
  outReq->bufferSize = static_cast<size_t>(nBarriers) * contexts_for_device_networking * sizeof(uint32_t);
  outReq->bufferAlign = alignof(uint32_t);
  outReq->outBufferHandle = &outHandle->bufHandle;
  outReq->ginSignalCount = nBarriers;
  outReq->outGinSignalStart = &outHandle->signal0;
  return ncclSuccess;
}

ncclResult_t LLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                    ncclDevResourceRequirements_t* outReq) {
  if (Status checked = check_outputs("ncclLLA2ACreateRequirement", outHandle, outReq); !checked.ok())
    return refuse(checked);
  // A block has a line for its epoch, and two sets of slots that epochs use in turn.
  outHandle->nSlots = static_cast<uint32_t>(nSlots);
  *outReq = {};
  outReq->bufferSize = static_cast<size_t>(nBlocks) * (1 + 2 * static_cast<size_t>(nSlots)) * slot_bytes;
  outReq->bufferAlign = slot_bytes;
  outReq->outBufferHandle = &outHandle->bufHandle;
  return ncclSuccess;
}

int LLA2ACalcSlots(int maxElts, int maxEltSize) {
  constexpr int payload_bytes = 8;  // of a slot; the rest are flags
  return maxElts * ((maxEltSize + payload_bytes - 1) / payload_bytes);
}

ncclTeam_t TeamWorld(ncclComm_t comm) {
  const Place place = place_of(comm);
  return place.ranks == 0 ? ncclTeam_t{} : ncclTeam_t{place.ranks, place.rank, 1};
}

ncclTeam_t TeamLsa(ncclComm_t comm) {
  if (const CudaSidePtr side = find_real_side(comm); side != nullptr && side->library->TeamLsa != nullptr)
    return side->library->TeamLsa(side->real);
  return place_of(comm).ranks == 0 ? ncclTeam_t{} : ncclTeam_t{reachable, 0, 1};
}

ncclTeam_t TeamRail(ncclComm_t comm) {
  const ncclTeam_t inner = TeamLsa(comm);
  const Place place = place_of(comm);
  if (inner.nRanks == 0 || place.ranks == 0) return {};
  return {place.ranks / inner.nRanks, place.rank / inner.nRanks, inner.nRanks};
}

int TeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return place_of(comm).rank + (rank - team.rank) * team.stride;
}

int TeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return TeamLsa(comm).rank + (rank - team.rank) * team.stride;
}

}  // namespace epccl::nccl
