#include "base/fork_guard.hpp"

#include <fcntl.h>
#include <pthread.h>

#include <mutex>
#include <set>

#include "base/never_destroyed.hpp"

namespace epccl {
namespace {

struct Guarded {
  std::mutex mutex;
  std::set<int> descriptors;
};

Guarded& guarded() {
  static NeverDestroyed<Guarded> instance;
  return *instance;
}

void before_fork() {
  guarded().mutex.lock();
}
void after_fork_in_parent() {
  guarded().mutex.unlock();
}

// Only async-signal-safe calls. The numbers stay taken, so that whoever owns them in the child closes what is
// his.
void after_fork_in_child() {
  if (const int null = open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0) {
    for (const int fd : guarded().descriptors) dup3(null, fd, O_CLOEXEC);
    close(null);
  }
  guarded().mutex.unlock();
}

void install_once() {
  static const int installed = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(installed);
}

}  // namespace

GuardedFd::GuardedFd(UniqueFd fd) : fd_(std::move(fd)) {
  install_once();
  const std::lock_guard lock(guarded().mutex);
  if (fd_) guarded().descriptors.insert(fd_.get());
}

GuardedFd& GuardedFd::operator=(GuardedFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::move(other.fd_);
  }
  return *this;
}

void GuardedFd::reset() {
  if (!fd_) return;
  // Closed under the lock: the number must not be reused before it is off the list.
  const std::lock_guard lock(guarded().mutex);
  guarded().descriptors.erase(fd_.get());
  fd_.reset();
}

}  // namespace epccl
