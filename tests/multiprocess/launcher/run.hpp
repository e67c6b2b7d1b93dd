// Runs epccl-run as a user does, and looks at what it leaves.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace epccl::test {

inline constexpr double patience = 30;

/// Polls until `condition`, for `patience` at most.
inline bool eventually(const std::function<bool()>& condition) {
  const double deadline = now_seconds() + patience;
  while (!condition()) {
    if (now_seconds() > deadline) return false;
    usleep(5000);
  }
  return true;
}

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Exists and is more than a zombie (which only its parent can remove).
inline bool alive(pid_t pid) {
  const std::string stat = contents(fmt::format("/proc/{}/stat", pid));
  const auto close = stat.rfind(')');
  return close != std::string::npos && close + 2 < stat.size() && stat[close + 2] != 'Z' &&
         stat[close + 2] != 'X';
}

class Launcher : public testing::Test {
 protected:
  Launcher() {
    std::string pattern = testing::TempDir() + "launcherXXXXXX";
    directory_ = mkdtemp(pattern.data());
    std::filesystem::create_directory(directory_ + "/tmp");
  }
  ~Launcher() override {
    for (const pid_t pid : started_) {
      if (kill(pid, SIGKILL) == 0) waitpid(pid, nullptr, 0);
    }
    EXPECT_TRUE(eventually([&] { return std::filesystem::is_empty(directory_ + "/tmp"); }))
        << "a store stays behind";
    std::filesystem::remove_all(directory_);
  }

  /// Starts epccl-run in the background; output goes to files.
  pid_t start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), EPCCL_RUN);
    return start_program(std::move(arguments));
  }
  /// Starts any program likewise.
  pid_t start_program(std::vector<std::string> arguments) {
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("TMPDIR", (directory_ + "/tmp").c_str(), 1);
      setenv("D", directory_.c_str(), 1);
      const int flags = O_WRONLY | O_CREAT | O_TRUNC;
      dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
      dup2(open((directory_ + "/out").c_str(), flags, 0600), STDOUT_FILENO);
      dup2(open((directory_ + "/err").c_str(), flags, 0600), STDERR_FILENO);
      std::vector<char*> raw;
      for (std::string& argument : arguments) raw.push_back(argument.data());
      raw.push_back(nullptr);
      execvp(raw[0], raw.data());
      _exit(99);
    }
    started_.push_back(pid);
    return pid;
  }
  /// Exit code, or -signal.
  int wait(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    std::erase(started_, pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  int run(std::vector<std::string> arguments) { return wait(start(std::move(arguments))); }

  std::string out() const { return contents(directory_ + "/out"); }
  std::string err() const { return contents(directory_ + "/err"); }
  std::vector<std::string> sorted_lines() const {
    std::istringstream text(out());
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  /// The number a process wrote into $D/`name`, once it is there.
  pid_t pid_from(const std::string& name) const {
    pid_t pid = 0;
    EXPECT_TRUE(eventually([&] {
      const std::string text = contents(directory_ + "/" + name);
      if (!text.ends_with('\n')) return false;
      pid = std::atoi(text.c_str());
      return pid > 0;
    })) << name
        << " was never written";
    return pid;
  }

  std::string directory_;

 private:
  std::vector<pid_t> started_;
};

}  // namespace epccl::test
