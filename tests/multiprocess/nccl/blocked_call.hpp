// A call that blocks, in a thread of its own.
#pragma once

#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "../api/asleep.hpp"

namespace nccl_programs {

class BlockedCall {
 public:
  /// Returns when the thread sleeps in the call.
  explicit BlockedCall(const std::function<ncclResult_t()>& call)
      : thread_([this, call] {
          caller_ = gettid();
          result_ = call();
          text_ = ncclGetLastError(nullptr);
        }) {
    while (caller_ == 0) usleep(100);
    epccl::tests::wait_until_asleep(caller_);
  }
  BlockedCall(const BlockedCall&) = delete;
  BlockedCall& operator=(const BlockedCall&) = delete;
  ~BlockedCall() {
    if (thread_.joinable()) thread_.join();
  }

  /// What the call returned.
  ncclResult_t result() {
    if (thread_.joinable()) thread_.join();
    return result_;
  }
  /// What its thread was told last; after result().
  const std::string& text() const { return text_; }

 private:
  std::atomic<pid_t> caller_ = 0;
  ncclResult_t result_ = ncclSuccess;
  std::string text_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace nccl_programs
