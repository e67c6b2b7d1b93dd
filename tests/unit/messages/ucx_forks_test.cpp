#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "transports/ucx/ucx_context.hpp"

namespace epccl::transports::ucx {
namespace {

void set_log(const std::string& level, const std::string& file) {
  setenv("EPCCL_DEBUG", level.c_str(), 1);
  setenv("EPCCL_DEBUG_FILE", file.c_str(), 1);
  log::reload();
}

/// A log that is full: who writes into it waits until it is read.
class FullLog {
 public:
  FullLog() {
    folder_ = mkdtemp(folder_.data());
    EXPECT_EQ(mkfifo(path().c_str(), 0600), 0);
    reading_.reset(open(path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const UniqueFd filling(open(path().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    while (write(filling.get(), some_.data(), some_.size()) > 0) {
    }
    set_log("TRACE", path());
  }
  FullLog(const FullLog&) = delete;
  FullLog& operator=(const FullLog&) = delete;
  ~FullLog() {
    unsetenv("EPCCL_DEBUG");
    unsetenv("EPCCL_DEBUG_FILE");
    log::reload();
    std::filesystem::remove_all(folder_);
  }
  void read() { static_cast<void>(::read(reading_.get(), some_.data(), some_.size())); }

 private:
  std::string path() const { return folder_ + "/log"; }

  std::string folder_ = testing::TempDir() + "fullXXXXXX";
  std::array<char, 4096> some_{};
  UniqueFd reading_;
};

/// The number of the system call that one of this process's threads waits in; "running", or "" where that cannot be known.
std::string call_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  std::string call;
  file >> call;
  return call;
}

// It says what it does to a log, which is full.
TEST(UcxContext, IsHadByAChildThatWasForkedWhileAnotherThreadMadeOne) {
  if (const auto library = Library::get(); !library.ok()) GTEST_SKIP() << library.status().message();
  if (call_of(gettid()).empty()) GTEST_SKIP() << "what a thread waits for cannot be known here";
  // With the modules that UCX loads then: a child that has half of one would not go on.
  ASSERT_TRUE(Context::acquire(2).ok());
  FullLog full;
  std::atomic<bool> is_made = false;
  std::atomic<pid_t> number = 0;
  std::thread maker([&] {
    number = gettid();
    EXPECT_TRUE(Context::acquire(2).ok());
    is_made = true;
  });
  while (!is_made && (number == 0 || call_of(number) != std::to_string(SYS_write)))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    set_log("NONE", "");
    _exit(Context::acquire(2).ok() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(is_made);
  for (; !is_made; std::this_thread::sleep_for(std::chrono::milliseconds(1))) full.read();
  maker.join();
}

}  // namespace
}  // namespace epccl::transports::ucx
