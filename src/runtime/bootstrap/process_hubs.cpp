#include "runtime/bootstrap/process_hubs.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/per_process.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::runtime {
namespace {

/// Those of a parent are never touched in its forked child, for the fork may have come in the middle of their threads' work.
struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Hub>> hubs;
};

Registry& registry() {
  static PerProcess<Registry> instance;
  return *instance;
}

/// Stops this process's hubs when the process ends regularly. They wait for others at the same time, not one after the other.
struct StopAtExit {
  ~StopAtExit() {
    const std::lock_guard lock(registry().mutex);
    for (const auto& each : registry().hubs) each->let_the_others_end();
    for (const auto& each : registry().hubs) each->stop_after_the_others();
  }
};

}  // namespace

void keep_serving(std::shared_ptr<Hub> hub) {
  static const StopAtExit stop_at_exit;
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().hubs, [](const auto& each) { return each->finished(); });
  registry().hubs.push_back(std::move(hub));
}

Result<UniqueId> create_unique_id() {
  EPCCL_TRY(start_crypto());
  EPCCL_ASSIGN(std::shared_ptr<Hub> hub, Hub::start());
  const UniqueId id = encode(hub->rendezvous());
  keep_serving(std::move(hub));
  return id;
}

void discard_unique_id(const UniqueId& id) {
  std::shared_ptr<Hub> hub;
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = std::ranges::find_if(
        registry().hubs, [&](const auto& each) { return encode(each->rendezvous()).bytes == id.bytes; });
    if (found == registry().hubs.end()) return;
    hub = std::move(*found);
    registry().hubs.erase(found);
  }
  hub->stop();
}

}  // namespace epccl::runtime
