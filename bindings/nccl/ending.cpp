// Finalize, destroy, abort, revoke: EPCCL's communicator and the real one beside it.
#include <utility>

#include "entry_points.hpp"
#include "route.hpp"

namespace epccl::nccl {
namespace {

// Of the real communicator, if there is one. The libraries' groups have no part in it.
template <typename Function, typename Invoke>
ncclResult_t of_real(const CudaSidePtr& side, const char* name, Function RealNccl::*entry, Invoke invoke) {
  if (side == nullptr || side->real == nullptr) return ncclSuccess;
  const Function function = side->library->*entry;
  if (Status has = check_has(*side->library, function != nullptr, name); !has.ok()) return refuse(has);
  return from_real(invoke(function, side->real), side->real);
}

template <typename Function>
ncclResult_t of_real(const CudaSidePtr& side, const char* name, Function RealNccl::*entry) {
  return of_real(side, name, entry, [](Function function, ncclComm_t real) { return function(real); });
}

// The worse of two.
ncclResult_t both(ncclResult_t a, ncclResult_t b) {
  return a != ncclSuccess && a != ncclInProgress ? a : (b != ncclSuccess ? b : a);
}

bool refused(ncclResult_t result) {
  return result == ncclInvalidArgument || result == ncclInvalidUsage;
}

}  // namespace

ncclResult_t CommFinalize(ncclComm_t comm) {
  const ncclResult_t result = from_native(epcclCommFinalize(native(comm)));
  if (refused(result)) return result;
  return both(result, of_real(find_real_side(comm), "ncclCommFinalize", &RealNccl::CommFinalize));
}

ncclResult_t CommDestroy(ncclComm_t comm) {
  const CudaSidePtr unready = find_cuda_side(comm);
  if (unready != nullptr && !unready->ready)
    return refuse(
        {Code::invalid_argument, "ncclCommDestroy: the communicator is still being made: poll, or abort"});
  // Taken first: the handle's number may be another communicator's as soon as this one is gone.
  const CudaSidePtr side = take_cuda_side(comm);
  const ncclResult_t result = from_native(epcclCommDestroy(native(comm)));
  if (refused(result)) {
    if (side != nullptr) add_cuda_side(comm, side);
    return result;
  }
  if (side != nullptr && side->maker != nullptr) side->maker->join();
  return both(result, of_real(side, "ncclCommDestroy", &RealNccl::CommDestroy));
}

ncclResult_t CommAbort(ncclComm_t comm) {
  const CudaSidePtr side = take_cuda_side(comm);
  if (side != nullptr && side->maker != nullptr) side->maker->stop = true;
  const ncclResult_t result = from_native(epcclCommAbort(native(comm)));
  if (side != nullptr && side->maker != nullptr) side->maker->join();
  return both(result, of_real(side, "ncclCommAbort", &RealNccl::CommAbort));
}

ncclResult_t CommRevoke(ncclComm_t comm, int revokeFlags) {
  const ncclResult_t result = from_native(epcclCommRevoke(native(comm), revokeFlags));
  if (refused(result)) return result;
  return both(result, of_real(find_real_side(comm), "ncclCommRevoke", &RealNccl::CommRevoke,
                              [&](auto function, ncclComm_t real) { return function(real, revokeFlags); }));
}

ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  const ncclResult_t asked =
      from_native(epcclCommGetAsyncError(native(comm), reinterpret_cast<epcclResult_t*>(asyncError)));
  const CudaSidePtr side = find_cuda_side(comm);
  if (asked != ncclSuccess || *asyncError != ncclSuccess || side == nullptr) return asked;
  if (!side->ready) {
    *asyncError = ncclInProgress;
    return ncclSuccess;
  }
  return of_real(side, "ncclCommGetAsyncError", &RealNccl::CommGetAsyncError,
                 [&](auto function, ncclComm_t real) { return function(real, asyncError); });
}

}  // namespace epccl::nccl
