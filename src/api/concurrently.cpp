#include "api/concurrently.hpp"

#include <signal.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/never_destroyed.hpp"
#include "device/host/host_stream.hpp"

namespace epccl::api {
namespace {

using Helper = std::unique_ptr<device::HostStream>;

// The application's signal handlers belong on its own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Threads that have nothing to do, kept because a program that drives several ranks needs them in every call.
class Pool {
 public:
  Helper take() {
    {
      const std::lock_guard lock(mutex_);
      forget_those_of_parent();
      if (!idle_.empty()) {
        Helper helper = std::move(idle_.back());
        idle_.pop_back();
        return helper;
      }
    }
    const SignalsBlocked blocked;
    return std::make_unique<device::HostStream>();
  }

  void give_back(Helper helper) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(helper));
  }

 private:
  // A forked child has the objects, not the threads, and cannot even end them.
  void forget_those_of_parent() {
    if (std::exchange(process_, getpid()) == getpid()) return;
    for (Helper& helper : idle_) static_cast<void>(helper.release());
    idle_.clear();
  }

  std::mutex mutex_;
  pid_t process_ = getpid();
  std::vector<Helper> idle_;
};

Pool& pool() {
  static NeverDestroyed<Pool> instance;
  return *instance;
}

}  // namespace

Status run_concurrently(std::vector<std::function<Status()>> parts) {
  if (parts.empty()) return {};
  std::vector<Helper> helpers;
  std::deque<device::HostStream::Watch> watches;  // this thread waits for all of them, from the start
  for (size_t i = 1; i < parts.size(); ++i) {
    helpers.push_back(pool().take());
    watches.emplace_back(helpers.back()->watchers());
  }
  for (size_t i = 1; i < parts.size(); ++i) helpers[i - 1]->enqueue(std::move(parts[i]));
  Status first = parts.front()();
  for (Helper& helper : helpers) {
    Status status = helper->synchronize();
    if (first.ok()) first = std::move(status);
    pool().give_back(std::move(helper));
  }
  return first;
}

void run_in_background(std::function<void()> work) {
  const SignalsBlocked blocked;
  std::thread(std::move(work)).detach();
}

}  // namespace epccl::api
