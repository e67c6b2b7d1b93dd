// In which order the work of one rank's communicator runs, and whether it still may.
//
//   call     take_ticket() -----> begin(): all earlier tickets are through -> work -> end()
//                                     |  give_way(): it has not begun, but waits for its stream
//   replay                            \-> begin_replay() -> work -> end_replay() -> take_way_back()
//
// A replay, the run of a graph's call, has no ticket: it runs when nothing else does, or when what runs has given way.
//
// What comes next may be behind a stream that waits for something else, and nothing runs then that would hear of a failure. So those who
// wait for their turn listen, and leave the line at one: their tickets are passed by.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "runtime/executor/failure_monitor.hpp"

namespace epccl::runtime {

/// A ticket's turn: how long its work waits for a silent peer, or why it must not run.
struct Admission : Result<double> {
  using Result::Result;
  bool has_come = true;  // false: the ticket has left the line
};

/// Any thread may call anything; give_way() is for the one whose work runs.
class CallOrder {
 public:
  /// `first_warning`: seconds after which who waits for a turn says so; 0: never.
  CallOrder(FailureMonitor& monitor, int rank, double first_warning)
      : monitor_(monitor), rank_(rank), first_warning_(first_warning) {}

  /// How long work that begins from now on waits for a silent peer, if it does not say; <= 0: as configured.
  void set_timeout(double seconds) { timeout_seconds_.store(seconds, std::memory_order_relaxed); }
  double default_timeout() const { return timeout_seconds_.load(std::memory_order_relaxed); }
  /// Of the work with a ticket that is running, if one is.
  std::optional<double> timeout_of_runner() const;
  /// That; else of work that begins.
  double timeout() const { return timeout_of_runner().value_or(default_timeout()); }

  uint64_t take_ticket();
  /// Gives a ticket back: it leaves the line.
  void pass(uint64_t ticket);
  /// The same after `work`, which a communicator that runs nothing any more may do in its turn.
  Status pass(uint64_t ticket, const std::function<Status()>& work);
  /// Waits for the ticket's turn; `timeout_seconds`: how long the work waits for a silent peer, if it is above 0. end() follows where the
  /// turn has come, be it an error or not.
  Admission begin(uint64_t ticket, double timeout_seconds);
  /// take_ticket() and begin() at once.
  Admission begin_next();
  void end();
  /// Of the calling thread's own work: nothing of it runs any more, though its turn ends later.
  void work_is_over();
  /// As begin(); but after an error end_replay() does not follow.
  Result<double> begin_replay();
  void end_replay();
  /// Of the calling thread's work; false: that is not what runs here.
  bool give_way();
  /// Waits until no replay runs. Error: what became of them.
  Status take_way_back();

  /// Keeps the first failure; false: there was one.
  bool keep(const Status& failure);
  /// As keep(), of what no call has found out. Of a revoked communicator none is kept.
  bool keep_from_outside(const Status& failure);
  Status failure() const;
  /// failure(), and where nothing runs that would hear of them itself, those of other ranks. Of a revoked communicator: in progress until
  /// nothing runs.
  Status poll();
  /// As poll(), for who looks after replays; a revoked communicator has failed.
  Status poll_for_replays();
  /// Has the monitor hear of other ranks, where nothing runs that does.
  void listen();
  /// For work that waits: what is replayed meanwhile looks for failures itself.
  Status poll_while_waiting();

  /// Whether all tickets are through, and nothing is replayed.
  bool is_quiet() const;
  /// What `look` returns, when all tickets are through, before another one's turn comes; or when those that are not will not run, since
  /// the communicator has failed.
  template <typename Look>
  auto when_quiet(Look look) {
    std::unique_lock lock(mutex_);
    static_cast<void>(wait(lock, [this] { return nothing_runs(); }));
    return look();
  }
  /// Waits for all tickets. Afterwards no replay begins. Error: the communicator has failed meanwhile, and there are tickets left.
  Status finalize();
  bool finalized() const { return finalized_.load(); }
  void revoke();
  bool revoked() const;
  /// Waits until nothing runs; then work fails with `why`, if with nothing else yet.
  void stop(const char* why);

 private:
  Admission begin(std::unique_lock<std::mutex>& lock, uint64_t ticket, double timeout_seconds);
  Admission admit(std::unique_lock<std::mutex>& lock, uint64_t ticket, double timeout_seconds);
  /// Error: what was heard of, while nothing ran. The caller is not to wait any longer then.
  Status wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& condition);
  Status failed_before() const { return Status(failure_).with_context("the communicator has failed before"); }
  bool somebody_works() const { return running_ || replaying_; }
  void next();
  uint64_t next_ticket();
  bool nothing_runs() const { return !running_ && !replaying_ && now_serving_ == next_ticket_; }

  FailureMonitor& monitor_;
  const int rank_;
  const double first_warning_;
  std::atomic<double> timeout_seconds_{0};
  mutable std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ticket_ = 0, now_serving_ = 0;
  std::vector<uint64_t> left_;  // the line, before their turn; with room for all
  bool running_ = false, replaying_ = false, revoked_ = false;
  bool is_over_ = false;                 // what runs, but for the end of its turn
  std::atomic<bool> finalized_ = false;  // set with the mutex held
  int ways_given_ = 0;                   // > 0: what is running waits for a stream, and has not begun
  std::thread::id runner_;               // of what is running
  double runner_timeout_ = 0;
  Status failure_;
};

}  // namespace epccl::runtime
