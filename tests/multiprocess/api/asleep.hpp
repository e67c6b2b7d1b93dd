// When a thread is inside a call that blocks.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

namespace epccl::tests {

/// Returns when `thread` of this process, which computes until it comes to a call that blocks, sleeps in it. However busy the machine is:
/// a thread that waits for a core does not sleep.
inline void wait_until_asleep(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int seen = 0; seen < 3; usleep(5000)) {
    std::ifstream file(path);
    const std::string stat{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const size_t name_ends = stat.rfind(')');
    const bool sleeps = name_ends != std::string::npos && stat.compare(name_ends, 3, ") S") == 0;
    seen = sleeps ? seen + 1 : 0;
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "thread " << thread << " does not block: " << stat;
      return;
    }
  }
}

}  // namespace epccl::tests
