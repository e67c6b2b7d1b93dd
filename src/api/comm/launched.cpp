// epcclCommInitLauncher: rank and number of ranks from the launcher's environment, the id through what the launcher offers.
#include <atomic>
#include <cstring>

#include "api/groups/group.hpp"
#include "api/handles/last_error.hpp"
#include "base/settings.hpp"
#include "runtime/bootstrap/launch_env.hpp"

namespace epccl::api {
namespace {

struct LaunchPlace {
  epcclUniqueId id;
  int ranks = 1, rank = 0;
};

Result<LaunchPlace> find_place() {
  // Several communicators of one job must not take each other's id.
  static std::atomic<int> attempts{0};
  EPCCL_ASSIGN(const std::optional<runtime::LaunchEnv> found, runtime::launch_environment());
  const runtime::LaunchEnv env = found.value_or(runtime::LaunchEnv{});
  EPCCL_ASSIGN(const double timeout_seconds, settings::get_seconds("EPCCL_TIMEOUT"));
  EPCCL_ASSIGN(const runtime::UniqueId id, runtime::share_unique_id(env, timeout_seconds, attempts++));
  LaunchPlace place;
  std::memcpy(place.id.internal, id.bytes.data(), id.bytes.size());
  place.ranks = env.ranks;
  place.rank = env.rank;
  return place;
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclCommInitLauncher(epcclComm_t* comm, epcclConfig_t* config) {
  LaunchPlace place;
  const auto find = [&]() -> epccl::Status {
    if (comm == nullptr) return {epccl::Code::invalid_argument, "comm is NULL"};
    *comm = nullptr;
    EPCCL_ASSIGN(place, find_place());
    return {};
  };
  const epcclResult_t found = guarded([&] { return refuse(find()); });
  return found == epcclSuccess ? epcclCommInitRankConfig(comm, place.ranks, place.id, place.rank, config)
                               : found;
}
