#include "base/allowed_calls.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdio>

#include "refused_call.hpp"

namespace epccl {
namespace {

[[noreturn]] void check_without(long call, int errno_value) {
  const bool is_refused = test::refuse_call(call, errno_value);
  std::fputs(check_allowed_calls().message().c_str(), stderr);
  _exit(is_refused ? 0 : 1);
}

TEST(AllowedCalls, AreAllWhereNothingFiltersThem) {
  EXPECT_TRUE(check_allowed_calls().ok()) << check_allowed_calls().message();
}

TEST(AllowedCalls, OneThatAFilterRefusesIsNamedWithWhatMayHaveRefusedIt) {
  const auto exited = testing::ExitedWithCode(0);
  EXPECT_EXIT(check_without(SYS_accept4, EPERM), exited,
              "^accept4: Operation not permitted .errno 1.: a seccomp filter may forbid it$");
#ifdef SYS_epoll_wait
  EXPECT_EXIT(check_without(SYS_epoll_wait, ENOSYS), exited,
              "^epoll_wait: Function not implemented .errno 38.: a seccomp filter may forbid it$");
  EXPECT_EXIT(check_without(SYS_poll, EACCES), exited,
              "^poll: Permission denied .errno 13.: a seccomp filter may forbid it$");
#endif
}

TEST(AllowedCalls, OtherErrorsAreNoFiltersDoing) {
  EXPECT_EQ(call_error(ENOBUFS, "accept4").message(), system_error(ENOBUFS, "accept4").message());
}

}  // namespace
}  // namespace epccl
