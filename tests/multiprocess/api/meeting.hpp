// Where the ranks of a test wait for each other without the library: a call may return on one of them while others are still in it, and
// there hear of whatever goes wrong next.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>

namespace epccl::tests {

/// Of threads, and of processes that are forked after it was made.
class Meeting {
 public:
  Meeting() {
    void* memory = mmap(nullptr, sizeof *come_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for ranks to meet in");
    come_ = new (memory) std::atomic<int>(0);
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting() { munmap(come_, sizeof *come_); }

  /// Returns when as many have come as are `ranks`; again and again. A rank that waits for one that has died fails.
  void come(int ranks) const {
    const int before = come_->fetch_add(1), all = (before / ranks + 1) * ranks;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (come_->load() < all) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "of the " << ranks << " ranks that meet " << all - come_->load() << " did not come";
        return;
      }
      usleep(200);
    }
  }

 private:
  std::atomic<int>* come_ = nullptr;
};

}  // namespace epccl::tests
