// What a communicator hears of failures from outside: an abort, ranks that died, failed or disagree.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "runtime/bootstrap/bootstrap.hpp"

namespace epccl::runtime {

/// Failures of the communicator that come from outside the current call.
///
/// What reads the control line (check(), check_while_idle(), check_lightly(), explain(), tell(), hear()) is for one thread at a time: the one
/// whose work runs, or, while none runs, whoever holds the lock of the communicator's CallOrder. abort(), overhear(), lost(), note_lost() and
/// lost_ranks() are for any thread.
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
  /// or the control line is lost, whose end is the death of a rank. "": nothing is known.
  std::string lost(std::span<const int> ranks, bool or_failed) const;
  /// Ranks that are known to be lost beside the notices, to somebody else.
  void note_lost(std::span<const int> ranks);
  /// All that are: those, and whose process has ended, as far as was heard.
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

}  // namespace epccl::runtime
