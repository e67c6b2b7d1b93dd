// Captured calls that a thread of the host makes at each run of their graph, as the eager calls would be made: what kernels cannot do
// by themselves, since messages to other nodes, meetings on the host or sums in pinned memory are part of it.
//
//   graph     ... -> says: call 7 has come -> waits .............................. -> goes on
//   thread                   sees it -> takes the communicator's turn -> makes it -> over
//
// No call of the communicator is under way then but those that wait for their streams, maybe for this very graph.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "base/status.hpp"
#include "runtime/engines/captured_calls.hpp"
#include "runtime/streams/hold_watch.hpp"

namespace epccl::runtime {

/// A call of a graph: what its graph keeps.
struct ReplayedCall {
  uint64_t number = 0;
  std::string text;
  std::function<Status()> work;
  std::shared_ptr<GraphRoom> room;
  std::shared_ptr<const void> counted;  // by the room, so it ends before
};

class ReplayedCalls {
 public:
  struct Owner {
    int rank = 0;
    /// Makes a call in the communicator's order.
    std::function<Status(const std::function<Status()>&)> run;
    /// Tells the communicator of an error that is none of a call.
    std::function<void(const Status&)> failed;
    HoldWatch::Worker::Owner watched;  // the thread's
  };

  ReplayedCalls(CapturedCalls& captured, Owner owner);
  ReplayedCalls(const ReplayedCalls&) = delete;
  ReplayedCalls& operator=(const ReplayedCalls&) = delete;
  /// Waits for the call that is being made. Replays that come yet do not wait.
  ~ReplayedCalls();

  // Any thread.
  /// Puts a call into the graph that `stream` is being captured into. What `work` holds lives as long as the graph.
  Status add(std::string text, std::function<Status()> work, device::Queue& stream);
  /// The same in halves: the call has come, and it is over.
  Result<std::shared_ptr<const ReplayedCall>> begin(std::string text, std::function<Status()> work,
                                                    device::Queue& stream);
  Status end(std::shared_ptr<const ReplayedCall> call, device::Queue& stream);

 private:
  using CallPtr = std::shared_ptr<const ReplayedCall>;

  CallPtr make(std::string text, std::function<Status()> work);
  bool any_left();
  CallPtr find(uint64_t number);
  void watch();
  bool rest(double idle_seconds);
  Status met_another() const;
  Status serve(uint64_t come);

  CapturedCalls& captured_;
  const std::shared_ptr<GraphRoom> room_;
  const Owner owner_;
  const HoldWatch::WorkerPtr watched_;
  uint64_t made_ = 0;  // by this rank, of those that have come
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_number_ = 1;
  std::map<uint64_t, std::weak_ptr<const ReplayedCall>> calls_;
  bool is_ending_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace epccl::runtime
