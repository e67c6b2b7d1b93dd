#include "base/fork_guard.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace epccl {
namespace {

int code_of_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// 0: a guarded end of a pipe is closed for its other end when its owner closes it, although a forked child lives.
int a_fork_holds_nothing() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return 1;
  GuardedFd guarded{UniqueFd(ends[1])};
  return code_of_child([&] {
    char byte = 0;
    // It is the child that is asked: the parent's end would be open as well.
    return fcntl(guarded.get(), F_GETFD) >= 0 && write(guarded.get(), &byte, 1) >= 0 &&
                   read(ends[0], &byte, 1) > 0
               ? 2
               : 0;
  });
}

TEST(ForkGuard, LeavesAChildNothingButTheNumber) {
  EXPECT_EQ(a_fork_holds_nothing(), 0);
}

TEST(ForkGuard, LeavesNothingWhereThereIsNoDevNull) {
  constexpr int cannot = 77;
  const int code = code_of_child([] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/dev", "tmpfs", 0, nullptr) != 0)
      return cannot;
    return a_fork_holds_nothing();
  });
  if (code == cannot) GTEST_SKIP() << "/dev cannot be taken away here";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace epccl
