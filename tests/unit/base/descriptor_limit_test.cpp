#include "base/descriptor_limit.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>

#include "base/net.hpp"

namespace epccl {
namespace {

/// The soft limit after `what`, in a process that begins with these limits.
uint64_t limit_after(rlimit begin, const std::function<void()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    const bool is_set = setrlimit(RLIMIT_NOFILE, &begin) == 0;
    what();
    _exit(is_set ? static_cast<int>(descriptor_limit().now) : 255);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return static_cast<uint64_t>(WEXITSTATUS(status));
}

TEST(DescriptorLimit, IsLeftAloneUntilHalfOfItIsInUse) {
  EXPECT_EQ(limit_after({32, 200}, [] { make_room_above(15); }), 32u);
  EXPECT_EQ(limit_after({32, 200}, [] { make_room_above(16); }), 64u);
  EXPECT_EQ(limit_after({0, 200}, [] { make_room_above(16); }), 1u);
}

TEST(DescriptorLimit, GoesNoFurtherThanTheHardLimit) {
  EXPECT_EQ(limit_after({32, 50}, [] { raise_descriptor_limit(); }), 50u);
  EXPECT_EQ(limit_after({50, 50}, [] { raise_descriptor_limit(); }), 50u);
  EXPECT_EQ(limit_after({50, 50}, [] { make_room_above(49); }), 50u);
}

TEST(DescriptorLimit, IsInTheErrorOfWhatItKeptFromOpening) {
  const std::string highest = std::to_string(descriptor_limit().highest);
  EXPECT_EQ(descriptor_error(EMFILE, "accepting", "that").message(),
            system_error(EMFILE, "accepting").message() + " (RLIMIT_NOFILE of that process is " + highest +
                ", also its hard limit: ulimit -Hn)");
  EXPECT_EQ(descriptor_error(EMFILE, "accepting", "that").code(), Code::system_error);
  EXPECT_EQ(descriptor_error(ENFILE, "accepting").message(), system_error(ENFILE, "accepting").message());
}

TEST(DescriptorLimit, IsNamedWhereNothingCanBeOpenedAnyMore) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitizer looks at memory with descriptors of its own";
#endif
  const auto open_one_too_many = [] {
    const rlimit none_left{3, 3};
    const bool is_set = setrlimit(RLIMIT_NOFILE, &none_left) == 0;
    std::fputs(net::open_socket_for({}).status().message().c_str(), stderr);
    _exit(is_set ? 0 : 1);
  };
  EXPECT_EXIT(
      open_one_too_many(), testing::ExitedWithCode(0),
      "opening a socket: Too many open files.*RLIMIT_NOFILE of this process is 3, also its hard limit");
}

}  // namespace
}  // namespace epccl
