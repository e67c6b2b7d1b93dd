// Ranks that share one GPU, as threads or as processes, with what a node's ranks share: words, and a place to leave handles.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/gpus.hpp"
#include "results.hpp"

namespace epccl::device::test {

enum class As { threads, processes };
inline const char* text_of(As as) {
  return as == As::threads ? "threads" : "processes";
}

inline void PrintTo(As as, std::ostream* out) {
  *out << text_of(as);
}

/// Why there is no GPU here; empty where there is one.
inline std::string why_no_gpu() {
  const auto count = cuda_device_count();
  if (!count.ok()) return count.status().message();
  return *count == 0 ? "no GPU" : "";
}

/// The same, asked in a process of its own, since ranks that are processes are forked from one that has used no GPU: 0 there is a GPU; 77
/// there is none, and why is printed; 1 asking failed.
inline int ask_for_gpu() {
  std::fflush(nullptr);  // or the child prints it again
  const pid_t child = fork();
  if (child == 0) {
    const std::string why = why_no_gpu();
    if (!why.empty()) std::printf("skipped: %s\n", why.c_str());
    std::fflush(nullptr);
    _exit(why.empty() ? 0 : 77);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/// GPU memory that peers can map, freed at the end.
struct ShareableBuffer {
  ShareableBuffer(Device& of, uint64_t size)
      : device(of), data(static_cast<std::byte*>(take(of.allocate(MemoryKind::shareable, size)))) {}
  ShareableBuffer(const ShareableBuffer&) = delete;
  ShareableBuffer& operator=(const ShareableBuffer&) = delete;
  ~ShareableBuffer() { static_cast<void>(device.free(data)); }
  Device& device;
  std::byte* const data;
};

/// Host memory that the GPU copies itself, freed at the end.
struct PinnedBuffer {
  PinnedBuffer(Device& of, uint64_t size)
      : device(of), data(static_cast<std::byte*>(take(of.allocate(MemoryKind::pinned, size)))) {}
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer() { static_cast<void>(device.free(data)); }
  Device& device;
  std::byte* const data;
};

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
  /// All ranks come here before any goes on. They look again and again at first: who sleeps wakes up when a call that is timed from
  /// here may be half over.
  void barrier() {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds patience{5};
    const int target = count_ * ++barriers_;
    shared_.arrived.fetch_add(1);
    const auto begin = Clock::now();
    while (shared_.arrived.load() < target) {
      if (shared_.failed.load() != 0) throw std::runtime_error("another rank failed");
      if (Clock::now() - begin < patience)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  Shared& shared_;
  const int number_, count_;
  int barriers_ = 0;
};

/// `parent`, which forked this process, may be killed: then it ends, too, and with it what it does on the GPU.
inline void end_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // killed before
}

/// Runs `work` as every rank; what the first exception of one says, or empty. Always in other processes than this one, which must
/// not have used a GPU: what it forked could not use one then.
inline std::string failure_of_ranks(As as, int count, const std::function<void(Rank&)>& work) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return "no memory to share";
  auto& shared = *new (memory) Shared{};
  // So that no queue hangs.
  const auto let_all_through = [&] {
    for (auto& words : shared.words)
      for (SignalWord& word : words) word.store(released);
  };
  const auto run_one = [&](int number) {
    try {
      Rank rank(shared, number, count);
      work(rank);
    } catch (const std::exception& failure) {
      if (shared.failed.fetch_add(1) == 0)
        std::snprintf(shared.why, sizeof shared.why, "rank %d: %s", number, failure.what());
      let_all_through();
    }
  };
  const auto run_threads = [&] {
    std::vector<std::thread> threads;
    for (int number = 0; number < count; ++number) threads.emplace_back(run_one, number);
    for (std::thread& thread : threads) thread.join();
  };
  std::fflush(nullptr);  // or children print it again
  const int children = as == As::threads ? 1 : count;
  const pid_t parent = getpid();
  for (int child = 0; child < children; ++child) {
    if (fork() != 0) continue;
    end_with_parent(parent);
    if (as == As::threads) {
      run_threads();
    } else {
      run_one(child);
    }
    std::fflush(nullptr);
    _exit(0);
  }
  // In the order in which they end: others may be waiting for the one that died. This process has no other children.
  for (int left = children; left > 0; --left) {
    int status = 0;
    waitpid(-1, &status, 0);
    if (WIFEXITED(status)) continue;
    if (shared.failed.fetch_add(1) == 0)
      std::snprintf(shared.why, sizeof shared.why, "a rank's process died of signal %d", WTERMSIG(status));
    let_all_through();
  }
  const std::string why = shared.failed.load() != 0 ? shared.why : "";
  munmap(memory, sizeof(Shared));
  return why;
}

/// The same; a failure is the test's.
inline void run_ranks(As as, int count, const std::function<void(Rank&)>& work) {
  EXPECT_EQ(failure_of_ranks(as, count, work), "");
}

}  // namespace epccl::device::test
