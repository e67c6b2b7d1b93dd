#include "api/groups/concurrently.hpp"

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/per_process.hpp"
#include "base/thread.hpp"
#include "device/host/host_stream.hpp"

namespace epccl::api {
namespace {

using Helper = std::unique_ptr<device::HostStream>;

// Threads that have nothing to do, kept because a program that drives several ranks needs them in every call.
class Pool {
 public:
  Helper take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        Helper helper = std::move(idle_.back());
        idle_.pop_back();
        return helper;
      }
    }
    return std::make_unique<device::HostStream>();
  }

  /// Where there is no memory to keep it, it ends.
  void give_back(Helper helper) {
    const std::lock_guard lock(mutex_);
    try {
      idle_.push_back(std::move(helper));
    } catch (const std::bad_alloc&) {
      // It is still the caller's.
    }
  }

  void keep(size_t most) {
    std::vector<Helper> ended;  // without the lock
    const std::lock_guard lock(mutex_);
    while (idle_.size() > most) {
      ended.push_back(std::move(idle_.back()));
      idle_.pop_back();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Helper> idle_;
};

// A forked child has the objects, not the threads, and cannot even end them.
Pool& pool() {
  static PerProcess<Pool> instance;
  return *instance;
}

// As many as the system has threads for.
std::vector<Helper> take_helpers(size_t wanted) {
  std::vector<Helper> helpers;
  try {
    while (helpers.size() < wanted) helpers.push_back(pool().take());
  } catch (const std::system_error& none) {
    log::warn(log::init, -1, "no thread for {} of {} parts of a group, which one thread does now: {}",
              wanted - helpers.size(), wanted + 1, none.what());
  }
  return helpers;
}

// How many parts, from the first on, the helpers have: where there is no memory to queue one, the calling thread does what is left.
size_t hand_out(std::vector<std::function<Status()>>& parts, const std::vector<Helper>& helpers) {
  size_t given = 0;
  try {
    for (; given < helpers.size(); ++given)
      helpers[given]->enqueue([&part = parts[given]] { return part(); });
  } catch (const std::bad_alloc&) {
    // That part is still where it was.
  }
  return given;
}

}  // namespace

Status run_concurrently(std::vector<std::function<Status()>> parts, const std::function<void()>& meanwhile) {
  if (parts.empty()) return {};
  std::vector<Helper> helpers = take_helpers(meanwhile ? parts.size() : parts.size() - 1);
  std::deque<device::HostStream::Watch> watches;  // this thread waits for all of them, from the start
  for (const Helper& helper : helpers) watches.emplace_back(helper->watchers());
  const size_t given = hand_out(parts, helpers);
  Status first_own;
  for (size_t i = given; i < parts.size(); ++i)
    if (Status status = caught(std::ref(parts[i])); first_own.ok()) first_own = std::move(status);
  if (meanwhile) meanwhile();
  Status first;
  for (Helper& helper : helpers) {
    Status status = helper->synchronize();
    if (first.ok()) first = std::move(status);
    pool().give_back(std::move(helper));
  }
  return first.ok() ? std::move(first_own) : std::move(first);
}

void keep_idle_threads(size_t most) {
  pool().keep(most);
}

void run_in_background(const std::function<void()>& work) {
  std::thread background;
  try {
    background = start_thread(work);
  } catch (const std::exception& none) {
    log::warn(log::init, -1, "no thread for work in the background, which the caller does now: {}",
              none.what());
    return work();
  }
  background.detach();
}

}  // namespace epccl::api
