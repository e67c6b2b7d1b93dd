// Descriptors of shared memory for ranks of the node that may not open them through /proc: in another user namespace, with fewer
// capabilities, where a process may not be looked into, or without a /proc. Only where a rank has found that does its node have these.
//
//   owner: a thread                                  peer
//   listens at a name made of the node's token
//                                              <---  connects, and looks whether who listens is that very process
//   looks whether that is its user,            <---  the node's secret, and which window
//   and knows the secret                       --->  the descriptor (SCM_RIGHTS), or why there is none
//
// Who connects and is silent for a second is hung up on, and asks again: it may have been off its core.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transports/shm/node_segment.hpp"

namespace epccl::transports {

class HandOver {
 public:
  /// Hands out this process's windows, and the node's segment where that is this one's, as the rank at `local`, until it is destroyed.
  static Result<std::unique_ptr<HandOver>> start(const NodeSegment& segment, int local);
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;
  ~HandOver();

 private:
  struct Asker {
    GuardedFd socket;
    double until = 0;
    bool has_spoken = false;
  };

  HandOver(const SegmentHandle& node, UniqueFd segment) : node_(node), segment_(std::move(segment)) {}
  Status listen(int local);
  void run() const;
  void admit(std::vector<Asker>& askers) const;
  void serve(int peer) const;

  const SegmentHandle node_;
  // A forked child that had them would let peers wait for an owner that is gone.
  const GuardedFd segment_;  // none: another rank's
  GuardedFd listener_, end_;
  std::thread thread_;  // last: it uses the rest
};

/// With an owner that is silent.
struct Patience {
  double seconds = 10;
  std::function<Status()> check = {};  // every few milliseconds: an error ends it, and is its error
};

/// What the rank at `local` of that node has.
Result<UniqueFd> ask_for_window(const SegmentHandle& node, int local, const device::WindowRef& window,
                                const Patience& patience = {});

}  // namespace epccl::transports
