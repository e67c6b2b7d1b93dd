// Finalize, destroy, abort, revoke: EPCCL's communicator and the real one beside it.
#include <memory>
#include <utility>

#include "entry_points.hpp"
#include "group.hpp"
#include "route.hpp"

namespace epccl::nccl {
namespace {

// Of the real communicator, if there is one. The libraries' groups have no part in it.
template <typename Function, typename Invoke>
ncclResult_t of_real(const CudaSidePtr& side, const char* name, Function RealNccl::*entry, Invoke invoke) {
  if (side == nullptr || side->real == nullptr) return ncclSuccess;
  const Function function = side->library->*entry;
  if (Status has = check_has(*side->library, function != nullptr, name); !has.ok()) return refuse(has);
  return from_real(invoke(function, side->real));
}

template <typename Function>
ncclResult_t of_real(const CudaSidePtr& side, const char* name, Function RealNccl::*entry) {
  return of_real(side, name, entry, [](Function function, ncclComm_t real) { return function(real); });
}

// What EPCCL has of an aborted communicator, freed with the last that holds it.
using Remains = std::shared_ptr<epcclRemains>;

// An end of the real communicator. Those of a group are one group there: NVIDIA's library may wait in one for what runs on another.
// `after` goes when all of them are over.
template <typename Function>
ncclResult_t end_real(Late late, const CudaSidePtr& side, const char* name, Function RealNccl::*entry,
                      const Remains& after = nullptr) {
  if (side == nullptr || (side->real == nullptr && after == nullptr)) return ncclSuccess;
  return now_or_at_end(late, [late, side, name, entry, after] {
    const ncclResult_t result = of_real(side, name, entry);
    // What was being made of it is there now, and nobody's.
    if (late >= Late::always)
      for (ncclComm_t unwanted : side->children.take_left_behind()) (void)side->library->CommAbort(unwanted);
    return result;
  });
}

bool refused(ncclResult_t result) {
  return result == ncclInvalidArgument || result == ncclInvalidUsage;
}

Status check_at_rest(const char* name, const CudaSidePtr& side) {
  return side == nullptr ? Status{} : check_at_rest(name, *side);
}

}  // namespace

ncclResult_t CommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const CudaSidePtr side = find_cuda_side(comm);
  if (const Status ready = check_at_rest("ncclCommFinalize", side); !ready.ok()) return refuse_call(ready);
  const ncclResult_t result = note_call(from_native(epcclCommFinalize(native(comm))));
  if (refused(result)) return result;
  return worse(result, end_real(Late::together, side, "ncclCommFinalize", &RealNccl::CommFinalize));
}

ncclResult_t CommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  if (const Status ready = check_at_rest("ncclCommDestroy", find_cuda_side(comm)); !ready.ok())
    return refuse(ready);
  // Taken first: who asks for it must not find half of it.
  const CudaSidePtr side = take_cuda_side(comm);
  const ncclResult_t result = from_native(epcclCommDestroy(native(comm)));
  if (refused(result)) {
    if (side != nullptr) add_cuda_side(comm, side);
    return result;
  }
  if (side != nullptr && side->maker != nullptr) side->maker->join();
  return worse(result, end_real(Late::always, side, "ncclCommDestroy", &RealNccl::CommDestroy));
}

// EPCCL's work ends first, as what the real one has in a stream may be behind it. Its memory goes last: the driver waits for all kernels
// before it frees any, also for those of the real one, which may be stuck until that is told.
ncclResult_t CommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const CudaSidePtr side = take_cuda_side(comm);
  if (side == nullptr) return note_call(from_native(epcclCommAbort(native(comm))));
  if (side->maker != nullptr) side->maker->stop = true;
  side->children.close();
  epcclRemains_t left = nullptr;
  const ncclResult_t result = note_call(from_native(epcclCommAbortBeside(native(comm), &left)));
  const Remains remains(left, [](epcclRemains_t its) { (void)epcclRemainsFree(its); });
  if (side->maker != nullptr) side->maker->join();
  return worse(result, end_real(Late::abort, side, "ncclCommAbort", &RealNccl::CommAbort, remains));
}

ncclResult_t CommRevoke(ncclComm_t comm, int revokeFlags) {
  if (comm == nullptr) return ncclSuccess;
  const CudaSidePtr side = find_cuda_side(comm);
  if (const Status ready = check_at_rest("ncclCommRevoke", side); !ready.ok()) return refuse(ready);
  const ncclResult_t result = from_native(epcclCommRevoke(native(comm), revokeFlags));
  if (refused(result)) return result;
  if (side != nullptr && side->real_revoked.exchange(true)) return result;  // by a shrink that aborts
  return worse(result, of_real(side, "ncclCommRevoke", &RealNccl::CommRevoke,
                               [&](auto function, ncclComm_t real) { return function(real, revokeFlags); }));
}

ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  const ncclResult_t asked =
      from_native(epcclCommGetAsyncError(native(comm), reinterpret_cast<epcclResult_t*>(asyncError)));
  if (asked != ncclSuccess) return asked;
  // As NCCL says: nothing is in progress before the group's end, to which who waits for it here would never come.
  if (*asyncError == ncclInProgress && joins_at_end(comm)) *asyncError = ncclSuccess;
  const CudaSidePtr side = find_cuda_side(comm);
  if (*asyncError != ncclSuccess) {
    (void)from_native(static_cast<epcclResult_t>(*asyncError));
  } else if (side != nullptr && (!side->ready || side->children.in_making())) {
    *asyncError = ncclInProgress;
  } else if (side != nullptr && !side->failure.ok()) {
    *asyncError = refuse(side->failure);
  } else {
    return of_real(side, "ncclCommGetAsyncError", &RealNccl::CommGetAsyncError,
                   [&](auto function, ncclComm_t real) { return function(real, asyncError); });
  }
  return ncclSuccess;
}

}  // namespace epccl::nccl
