// The calls of one handle that were started, to be completed later.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "device/host/host_stream.hpp"
#include "runtime/executor/call_progress.hpp"

namespace epccl::ep {

/// Any thread may call anything at any time.
class StartedCalls {
 public:
  using Call = std::shared_ptr<runtime::CallProgress>;
  using State = runtime::CallProgress::State;

  /// An update is waited for, and its error is told, but it is none of the calls that counts() has.
  enum class Counted : uint8_t { yes, no };
  /// A call that is about to be queued in `stream`: whoever runs it must finish() it.
  Call add(const device::HostStream& stream, Counted counted = Counted::yes);

  struct Counts {
    uint64_t started = 0, past_network = 0, over = 0;  // calls, ever
    runtime::CallProgress::Bytes network, node;        // of the first that has begun and is not over
  };
  Counts counts();

  /// Waits until all calls so far have come to `state`. The first error of calls that are over; one that was told by
  /// wait(State::over) is forgotten.
  Status wait(State state);

  /// What `stream` is given from now on waits until all calls so far have come to `state`; null: the calling thread does.
  void hold_back(device::HostStream* stream, State state);

 private:
  struct Started {
    Call call;
    device::HostStream::Watchers watchers;
    Counted counted = Counted::yes;
  };

  static void wait(const std::vector<Started>& calls, State state);
  std::vector<Started> current();
  void forget_what_is_over();

  std::mutex mutex_;
  std::vector<Started> calls_;  // not known to be over
  uint64_t started_ = 0, over_ = 0;
  Status first_error_;
};

}  // namespace epccl::ep
