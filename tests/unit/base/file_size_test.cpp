// Files that become no larger than the limit of this process: an error says so, and no signal ends the process.
#include "base/file_size.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "base/log.hpp"
#include "base/standard_output.hpp"
#include "base/unique_fd.hpp"
#include "environment.hpp"

namespace epccl {
namespace {

constexpr rlim_t limit = 8192;

/// How a process ends whose files have at most `limit` bytes: 0 where `holds`, 1 where not, -signal.
int ending(const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit files{limit, limit};
    setrlimit(RLIMIT_FSIZE, &files);
    _exit(holds() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

UniqueFd memory() {
  return UniqueFd(memfd_create("epccl-test", MFD_CLOEXEC));
}

TEST(FileSize, ThatIsTooLargeIsAnErrorThatNamesTheLimit) {
  EXPECT_EQ(ending([] {
              const Status status = set_file_size(memory().get(), 3 * limit, "a table");
              return status.code() == Code::system_error &&
                     status.message().starts_with(
                         "a table needs 24576 bytes, and no file of this process may "
                         "have more than 8192 (ulimit -f): ");
            }),
            0);
  EXPECT_EQ(ending([] { return set_file_size(memory().get(), limit, "a table").ok(); }), 0);
}

TEST(FileSize, OtherErrorsAreWhatTheyAre) {
  EXPECT_EQ(set_file_size(-1, 100, "a table").message().find("ftruncate of a table to 100 bytes: "), 0u);
}

TEST(FileSize, TheProgramsOwnFilesEndItAsBefore) {
  EXPECT_EQ(ending([] {
              const UniqueFd fd = memory();
              static_cast<void>(set_file_size(fd.get(), 3 * limit, "a table"));
              return ftruncate(fd.get(), 3 * limit) == 0;
            }),
            -SIGXFSZ);
}

TEST(FileSize, ASignalThatIsNotOursIsLeft) {
  EXPECT_EQ(ending([] {
              sigset_t set;
              sigemptyset(&set);
              sigaddset(&set, SIGXFSZ);
              sigprocmask(SIG_BLOCK, &set, nullptr);
              raise(SIGXFSZ);
              static_cast<void>(set_file_size(memory().get(), 3 * limit, "a table"));
              sigemptyset(&set);
              sigpending(&set);
              return sigismember(&set, SIGXFSZ) == 1;
            }),
            0);
}

TEST(FileSize, WhatIsPrintedIntoAFullFileIsAnError) {
  EXPECT_EQ(ending([] {
              const UniqueFd file = memory();
              dup2(file.get(), STDOUT_FILENO);
              return print(std::string(limit, 'x')).ok() && !print("more").ok();
            }),
            0);
}

TEST(FileSize, AFullLogEndsNoProgram) {
  std::string directory = testing::TempDir() + "fullXXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  test::Environment environment;
  environment.set("EPCCL_DEBUG", "WARN");
  environment.set("EPCCL_DEBUG_FILE", directory + "/log");
  EXPECT_EQ(ending([] {
              for (int i = 0; i < 3; ++i) log::warn(log::init, -1, "{}", std::string(limit, 'x'));
              return true;
            }),
            0);
  EXPECT_EQ(std::filesystem::file_size(directory + "/log"), limit);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace epccl
