// Ranks that share one GPU, as threads or as processes, with what a node's ranks share: words, and a place to leave handles.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "device/cuda/cuda_device.hpp"

namespace epccl::device::test {

enum class As { threads, processes };
inline const char* text_of(As as) {
  return as == As::threads ? "threads" : "processes";
}

inline void PrintTo(As as, std::ostream* out) {
  *out << text_of(as);
}

/// The value, or an exception with what went wrong.
template <typename T>
T take(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}
inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

/// Why there is no GPU here; empty where there is one.
inline std::string why_no_gpu() {
  const auto count = cuda_device_count();
  if (!count.ok()) return count.status().message();
  return *count == 0 ? "no GPU" : "";
}

inline constexpr int most_ranks = 8, most_words = 512, most_handles = 4;

struct Shared {
  SignalWord words[most_ranks][most_words];
  MemoryHandle handles[most_ranks][most_handles];
  std::atomic<int> arrived, failed;
  char why[256];
};

/// What one rank sees.
class Rank {
 public:
  Rank(Shared& shared, int number, int count) : shared_(shared), number_(number), count_(count) {}
  int number() const { return number_; }
  int count() const { return count_; }
  Device& device() const { return *take(cuda_device(0)); }
  Shared& shared() const { return shared_; }
  SignalWord& word(int rank, int which) const { return shared_.words[rank][which]; }
  /// All ranks come here before any goes on.
  void barrier() {
    const int target = count_ * ++barriers_;
    shared_.arrived.fetch_add(1);
    while (shared_.arrived.load() < target) {
      if (shared_.failed.load() != 0) throw std::runtime_error("another rank failed");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  Shared& shared_;
  const int number_, count_;
  int barriers_ = 0;
};

/// Runs `work` as every rank; an exception of one fails the test. Always in other processes than this one, which must not have
/// used a GPU: what it forks could not use one then.
inline void run_ranks(As as, int count, const std::function<void(Rank&)>& work) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& shared = *new (memory) Shared{};
  const auto run_one = [&](int number) {
    try {
      Rank rank(shared, number, count);
      work(rank);
    } catch (const std::exception& failure) {
      if (shared.failed.fetch_add(1) == 0)
        std::snprintf(shared.why, sizeof shared.why, "rank %d: %s", number, failure.what());
      // Whoever waits is let through, so that no queue hangs.
      for (auto& words : shared.words)
        for (SignalWord& word : words) word.store(released);
    }
  };
  const auto run_threads = [&] {
    std::vector<std::thread> threads;
    for (int number = 0; number < count; ++number) threads.emplace_back(run_one, number);
    for (std::thread& thread : threads) thread.join();
  };
  std::fflush(nullptr);  // or children print it again
  std::vector<pid_t> children;
  for (int child = 0; child < (as == As::threads ? 1 : count); ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (as == As::threads) {
        run_threads();
      } else {
        run_one(child);
      }
      std::fflush(nullptr);
      _exit(0);
    }
    children.push_back(pid);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) && shared.failed.fetch_add(1) == 0)
      std::snprintf(shared.why, sizeof shared.why, "a rank's process died of signal %d", WTERMSIG(status));
  }
  EXPECT_EQ(shared.failed.load(), 0) << shared.why;
  munmap(memory, sizeof(Shared));
}

}  // namespace epccl::device::test
