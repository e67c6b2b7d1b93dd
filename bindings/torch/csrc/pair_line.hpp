// The communicator of one direction between two ranks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "meeting.hpp"

namespace epccl_torch {

/// Made when first used: messages of different pairs, and of the two directions of a pair, must not wait for each other.
class PairLine {
 public:
  /// What both ends agree on; `meeting.rank` 0 sends, 1 receives.
  explicit PairLine(Meeting meeting);
  PairLine(const PairLine&) = delete;
  PairLine& operator=(const PairLine&) = delete;

  /// Blocks until both are there. Of one thread. Throws when that failed, or this was aborted.
  epcclComm_t open();
  /// Ends what is under way, with an error, also a wait for the other rank (which looks here now and then). Any thread.
  void abort() noexcept;
  const std::string& name() const { return meeting_.name; }
  /// Of calls that begin now.
  double timeout_seconds() const { return in_seconds(*meeting_.timeout); }

 private:
  Meeting meeting_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;
};

/// What goes before the bytes of a message.
struct MessageHeader {
  uint64_t bytes;
  int64_t tag;
};

}  // namespace epccl_torch
