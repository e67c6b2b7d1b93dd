// A call's place in a stream of the program's.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/host/host_stream.hpp"
#include "runtime/executor/queued_behind.hpp"
#include "runtime/streams/first_calls.hpp"
#include "runtime/streams/stream_hold.hpp"

namespace epccl::runtime {

class DeviceWorker;

/// A place in the user's stream: what was queued before it was marked is through when begun() says so, and what is queued after
/// it was held runs when the turn ends, also if nothing came of the call; unless whoever issued the call waits for that end instead. Calls of
/// several communicators may share one. One that was made by itself has begun: that of a call in a graph, which knows when it is over.
class Turn {
 public:
  Turn() = default;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn();
  /// Before it is held: a call of this communicator, or of another one, shares it.
  void share_with(const DeviceWorker& worker);
  /// Error: the stream is being captured.
  Status mark();
  /// Holds the stream, unless the turn is waited for.
  Status hold();

  /// Of one call that queues of the device make by themselves, after hold(): lets it be queued behind what the stream had. Where the stream
  /// does not wait for it only if nothing that the stream had may be waiting for a thread.
  Status queue_behind();
  /// How, when the call is made; null: it begins when begun() says so, as where a stream that is held may be waiting for threads of others.
  /// To be asked once a call: the answer may change.
  const QueuedBehind* behind() const;

  /// For who issued the call: what it takes to wait for it. May live longer.
  struct Wait {
    std::shared_ptr<FirstCalls> as;  // null: the stream waits
    std::shared_ptr<AwaitedCall> call;
    double longest = 0;  // FirstCalls'
    std::vector<device::HostStream::Watchers> workers;
  };
  Wait wait() const { return {waited_for_, call_, longest_wait_, workers_}; }
  /// All of the call is queued: the stream goes on behind it.
  Status go_on_behind();
  /// To wait was in vain: now the stream waits.
  Status hold_after_all();

 private:
  friend class DeviceWorker;
  bool wait_for_threads() const;

  device::Device* device_ = nullptr;
  std::unique_ptr<device::Queue> users_;
  std::unique_ptr<device::QueueEvent> before_;
  std::unique_ptr<StreamHold> hold_;  // null: it holds nothing
  bool is_on_null_stream_ = false;
  std::shared_ptr<FirstCalls> waited_for_;
  double longest_wait_ = 0;
  std::unique_ptr<device::QueueEvent> end_;  // of a call that is queued behind
  std::optional<QueuedBehind> behind_;
  bool queues_behind_held_ = false;
  std::shared_ptr<AwaitedCall> call_ = std::make_shared<AwaitedCall>();
  std::vector<device::HostStream::Watchers> workers_;  // each communicator's once
};

}  // namespace epccl::runtime
