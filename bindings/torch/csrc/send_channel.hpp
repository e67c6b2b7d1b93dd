// Messages from this rank to one other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

#include "pair_line.hpp"
#include "work.hpp"

namespace epccl_torch {

/// Sends in the order of issue, by a thread of its own. A message is a header with tag and size, then its bytes.
class SendChannel {
 public:
  /// `announce` is called before the first message: a receiver that waits for any rank does not look for this one otherwise.
  SendChannel(Meeting meeting, std::function<void()> announce);
  SendChannel(const SendChannel&) = delete;
  SendChannel& operator=(const SendChannel&) = delete;
  ~SendChannel();

  struct Message {
    CallPtr call;
    const void* data;
    uint64_t bytes;
    int tag;
  };
  void issue(Message message);
  /// Ends the channel when all is sent; what is still pending at `deadline` has no partner, and fails.
  void leave(std::chrono::steady_clock::time_point deadline);
  /// Fails all that is pending. Any thread.
  void abort() noexcept;

 private:
  void serve();
  void send_one();
  void fail_all(const std::exception_ptr& why);

  PairLine line_;
  std::function<void()> announce_;  // empty once called
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> posted_;
  bool busy_ = false, over_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace epccl_torch
