#include "base/fork_guard.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <mutex>
#include <set>

#include "base/fork_safe.hpp"
#include "base/never_destroyed.hpp"

namespace epccl {
namespace {

struct Guarded {
  ForkSafe<std::mutex> mutex;
  std::set<int> descriptors;
};

Guarded& guarded() {
  static NeverDestroyed<Guarded> instance;
  return *instance;
}

// Only async-signal-safe calls. The numbers stay taken, so that whoever owns them in the child closes what is
// his.
void after_fork_in_child() {
  if (guarded().descriptors.empty()) return;
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) null = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);  // in a bare container
  if (null >= 0) {
    for (const int fd : guarded().descriptors) dup3(null, fd, O_CLOEXEC);
    close(null);
  }
}

// When the library is loaded: no child finds another thread just making it, or asking for this.
[[maybe_unused]] const int installed = (guarded(), pthread_atfork(nullptr, nullptr, after_fork_in_child));

}  // namespace

GuardedFd::GuardedFd(UniqueFd fd) : fd_(std::move(fd)) {
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
