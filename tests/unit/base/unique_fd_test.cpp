#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <functional>
#include <initializer_list>

namespace epccl {
namespace {

/// Whether it is so in a process without these descriptors.
bool holds_without(std::initializer_list<int> closed, const std::function<bool()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int fd : closed) close(fd);
    _exit(what() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status == 0;
}

bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

TEST(UniqueFd, IsNoneOfTheStandardDescriptors) {
  EXPECT_TRUE(holds_without({0, 1, 2}, [] {
    const UniqueFd one(eventfd(7, EFD_CLOEXEC));
    UniqueFd other;
    other.reset(eventfd(0, EFD_CLOEXEC));
    eventfd_t there = 0;
    return one.get() > 2 && other.get() > 2 && !is_open(0) && !is_open(1) && !is_open(2) &&
           eventfd_read(one.get(), &there) == 0 && there == 7 && fcntl(one.get(), F_GETFD) == FD_CLOEXEC;
  }));
}

TEST(UniqueFd, IsNoneWhereOnlyAStandardNumberIsLeft) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitizer looks at memory with descriptors of its own";
#endif
  EXPECT_TRUE(holds_without({2}, [] {
    const rlimit none_left{3, 3};
    const bool is_set = setrlimit(RLIMIT_NOFILE, &none_left) == 0;
    errno = 0;
    const UniqueFd fd(eventfd(0, EFD_CLOEXEC));
    return is_set && !fd && errno == EMFILE && !is_open(2);
  }));
}

TEST(UniqueFd, KeepsTheErrorOfTheCallThatMadeNone) {
  const UniqueFd fd(open("/no/such/file", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(fd);
}

}  // namespace
}  // namespace epccl
