// A communicator's control line, without the hub.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bootstrap/bootstrap.hpp"

namespace epccl::runtime {

/// A control line on which only notices come: those that a test gives it, also while another thread waits for them.
class ControlLine : public Bootstrap {
 public:
  void bring(Notice notice) {
    const std::lock_guard lock(mutex_);
    notices_.push_back(std::move(notice));
  }
  int looks() const { return looks_; }

  std::optional<Notice> poll_notice() override {
    ++looks_;
    const std::lock_guard lock(mutex_);
    if (notices_.empty()) return std::nullopt;
    Notice first = std::move(notices_.front());
    notices_.pop_front();
    return first;
  }
  int fd() const override { return -1; }
  Result<std::vector<Blob>> allgather(std::span<const std::byte>) override { return std::vector<Blob>(); }
  Status barrier() override { return {}; }
  Status publish(const std::string&, std::span<const std::byte>) override { return {}; }
  Result<Blob> lookup(int, const std::string&) override { return Blob(); }
  void report_failure(const Status&) override {}
  void report_stall(const StallReport&) override {}
  uint32_t announce_shrink(std::span<const int>) override { return 0; }
  std::optional<ShrinkVerdict> shrink_verdict(uint32_t, bool) override { return std::nullopt; }
  void leave(uint64_t) noexcept override {}

 private:
  std::mutex mutex_;
  std::deque<Notice> notices_;
  std::atomic<int> looks_ = 0;
};

}  // namespace epccl::runtime
