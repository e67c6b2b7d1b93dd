// Descriptors that a forked child must not keep. A connection closes for its peer only when the last process that
// holds it is gone; a worker process forked by a rank (a data loader, say) would hide the rank's death. And memory
// is there for as long as a descriptor of it is. Close-on-exec helps only where exec follows, so in a forked child these descriptors are turned into
// /dev/null.
#pragma once

#include "base/unique_fd.hpp"

namespace epccl {

/// A descriptor that is guarded from construction until it is reset or destroyed. Any thread.
class GuardedFd {
 public:
  GuardedFd() = default;
  explicit GuardedFd(UniqueFd fd);
  GuardedFd(GuardedFd&& other) noexcept = default;
  GuardedFd& operator=(GuardedFd&& other) noexcept;
  GuardedFd(const GuardedFd&) = delete;
  GuardedFd& operator=(const GuardedFd&) = delete;
  ~GuardedFd() { reset(); }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset();

 private:
  UniqueFd fd_;
};

}  // namespace epccl
