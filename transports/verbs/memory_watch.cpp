#include "transports/verbs/memory_watch.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "base/per_process.hpp"
#include "base/thread.hpp"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace epccl::transports::verbs {

MemoryWatch* MemoryWatch::get() {
  struct Started {
    std::once_flag once;
    MemoryWatch* watch = nullptr;
  };
  // For ever: memory is unmapped until the very end of the process, and waits for its report to be read. In a forked child the
  // parent's would watch the parent's memory.
  static PerProcess<Started> started;
  std::call_once(started->once, [&] { started->watch = start(); });
  return started->watch;
}

MemoryWatch* MemoryWatch::start() {
  const long fd = ::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  if (fd < 0) return nullptr;
  UniqueFd owned(static_cast<int>(fd));
  uffdio_api wanted{};
  wanted.api = UFFD_API;
  wanted.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                    UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  if (::ioctl(owned.get(), UFFDIO_API, &wanted) != 0) return nullptr;
  auto* const watch = new MemoryWatch(owned.release());
  start_thread([watch] { watch->read_for_ever(); }).detach();
  return watch;
}

/// Allocates nothing and takes no lock: whoever unmaps memory may hold any of them, and waits for this thread.
void MemoryWatch::read_for_ever() {
  for (;;) {
    pollfd event{fd_.get(), POLLIN, 0};
    if (::poll(&event, 1, -1) <= 0) continue;
    reading_.store(true, std::memory_order_seq_cst);
    uffd_msg report{};
    while (::read(fd_.get(), &report, sizeof report) == static_cast<ssize_t>(sizeof report)) {
      if (report.event == UFFD_EVENT_UNMAP || report.event == UFFD_EVENT_REMOVE)
        note({report.arg.remove.start, report.arg.remove.end});
      if (report.event == UFFD_EVENT_REMAP)
        note({report.arg.remap.from, report.arg.remap.from + report.arg.remap.len});
    }
    reading_.store(false, std::memory_order_seq_cst);
  }
}

void MemoryWatch::note(Range range) {
  const uint64_t at = written_.load(std::memory_order_relaxed);
  // Who sees any of this sees also how many were written before: what it writes over is lost.
  std::atomic_thread_fence(std::memory_order_release);
  Change& change = changes_[at % changes_.size()];
  change.begin.store(range.begin, std::memory_order_relaxed);
  change.end.store(range.end, std::memory_order_relaxed);
  written_.store(at + 1, std::memory_order_release);
}

// Write protection is what is asked for and never used: the program's accesses go on as before.
bool MemoryWatch::watch(Range pages) {
  uffdio_register wanted{};
  wanted.range.start = pages.begin;
  wanted.range.len = pages.end - pages.begin;
  wanted.mode = UFFDIO_REGISTER_MODE_WP;
  return ::ioctl(fd_.get(), UFFDIO_REGISTER, &wanted) == 0;
}

}  // namespace epccl::transports::verbs
