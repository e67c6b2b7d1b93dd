// Making and ending communicators.
#include <cstring>
#include <string>

#include "config.hpp"
#include "entry_points.hpp"
#include "make_cuda_side.hpp"
#include "not_yet.hpp"
#include "route.hpp"

namespace epccl::nccl {
namespace {

epcclUniqueId native_id(const ncclUniqueId& id) {
  const ncclUniqueId plain = unmarked(id);
  epcclUniqueId out;
  std::memcpy(&out, &plain, sizeof out);
  return out;
}

// A config and the strings it points to, for a call that is made later.
struct KeptConfig {
  explicit KeptConfig(const ncclConfig_t& given)
      : config(given),
        net(given.netName == nullptr ? "" : given.netName),
        name(given.commName == nullptr ? "" : given.commName) {}

  /// The real library's communicators are made blocking: who makes them waits for them anyway.
  ncclConfig_t blocking() const {
    ncclConfig_t out = config;
    out.blocking = 1;
    out.netName = net.empty() ? nullptr : net.c_str();
    out.commName = name.empty() ? nullptr : name.c_str();
    return out;
  }

  ncclConfig_t config;
  std::string net, name;
};

NewSide side_of_new(ncclComm_t* comm, int nranks, int rank, const ncclConfig_t& config) {
  const KeptConfig kept(config);
  return {comm, current_context(), true, [=](const RealNccl& real, const ncclUniqueId& id, ncclComm_t* out) {
            ncclConfig_t its = kept.blocking();
            return real.CommInitRankConfig != nullptr ? real.CommInitRankConfig(out, nranks, id, rank, &its)
                                                      : real.CommInitRank(out, nranks, id, rank);
          }};
}

ncclResult_t init(const char* name, ncclComm_t* comm, int nranks, const ncclUniqueId& id, int rank,
                  const ncclConfig_t* given) {
  const Result<ncclConfig_t> config = read_config(given);
  if (!config.ok()) return refuse_call(Status(config.status()).with_context(name));
  if (config->blocking == 0) return not_yet("a communicator with config.blocking 0");
  epcclConfig_t mine = native_config(config.value());
  const ncclResult_t made =
      note_call(from_native(epcclCommInitRankConfig(native(comm), nranks, native_id(id), rank, &mine)));
  if (made != ncclSuccess || !marked_for_cuda(id)) return made;
  return make_or_keep({side_of_new(comm, nranks, rank, config.value())});
}

// Ends the real communicator with one of its library's calls, if there is one. EPCCL's is always ended too.
template <typename Function>
ncclResult_t end_real(const CudaSidePtr& side, const char* name, Function RealNccl::*entry) {
  if (side == nullptr || side->real == nullptr) return ncclSuccess;
  return call_real(*side, name, side->library->*entry,
                   [](auto function, ncclComm_t real) { return function(real); });
}

ncclResult_t first_failure(ncclResult_t a, ncclResult_t b) {
  return a != ncclSuccess ? a : b;
}

}  // namespace

ncclResult_t GetUniqueId(ncclUniqueId* uniqueId) {
  const ncclResult_t result = from_native(epcclGetUniqueId(reinterpret_cast<epcclUniqueId*>(uniqueId)));
  if (result == ncclSuccess && cuda_possible()) mark_for_cuda(*uniqueId);
  return result;
}

ncclResult_t CommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return init("ncclCommInitRank", comm, nranks, commId, rank, nullptr);
}

ncclResult_t CommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                ncclConfig_t* config) {
  return init("ncclCommInitRankConfig", comm, nranks, commId, rank, config);
}

ncclResult_t CommInitAll(ncclComm_t*, int, const int*) {
  return not_yet("ncclCommInitAll");
}

ncclResult_t CommInitRankScalable(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*) {
  return not_yet("ncclCommInitRankScalable");
}

ncclResult_t CommSplit(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*) {
  return not_yet("ncclCommSplit");
}

ncclResult_t CommShrink(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int) {
  return not_yet("ncclCommShrink");
}

ncclResult_t CommRevoke(ncclComm_t, int) {
  return not_yet("ncclCommRevoke");
}

ncclResult_t CommFinalize(ncclComm_t comm) {
  const ncclResult_t real = end_real(find_cuda_side(comm), "ncclCommFinalize", &RealNccl::CommFinalize);
  return first_failure(real, from_native(epcclCommFinalize(native(comm))));
}

ncclResult_t CommDestroy(ncclComm_t comm) {
  const ncclResult_t real = end_real(take_cuda_side(comm), "ncclCommDestroy", &RealNccl::CommDestroy);
  return first_failure(real, from_native(epcclCommDestroy(native(comm))));
}

ncclResult_t CommAbort(ncclComm_t comm) {
  const ncclResult_t real = end_real(take_cuda_side(comm), "ncclCommAbort", &RealNccl::CommAbort);
  return first_failure(real, from_native(epcclCommAbort(native(comm))));
}

ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  epcclResult_t state = epcclSuccess;
  const ncclResult_t asked =
      from_native(epcclCommGetAsyncError(native(comm), asyncError == nullptr ? nullptr : &state));
  if (asked != ncclSuccess) return asked;
  *asyncError = static_cast<ncclResult_t>(state);
  const CudaSidePtr side = find_real_side(comm);
  if (state != epcclSuccess || side == nullptr) return ncclSuccess;
  return call_real(*side, "ncclCommGetAsyncError", side->library->CommGetAsyncError,
                   [&](auto function, ncclComm_t real) { return function(real, asyncError); });
}

ncclResult_t CommCount(const ncclComm_t comm, int* count) {
  return from_native(epcclCommCount(native(comm), count));
}

ncclResult_t CommUserRank(const ncclComm_t comm, int* rank) {
  return from_native(epcclCommUserRank(native(comm), rank));
}

ncclResult_t CommCuDevice(const ncclComm_t comm, int* device) {
  const CudaSidePtr side = find_real_side(comm);
  if (side == nullptr) return not_yet("ncclCommCuDevice");
  return call_real(*side, "ncclCommCuDevice", side->library->CommCuDevice,
                   [&](auto function, ncclComm_t real) { return function(real, device); });
}

ncclResult_t GroupSimulateEnd(ncclSimInfo_t* simInfo) {
  if (Status checked = check_sim_info(simInfo); !checked.ok()) return refuse_call(checked);
  return not_yet("ncclGroupSimulateEnd");
}

}  // namespace epccl::nccl
