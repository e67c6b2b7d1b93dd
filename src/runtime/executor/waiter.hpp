// How a rank waits: spin while there is a core for every rank of the node, then yield, then sleep on the doorbell, the
// network's descriptor and the control line at once. And when it stops waiting: a peer died, the communicator was aborted,
// or nothing has moved for the timeout.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/long_wait.hpp"
#include "base/status.hpp"
#include "device/host/host_stream.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/executor/queued_behind.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

/// How often a thread asks a GPU's driver how far a call is whose end it sees in memory: the driver may keep it for as long as it keeps
/// another thread.
inline constexpr double driver_look_period = 0.1;  // seconds

struct WaitPolicy {
  double spin_seconds = 0;    // 0 where ranks outnumber cores
  double yield_seconds = -1;  // < 0: by what is waited for
  double timeout_seconds = 30;
  double first_warning = 60;   // EPCCL_WAIT_WARNING, seconds
  double most_in_driver = 20;  // EPCCL_CUDA_STUCK, seconds
  bool share_cores = false;    // ranks of the node outnumber its cores
  // Where this rank goes when it begins a call, if it shares cores, and else when it meets another one on its core; -1: it stays.
  int home_core = -1;
  std::vector<int> neighbours =
      {};  // ranks of the node by position, if this one can see their processes; else empty
};

/// Failures of the communicator that come from outside the current call. Any thread may abort.
class FailureMonitor {
 public:
  explicit FailureMonitor(Bootstrap& bootstrap) : bootstrap_(bootstrap) {}

  /// `why` is a static text.
  void abort(const char* why) { aborted_.store(why, std::memory_order_release); }
  /// The failure, once there is one; ok before. Reads the control line's notices without blocking.
  Status check();
  /// As check(), for who needs nobody now: that a rank's process has ended regularly is no failure to that one.
  Status check_while_idle();
  /// As check(), for where a call costs less than a look at the control line: that is read once a millisecond at most, but
  /// always where some milliseconds have passed since: a rank that comes late must not use what others have back.
  Status check_lightly();
  /// A broken connection or a wrong length is often the echo of something that another rank has found out first. Waits a
  /// moment for the control line to tell, once: a communicator fails with what that does not explain. Returns its failure, or else `status`.
  Status explain(Status status);
  /// The work of this rank has failed. To be called before anything goes on that waited for it (streams, queues of peers): explains `status`,
  /// and lets the communicator keep it and tell the others, so that who goes on finds the reason. What the work is to return.
  Status tell(Status status);
  /// The communicator, from its beginning on. Returns what tell() does.
  void listened_to_by(std::function<Status(Status)> listener) { listener_ = std::move(listener); }
  /// Reads the control line's notices without blocking.
  void hear();
  /// What hear() and check() would find, for any thread while the one that calls those cannot; ok: nothing is known.
  Status overhear();
  /// Why one of `ranks` will not come to anything any more, as far as was heard: its process has ended, or (`or_failed`) it has given up,
  /// or the control line is lost, whose end is the death of a rank. "": nothing is known. Any thread.
  std::string lost(std::span<const int> ranks, bool or_failed) const;
  /// Ranks that are known to be lost beside the notices, to somebody else. Any thread.
  void note_lost(std::span<const int> ranks);
  /// All that are: those, and whose process has ended, as far as was heard. Any thread.
  std::set<int> lost_ranks() const;
  int fd() const { return bootstrap_.fd(); }
  Bootstrap& bootstrap() { return bootstrap_; }

 private:
  void note(const Notice& notice);

  Bootstrap& bootstrap_;
  std::function<Status(Status)> listener_;
  std::atomic<const char*> aborted_ = nullptr;
  Status failure_;
  Status ended_;                     // the first rank that did
  bool has_waited_in_vain_ = false;  // explain()
  double next_look_ = 0;             // of check_lightly()
  mutable std::mutex mutex_;
  std::vector<Notice> lost_;  // one at most of a rank and kind
  std::set<int> lost_otherwise_;
};

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
  double idle_since_ = 0;      // 0: something moved since
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
