// The thread that makes a communicator's calls on a device's memory, and the turns that these take in the program's streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/host/host_stream.hpp"
#include "runtime/streams/first_calls.hpp"
#include "runtime/streams/hold_watch.hpp"
#include "runtime/streams/turn.hpp"

namespace epccl::runtime {

class DeviceWorker {
 public:
  /// Of the communicator whose calls these are.
  struct Owner {
    std::function<Status()> check;  // for failures from outside while the worker waits for copies; ok: none
    // Around a wait for a stream, in which a call has not begun yet, and the calls of graphs on that stream go first.
    std::function<bool()> give_way;     // false: not in a call
    std::function<Status()> take_back;  // error: the communicator has failed meanwhile
    HoldWatch::Worker::Owner watched;   // the worker's, where streams wait for it
    FirstCalls::Limits first_calls{};
    uint64_t communicator = 0;  // device::HeldStreams::Hold's
    // Whether calls that hold their streams are queued behind these, too.
    bool queues_behind_held = true;
  };

  static Result<std::unique_ptr<DeviceWorker>> open(device::Device& device, Owner owner);
  DeviceWorker(const DeviceWorker&) = delete;
  DeviceWorker& operator=(const DeviceWorker&) = delete;
  /// All that was given to it is through then.
  ~DeviceWorker();

  device::Device& device() const { return device_; }
  /// Runs the calls, one after the other.
  device::HostStream& stream() const { return *stream_; }
  const HoldWatch::WorkerPtr& watched() const { return watched_; }
  uint64_t communicator() const { return owner_.communicator; }
  /// Counts a call; null: its stream waits.
  std::shared_ptr<FirstCalls> first_call(bool is_on_null_stream) const {
    return first_calls_->begin(is_on_null_stream) ? first_calls_ : nullptr;
  }

  /// Whether what a stream is given next waits until the turn ends.
  enum class Holds : uint8_t { stream, nothing };
  /// `stream`: the device's; null: its NULL stream. A stream that is being captured is refused, and nothing queued.
  Result<std::shared_ptr<Turn>> take_turn(void* stream, Holds holds = Holds::stream) const;
  /// A turn that is to be marked and held later: nothing is queued yet.
  Result<std::shared_ptr<Turn>> plan_turn(void* stream, Holds holds = Holds::stream) const;

  /// Waits until what the stream had before the turn is through. To be called before anything else of the call.
  Status begun(const Turn& turn, bool inside = true) const;
  /// Until the device has come to it, or the communicator has failed.
  Status wait_for(const device::QueueEvent& event) const { return wait_for(event, true, nullptr); }

 private:
  DeviceWorker(device::Device& device, Owner owner);
  Status start();
  /// `behind`: begun just behind the event, so that it comes no earlier; null: there is none.
  Status wait_for(const device::QueueEvent& event, bool checks, const StreamHold* behind) const;

  device::Device& device_;
  const Owner owner_;
  const HoldWatch::WorkerPtr watched_;
  const std::shared_ptr<FirstCalls> first_calls_;
  std::atomic<std::thread::id> id_;
  std::unique_ptr<device::HostStream> stream_;  // last: it uses the rest
};

}  // namespace epccl::runtime
