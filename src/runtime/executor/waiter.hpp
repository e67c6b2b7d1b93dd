// How a rank waits: spin while there is a core for every rank of the node, then yield, then sleep on the doorbell, the
// network's descriptor and the control line at once. And when it stops waiting: a peer died, the communicator was aborted,
// or nothing has moved for the timeout, not counting what this thread was kept from looking.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/long_wait.hpp"
#include "base/status.hpp"
#include "device/host/host_stream.hpp"
#include "runtime/executor/failure_monitor.hpp"
#include "runtime/executor/queued_behind.hpp"
#include "runtime/executor/wait_policy.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

/// How often a thread asks a GPU's driver how far a call is whose end it sees in memory: the driver may keep it for as long as it keeps
/// another thread.
inline constexpr double driver_look_period = 0.1;  // seconds

class Waiter {
 public:
  /// `network` may be null (one node).
  Waiter(int rank, transports::NodeMemory& node, transports::MessageTransport* network,
         FailureMonitor& monitor, const WaitPolicy& policy)
      : rank_(rank), node_(node), network_(network), monitor_(monitor), policy_(policy) {}

  /// What the caller is doing, for reports.
  struct Situation {
    uint64_t sequence = 0;
    std::string call;
    std::string waiting;
    std::vector<int> peers = {};  // StallReport's
  };

  /// Calls from now on give up after this much silence; 0: the communicator's timeout.
  void set_timeout(double seconds) { timeout_seconds_ = seconds > 0 ? seconds : policy_.timeout_seconds; }
  double timeout() const { return timeout_seconds_; }
  /// How long, at most, a call that fails waits for peers' queues that use its buffers: a peer may live, and not go on.
  double peers_timeout() const { return std::min(timeout_seconds_, policy_.most_in_driver); }
  /// A call begins. `has_messages`: this rank sends to other nodes in it, or receives. `behind`: where its stream has not come yet; until it has
  /// the call does not give up.
  void begin(bool has_messages, const QueuedBehind* behind = nullptr);
  /// Starts counting idle time anew. Call whenever something moved.
  void moved() {
    if (measured_since_ != 0) measured();
    idle_since_ = 0;
    gone_neighbour_ = -1;
  }

  /// What an idle thread waits for: only for others is it told to who measures (device/work_times.hpp).
  enum class For : uint8_t { others, own_queues };

  /// Called when nothing moved. Waits a little: spins, yields or sleeps (until what `reason()` says, or the network if it is
  /// pending, wakes it), by how long nothing has moved. Before sleeping it calls `try_again` (true: something moved after
  /// all). `describe` is asked for when the wait gets long. Error: the communicator failed or the timeout passed.
  template <typename Reason, typename TryAgain, typename Describe>
  Status idle(Reason reason, bool network_pending, TryAgain try_again, Describe describe,
              For what = For::others) {
    const bool on_network = network_pending && network_ != nullptr;
    const double now = begin_idle(what);
    const double awake = policy_.spin_seconds + (on_network ? yield_seconds_ : local_yield_seconds_);
    // In the background, where nobody waits for it, time is cheaper than cores.
    const bool background = device::HostStream::runs_unwatched();
    if (now >= next_report_) EPCCL_TRY(report(now, describe()));
    if (now - idle_since_ < awake && !background) return pause(now);
    using Bed = transports::NodeMemory::Bed;
    node_.announce_sleep(reason(), on_network ? Bed::doorbell : Bed::futex);
    const bool again = try_again();
    if (!again && !on_network) node_.sleep(longest_sleep);
    if (!again && on_network && arm(background)) sleep_on_network();
    node_.finish_sleep();
    if (again) moved();
    return monitor_.check();
  }

  /// As idle(), for what happens without waking anybody (a GPU's queue): sleeps for a moment only.
  template <typename Describe>
  Status nap(Describe describe, For what = For::own_queues) {
    const double now = begin_idle(what);
    if (now >= next_report_) EPCCL_TRY(report(now, describe()));
    return rest(now);
  }

  /// As nap(), of one of several that are waited for side by side: its time runs, and another's nap is all the sleep.
  template <typename Describe>
  Status look(Describe describe, For what = For::own_queues) {
    const double now = begin_idle(what);
    return now >= next_report_ ? report(now, describe()) : Status{};
  }

 private:
  Status rest(double now);
  double begin_idle(For what);
  void measured();
  Status pause(double now);
  Status report(double now, const Situation& situation);
  std::string what_others_do(bool briefly) const;
  Status check_alone(double now, const Situation& situation);
  int neighbour_gone(const Situation& situation) const;
  bool awaits_stream(double now);
  bool arm(bool rarely);
  void sleep_on_network();
  void go_home(double now);
  void part_ways(double now);

  // A lost wake-up costs no more than this; failures that only the control line tells are heard of as late.
  static constexpr double longest_sleep = 50e-3;

  const int rank_;
  transports::NodeMemory& node_;
  transports::MessageTransport* network_;
  FailureMonitor& monitor_;
  const WaitPolicy policy_;
  double timeout_seconds_ = policy_.timeout_seconds;
  double yield_seconds_ = 200e-6, local_yield_seconds_ = 200e-6;  // with and without the network
  bool armed_rarely_ = false;
  double idle_since_ = 0;  // 0: something moved since
  double last_look_ = 0;   // at what is waited for
  double stopped_ = 0;  // seconds since then, or since the stream came, in which this thread could not look
  double measured_since_ = 0;  // 0: nobody measures, or it waits for its own queues
  double next_check_ = 0;      // of the control line, while yielding
  double next_report_ = 0;
  LongWait long_wait_{0, 0};
  double next_move_ = 0;        // home
  int gone_neighbour_ = -1;     // was found so at the last report, by position; -1: none was
  device::WordValue stream_{};  // of the call, that has to come; no word: it has
  double stream_came_ = 0;      // or not before
};

}  // namespace epccl::runtime
