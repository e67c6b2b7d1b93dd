// Making communicators, and what they are.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "config.hpp"
#include "entry_points.hpp"
#include "make_cuda_side.hpp"
#include "native_choice.hpp"
#include "route.hpp"

namespace epccl::nccl {
namespace {

epcclUniqueId native_id(const ncclUniqueId& id) {
  const ncclUniqueId plain = unmarked(id);
  epcclUniqueId out;
  std::memcpy(&out, &plain, sizeof out);
  return out;
}

epcclConfig_t* pointer_to(std::optional<epcclConfig_t>& config) {
  return config ? &*config : nullptr;
}

// EPCCL takes memory of the current GPU for its calls when it makes a communicator; not where it will have none there.
template <typename Make>
ncclResult_t make_native(Make make) {
  if (!cuda_possible() || !wants_nothing_native()) return note_call(from_native(make()));
  const WithContext none(nullptr);
  return note_call(from_native(make()));
}

// A rank that joins by unique ids: `make` makes EPCCL's communicator. The ids' maker decided whether there is a CUDA side.
template <typename Make>
ncclResult_t join(const char* name, ncclComm_t* comm, int nranks, int rank, bool marked,
                  const ncclConfig_t* given, Make make) {
  const Result<KeptConfig> config = KeptConfig::read(given);
  if (!config.ok()) return refuse_call(Status(config.status()).with_context(name));
  epcclConfig_t mine = config->native_of_new();
  const ncclResult_t made = make_native([&] { return make(&mine); });
  if (is_failure(made)) return made;
  note_joining(*comm);
  if (!marked) return made;
  const auto make_real = [nranks, rank, kept = config.value()](const RealNccl& real, const ncclUniqueId& id,
                                                               ncclComm_t* out) {
    if (real.CommInitRankConfig == nullptr) return real.CommInitRank(out, nranks, id, rank);
    return kept.with([&](ncclConfig_t* its) { return real.CommInitRankConfig(out, nranks, id, rank, its); });
  };
  const bool blocking = config->blocking_or(true);
  return worse(made,
               make_or_keep({{comm, current_context(), true, blocking, blocking, {}, nullptr, make_real}}));
}

// The parent's side has a part in what is made of it.
Status check_parent(const char* name, ncclComm_t parent) {
  const CudaSidePtr side = find_cuda_side(parent);
  return side == nullptr ? Status{} : check_at_rest(name, *side);
}

// A communicator made from another one has a CUDA side if that has one. `make_real` is called by every rank that calls this.
template <typename Function, typename MakeReal>
ncclResult_t follow(ncclResult_t made, ncclComm_t parent, ncclComm_t* newcomm, const KeptConfig& config,
                    const char* name, Function RealNccl::*entry, MakeReal make_real) {
  const CudaSidePtr side = find_cuda_side(parent);
  if (!is_failure(made) && *newcomm != nullptr) note_joining(*newcomm);
  if (is_failure(made) || side == nullptr) return made;
  Status why_not = side->why_not;
  if (side->real != nullptr) why_not = check_has(*side->library, side->library->*entry != nullptr, name);
  const auto make = [side, make_real](const RealNccl& real, const ncclUniqueId&, ncclComm_t* out) {
    return make_real(real, side->real, out);
  };
  return worse(made, make_or_keep({{newcomm, current_context(), false, side->blocking,
                                    config.blocking_or(side->blocking), std::move(why_not), side, make}}));
}

// Of a shrink that aborts: the real parent's work ends before anything is made or tried out. Its kernels may be stuck, and the driver
// keeps who frees memory until they are through. (A real library that cannot revoke ends them later, when it shrinks.)
void end_real_work(epcclComm_t comm) {
  const CudaSidePtr side = find_real_side(reinterpret_cast<ncclComm_t>(comm));
  if (side == nullptr || side->library->CommRevoke == nullptr || !side->children.enter()) return;
  const bool was_revoked = side->real_revoked.exchange(true);
  const RealNccl& real = *side->library;
  ncclResult_t state = was_revoked ? ncclSuccess : real.CommRevoke(side->real, 0);
  if (is_failure(state))
    log::warn(log::init, -1, "a shrink that aborts: the real ncclCommRevoke: {}", real.GetErrorString(state));
  // Of a nonblocking communicator in its background.
  while (state == ncclInProgress && !side->children.is_closing()) {
    if (real.CommGetAsyncError(side->real, &state) != ncclSuccess) break;
    if (state == ncclInProgress) usleep(50);
  }
  if (is_failure(state)) side->real_revoked = false;
  side->children.leave();
}

ncclResult_t init(const char* name, ncclComm_t* comm, int nranks, const ncclUniqueId& id, int rank,
                  const ncclConfig_t* given) {
  return join(name, comm, nranks, rank, marked_for_cuda(id), given, [&](epcclConfig_t* config) {
    return epcclCommInitRankConfig(native(comm), nranks, native_id(id), rank, config);
  });
}

// All ranks are here: the real library makes them at once, and nobody has to be asked.
Status make_all_real(std::vector<ncclComm_t>& real, const int* devlist) {
  EPCCL_TRY(Status(real_nccl().status()));
  const RealNccl& library = real_nccl().value();
  const ncclResult_t result = library.CommInitAll(real.data(), static_cast<int>(real.size()), devlist);
  if (result == ncclSuccess) return {};
  return error(static_cast<Code>(result), "the real ncclCommInitAll: {}", library.GetErrorString(result));
}

// Error: the real library failed, and is needed.
Status make_cuda_sides_of_all(const ncclComm_t* comms, int ndev, const int* devlist) {
  std::vector<NativeQuestion> questions;
  for (int rank = 0; rank < ndev; ++rank)
    questions.push_back({comms[rank], nullptr, devlist != nullptr ? devlist[rank] : rank});
  if (const Status chosen = choose_native(questions); !chosen.ok())
    log::warn(log::init, -1, "CUDA memory is left to the real NCCL: {}", chosen.message());
  std::vector<ncclComm_t> real(static_cast<size_t>(ndev));
  const auto is_asked_for_all = [](const NativeQuestion& one) { return one.answers.asked_for_all; };
  const auto is_native = [](const NativeQuestion& one) { return one.answers.anything(); };
  const bool is_wanted = !std::ranges::all_of(questions, is_asked_for_all);
  const Status why_not = is_wanted ? make_all_real(real, devlist) : runs_everything();
  const bool has_failed = is_wanted && !why_not.ok() && real_nccl().ok();
  if (has_failed && std::ranges::none_of(questions, is_native)) return why_not;
  if (has_failed)
    log::warn(log::init, -1, "no real NCCL communicators for CUDA memory: {}", why_not.message());
  for (size_t rank = 0; rank < questions.size(); ++rank) {
    auto side = std::make_shared<CudaSide>();
    side->why_not = why_not;
    side->native = questions[rank].answers;
    if (why_not.ok()) {
      side->real = real[rank];
      side->library = &real_nccl().value();
    }
    side->context = current_context();
    side->device = questions[rank].device;
    side->ready = true;
    add_cuda_side(comms[rank], std::move(side));
  }
  return {};
}

// Of ncclCommInitAll, which takes no config. All or none.
ncclResult_t complete_all(ncclComm_t* comms, int ndev, const int* devlist) {
  for (int rank = 0; rank < ndev; ++rank)
    (void)epcclCommSetTimeout(native(comms[rank]), timeout_of_programs());
  const Status made = gpu_present() ? make_cuda_sides_of_all(comms, ndev, devlist) : Status{};
  for (int rank = 0; !made.ok() && rank < ndev; ++rank)
    (void)epcclCommDestroy(native(std::exchange(comms[rank], nullptr)));
  return refuse(made);
}

// Programs that trust in that variable give every rank an id of its own, which NCCL reads only the address of.
void tell_of_comm_id() {
  static std::once_flag told;
  const char* const value = std::getenv("NCCL_COMM_ID");
  if (value == nullptr || *value == 0) return;
  std::call_once(told, [value] {
    log::warn(
        log::init, -1,
        "NCCL_COMM_ID={} has no effect: all ranks need the id that one of them gets (EPCCL_COMM_ID: the "
        "address that it names)",
        value);
  });
}

}  // namespace

ncclResult_t GetUniqueId(ncclUniqueId* uniqueId) {
  tell_of_comm_id();
  const ncclResult_t result = from_native(epcclGetUniqueId(reinterpret_cast<epcclUniqueId*>(uniqueId)));
  if (result == ncclSuccess && cuda_wanted()) mark_for_cuda(*uniqueId);
  return result;
}

ncclResult_t CommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return init("ncclCommInitRank", comm, nranks, commId, rank, nullptr);
}

