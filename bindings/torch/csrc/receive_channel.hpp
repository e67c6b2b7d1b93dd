// Messages from one other rank to this one.
#pragma once

#include <thread>

#include "inbox.hpp"

namespace epccl_torch {

/// The thread that serves a source of the inbox.
class ReceiveChannel {
 public:
  ReceiveChannel(Meeting meeting, Inbox& inbox, int source);
  ReceiveChannel(const ReceiveChannel&) = delete;
  ReceiveChannel& operator=(const ReceiveChannel&) = delete;
  ~ReceiveChannel();

  /// Ends the channel, after the inbox.
  void leave();
  /// Fails all that is pending. Any thread.
  void abort() noexcept { line_.abort(); }

 private:
  void serve();
  void receive_one();

  Inbox& inbox_;
  const int source_;
  PairLine line_;
  std::thread thread_;
};

}  // namespace epccl_torch
