#include "transports/ucx/ucx_library.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "base/unique_fd.hpp"

namespace epccl::transports::ucx {
namespace {

/// 0: the child's `work` says so, in time. A child opens UCX anew, whatever this process did before.
int end_of_child(unsigned seconds, const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

bool opens(const std::string& file) {
  setenv("EPCCL_UCX_LIB", file.c_str(), 1);
  return Library::get().ok();
}

// Its library is a pipe, which keeps who opens it waiting until there is nobody who could write into it.
TEST(UcxLibrary, IsOpenedByAChildThatWasForkedWhileAnotherThreadOpenedIt) {
  if (const auto library = Library::get(); !library.ok()) GTEST_SKIP() << library.status().message();
  std::string folder = testing::TempDir() + "ucxXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(end_of_child(20,
                         [&] {
                           std::thread other([&] { opens(pipe); });
                           UniqueFd writing(open(pipe.c_str(), O_WRONLY | O_CLOEXEC));
                           const int end = end_of_child(5, [] { return opens(""); });
                           writing.reset();
                           other.join();
                           return end == 0;
                         }),
            0);
  std::filesystem::remove_all(folder);
}

// As an older one may; here it is a part of UCX.
TEST(UcxLibrary, LeavesTheProcessItsSignalsWhereItLacksAFunction) {
  EXPECT_EQ(end_of_child(5,
                         [] {
                           struct sigaction action {};
                           return !opens("libucs.so.0") && sigaction(SIGHUP, nullptr, &action) == 0 &&
                                  action.sa_handler == SIG_DFL;
                         }),
            0);
}

}  // namespace
}  // namespace epccl::transports::ucx
