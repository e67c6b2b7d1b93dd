// Receives from any rank: who may be their sender, and how they end when nobody is.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "inbox.hpp"

namespace epccl_torch {

/// Says in the store that `sender` is about to send its first message to `receiver`.
void announce_sender(c10d::Store& store, int receiver, int sender);

/// While receives wait for any rank, a thread looks into the store for ranks that begin to send, and has their channels opened: there
/// is none to a rank that never sends. It also ends receives when their time is over, or when a rank has died.
class AnySource {
 public:
  struct Group {
    c10::intrusive_ptr<c10d::Store> store;
    int rank, ranks;
    std::function<void(int source)> open;   // the channel of a sender
    std::function<void(int source)> abort;  // that of one that was silent for too long
    std::function<void()> check;            // throws when a rank has died
  };
  AnySource(Inbox& inbox, Group group) : inbox_(inbox), group_(std::move(group)) {}
  AnySource(const AnySource&) = delete;
  AnySource& operator=(const AnySource&) = delete;
  ~AnySource() { stop(); }

  /// Begins to watch, if that has not been done.
  void start();
  /// Waits for the thread, if nobody else does. Afterwards nothing is watched any more.
  void stop();

 private:
  void serve();
  bool look_for_senders();

  Inbox& inbox_;
  const Group group_;
  int64_t seen_ = 0;  // senders, in the order in which they came
  std::mutex mutex_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace epccl_torch
