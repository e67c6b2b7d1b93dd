#include "base/file_size.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace epccl {
namespace {

sigset_t the_signal() {
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, SIGXFSZ);
  return only;
}

}  // namespace

NoFileSizeSignal::NoFileSizeSignal() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
  const sigset_t only = the_signal();
  pthread_sigmask(SIG_BLOCK, &only, &before_);
}

// The kernel sends it to the thread that writes.
NoFileSizeSignal::~NoFileSizeSignal() {
  const int kept = errno;
  const sigset_t only = the_signal();
  const timespec at_once{};
  if (!was_pending_)
    while (sigtimedwait(&only, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = kept;
}

Status set_file_size(int fd, uint64_t bytes, const std::string& what) {
  const NoFileSizeSignal none;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) return {};
  const int cause = errno;
  rlimit limit{};
  const bool is_limited = cause == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes;
  return system_error(
      cause, is_limited ? fmt::format("{} needs {} bytes, and no file of this process may have more than "
                                      "{} (ulimit -f)",
                                      what, bytes, limit.rlim_cur)
                        : fmt::format("ftruncate of {} to {} bytes", what, bytes));
}

}  // namespace epccl
