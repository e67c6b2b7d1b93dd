// How ranks that are processes end: without destructors of static objects, which are those of the process that forked them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace epccl::tests {

/// What the sanitizer looks for at a regular end. It prints what it finds.
inline bool leaks_memory() {
#ifdef __SANITIZE_ADDRESS__
  return __lsan_do_recoverable_leak_check() != 0;
#else
  return false;
#endif
}

/// Of all ranks of a test. The process of rank 0 has made the id and serves those who ask for an address: it stays until the others
/// are through, by a pipe that ends with the last of them, however that ends.
class Ending {
 public:
  Ending() {
    if (pipe2(others_.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe for ranks to end by");
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() {
    for (const int fd : others_)
      if (fd >= 0) close(fd);
  }

  /// Of the process that forked all ranks: it is none of them.
  void all_have_begun() { close(std::exchange(others_[1], -1)); }

  /// Of a rank whose body has run. Nobody waits with a rank that has failed: the others are to hear of it.
  [[noreturn]] void end(int rank) {
    all_have_begun();
    const bool failed = testing::Test::HasFailure() || leaks_memory();
    char nothing = 0;
    if (rank == 0 && !failed && read(others_[0], &nothing, 1) != 0) _exit(1);
    _exit(failed ? 1 : 0);
  }

 private:
  std::array<int, 2> others_{-1, -1};
};

}  // namespace epccl::tests
