// How far one call is, for those who did not wait for it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/status.hpp"
#include "runtime/executor/compiled_plan.hpp"

namespace epccl::runtime {

/// One thread runs the call and tells; any thread asks.
class CallProgress {
 public:
  enum class State : int {
    queued,   // other calls of the communicator, or other work of its stream, come first
    network,  // runs
    node,     // runs, and has nothing left to send to or receive from other nodes
    over,
  };

  // The executor tells:
  void begin(const CompiledPlan& plan);
  void completed(const plan::Step& step);
  // Of a call without a plan, which uses no network:
  void begin_on_node(uint64_t bytes);
  void completed_on_node();
  /// Everything that was sent so far is on its way without this rank's help.
  void drained();
  /// Whoever made the call tells how it ended, also where it never began.
  void finish(Status status);

  struct Bytes {
    uint64_t done = 0, total = 0;
  };
  State state() const { return static_cast<State>(state_.load(std::memory_order_acquire)); }
  /// Waits until the call has come as far as `state`, or is over.
  void wait(State state) const;
  /// Of its messages to and from other nodes.
  Bytes network() const { return bytes_[0].get(); }
  /// Of what it writes inside the node: rows in their places. What is packed or added up to be sent counts as the message.
  Bytes node() const { return bytes_[1].get(); }
  /// How it ended; ok before it is over.
  Status status() const;

 private:
  struct Counter {
    std::atomic<uint64_t> done = 0, total = 0;

    Bytes get() const {
      return {done.load(std::memory_order_relaxed), total.load(std::memory_order_relaxed)};
    }
    // One thread writes.
    void add(uint64_t bytes) {
      done.store(done.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    }
  };

  void set(State state);

  std::atomic<int> state_ = static_cast<int>(State::queued);
  std::array<Counter, 2> bytes_;
  size_t messages_left_ = 0;
  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace epccl::runtime