ncclResult_t CommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                ncclConfig_t* config) {
  return init("ncclCommInitRankConfig", comm, nranks, commId, rank, config);
}

ncclResult_t CommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  const ncclResult_t made = make_native([&] { return epcclCommInitAll(native(comm), ndev, devlist); });
  if (made != ncclSuccess) return made;
  if (!in_group()) return complete_all(comm, ndev, devlist);
  std::vector<int> devices;
  for (int i = 0; i < ndev; ++i) devices.push_back(devlist != nullptr ? devlist[i] : i);
  return now_or_at_end(Late::if_group_ran,
                       [comm, ndev, devices] { return complete_all(comm, ndev, devices.data()); });
}

ncclResult_t CommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                  ncclConfig_t* config) {
  // A wrong number of ids is EPCCL's to refuse, which reads none of them then: neither does this.
  const bool readable = commIds != nullptr && nId >= 1 && nId <= nranks;
  std::vector<epcclUniqueId> ids;
  for (int i = 0; readable && i < nId; ++i) ids.push_back(native_id(commIds[i]));
  const bool marked = readable && marked_for_cuda(commIds[0]);
  epcclUniqueId* const given = readable ? ids.data() : reinterpret_cast<epcclUniqueId*>(commIds);
  return join("ncclCommInitRankScalable", newcomm, nranks, myrank, marked, config, [&](epcclConfig_t* mine) {
    return epcclCommInitRankScalable(native(newcomm), nranks, myrank, nId, given, mine);
  });
}

