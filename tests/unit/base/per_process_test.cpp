#include "base/per_process.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace epccl {
namespace {

/// How often it is made in a process. The first is made while the process forks, and the child ends with what it has counted.
struct ForksWhenMade {
  ForksWhenMade() {
    if (++made > 1) return;
    child = fork();
    if (child == 0) _exit(made);
  }
  static inline int made = 0;
  static inline pid_t child = -1;
};

TEST(PerProcess, IsNotRenewedByAForkBeforeItIsMade) {
  const static PerProcess<ForksWhenMade> instance;
  int status = 0;
  ASSERT_EQ(waitpid(ForksWhenMade::child, &status, 0), ForksWhenMade::child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(PerProcess, IsAnotherInEachChild) {
  struct Number {
    int value = 1;
  };
  static PerProcess<Number> number;
  number->value = 2;
  const pid_t child = fork();
  if (child == 0) _exit(number->value);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(number->value, 2);
}

}  // namespace
}  // namespace epccl
