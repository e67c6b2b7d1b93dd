#include "runtime/bootstrap/process_hubs.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/clock.hpp"
#include "base/per_process.hpp"
#include "runtime/bootstrap/client.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::runtime {
namespace {

constexpr double hubs_patience = 1;  // seconds that the end of the process waits for hubs to read it

/// Those of a parent are never touched in its forked child, for the fork may have come in the middle of their threads' work.
struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Hub>> hubs;
  std::mutex lines_mutex;
  std::vector<Client*> lines;
};

Registry& registry() {
  static PerProcess<Registry> instance;
  return *instance;
}

/// When the process ends regularly its ranks say so, and then its hubs stop. Each does it at the same time as the others, since they
/// wait: for hubs that read it, and, ten seconds at most, for ranks of other processes, which may be in their last call.
struct EndWithProcess {
  ~EndWithProcess() {
    end_lines();
    const auto hubs = [] {
      const std::lock_guard lock(registry().mutex);
      return registry().hubs;
    }();
    for (const auto& each : hubs) each->let_the_others_end();
    for (const auto& each : hubs) each->stop_after_the_others();
  }

  static void end_lines() {
    const std::lock_guard lock(registry().lines_mutex);
    for (Client* each : registry().lines) each->tell_end();
    const double deadline = now_seconds() + hubs_patience;
    for (Client* each : registry().lines) each->await_end(deadline);
  }
};

// One for both, whichever comes first: a line may be to a hub of this process.
void end_with_process() {
  static const EndWithProcess at_exit;
}

/// They have descriptors until then. Not at once, where somebody is at them: there is a next time.
void drop_finished_hubs() {
  std::vector<std::shared_ptr<Hub>> finished;  // end without the lock
  const std::unique_lock lock(registry().mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (const auto& each : registry().hubs)
    if (each->finished()) finished.push_back(each);
  std::erase_if(registry().hubs, [](const auto& each) { return each->finished(); });
}

}  // namespace

void keep_serving(std::shared_ptr<Hub> hub) {
  end_with_process();
  drop_finished_hubs();
  const std::lock_guard lock(registry().mutex);
  registry().hubs.push_back(std::move(hub));
}

void keep_line(Client& line) {
  end_with_process();
  const std::lock_guard lock(registry().lines_mutex);
  registry().lines.push_back(&line);
}

void forget_line(Client& line) {
  {
    const std::lock_guard lock(registry().lines_mutex);
    std::erase(registry().lines, &line);
  }
  drop_finished_hubs();
}

Result<UniqueId> create_unique_id() {
  EPCCL_TRY(start_crypto());
  EPCCL_ASSIGN(std::shared_ptr<Hub> hub, Hub::start());
  const UniqueId id = encode(hub->rendezvous());
  keep_serving(std::move(hub));
  return id;
}

void discard_unique_id(const UniqueId& id, const std::string& why) {
  std::shared_ptr<Hub> hub;
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = std::ranges::find_if(
        registry().hubs, [&](const auto& each) { return encode(each->rendezvous()).bytes == id.bytes; });
    if (found == registry().hubs.end()) return;
    hub = std::move(*found);
    registry().hubs.erase(found);
  }
  hub->stop(why);
}

}  // namespace epccl::runtime