ncclResult_t CommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  const Result<KeptConfig> kept = KeptConfig::read(config);
  if (!kept.ok()) return refuse_call(Status(kept.status()).with_context("ncclCommSplit"));
  if (const Status ready = check_parent("ncclCommSplit", comm); !ready.ok()) return refuse_call(ready);
  auto mine = kept->native();
  const ncclResult_t made = make_native(
      [&] { return epcclCommSplit(native(comm), color, key, native(newcomm), pointer_to(mine)); });
  return follow(
      made, comm, newcomm, kept.value(), "ncclCommSplit", &RealNccl::CommSplit,
      [color, key, its = kept.value()](const RealNccl& real, ncclComm_t parent, ncclComm_t* out) {
        return its.with([&](ncclConfig_t* given) { return real.CommSplit(parent, color, key, out, given); });
      });
}

ncclResult_t CommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                        ncclConfig_t* config, int shrinkFlags) {
  const Result<KeptConfig> kept = KeptConfig::read(config);
  if (!kept.ok()) return refuse_call(Status(kept.status()).with_context("ncclCommShrink"));
  if (const Status ready = check_parent("ncclCommShrink", comm); !ready.ok()) return refuse_call(ready);
  auto mine = kept->native();
  const ncclResult_t made = make_native([&] {
    return epcclCommShrinkBeside(native(comm), excludeRanksList, excludeRanksCount, native(newcomm),
                                 pointer_to(mine), shrinkFlags, end_real_work);
  });
  std::vector<int> excluded;
  if (!is_failure(made)) excluded.assign(excludeRanksList, excludeRanksList + excludeRanksCount);
  return follow(
      made, comm, newcomm, kept.value(), "ncclCommShrink", &RealNccl::CommShrink,
      [excluded, shrinkFlags, its = kept.value()](const RealNccl& real, ncclComm_t parent, ncclComm_t* out) {
        return its.with([&, list = excluded](ncclConfig_t* given) mutable {
          return real.CommShrink(parent, list.data(), static_cast<int>(list.size()), out, given, shrinkFlags);
        });
      });
}

ncclResult_t CommCount(const ncclComm_t comm, int* count) {
  return from_native(epcclCommCount(native(comm), count));
}

ncclResult_t CommUserRank(const ncclComm_t comm, int* rank) {
  return from_native(epcclCommUserRank(native(comm), rank));
}

ncclResult_t CommCuDevice(const ncclComm_t comm, int* device) {
  const CudaSidePtr side = find_cuda_side(comm);
  if (side == nullptr || !side->ready || side->real == nullptr) {
    const ncclResult_t asked = from_native(epcclCommDevice(native(comm), device));
    if (asked == ncclSuccess && side != nullptr && side->ready)
      *device = side->device ? *side->device : device_of(side->context);
    return asked;
  }
  return call_real(*side, "ncclCommCuDevice", side->library->CommCuDevice,
                   [&](auto function, ncclComm_t real) { return function(real, device); });
}

}  // namespace epccl::nccl
