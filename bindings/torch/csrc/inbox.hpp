// Receives of a process group, of one rank or of any, and what came before them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pair_line.hpp"
#include "work.hpp"

namespace epccl_torch {

/// A message goes to the first receive that was posted for its tag and for its rank or any; a receive takes, of the messages that
/// wait for it, the one that came first. Messages of one rank and tag are taken in the order in which they were sent.
///
/// Sources are the other ranks, served by one thread each (ReceiveChannel), which asks here whether its messages are wanted, and this rank
/// itself, whose messages are copied as they are sent.
class Inbox {
 public:
  static constexpr int any = -1;
  using Clock = std::chrono::steady_clock;

  struct Receive {
    CallPtr call;
    void* data = nullptr;
    uint64_t bytes = 0;
    int tag = 0, source = any;  // a rank, or any
    Clock::time_point since = Clock::now();
    std::chrono::milliseconds timeout{0};  // the group's when it was posted
  };

  /// `timeout`: of receives. `where` names the group, for messages.
  Inbox(int ranks, int rank, SharedTimeout timeout, std::string where);

  /// Completes the call at once where the message is here.
  void post(Receive receive);
  /// A message of this rank to itself. `data` is free afterwards.
  void send_own(const void* data, uint64_t bytes, int tag);
  /// Fails what waits, and what comes later.
  void end(const std::exception_ptr& why);

  // For the thread that serves a source.
  /// Blocks until a receive may be for a message of this source. False: leave() was called, with true.
  bool wanted(int source);
  /// How long it may take until the message comes: infinite where it is only one of those that may come (AnySource looks after the
  /// receives then); nothing: no receive waits any more.
  enum class Patience { none, timeout, endless };
  Patience begin_wait(int source);
  /// Where the message goes whose header has come.
  struct Early {
    int source, tag;
    std::vector<std::byte> bytes;
    bool whole = false;
    Receive taker = {};  // without a call: nobody yet
  };
  struct Landing {
    void* data = nullptr;
    Receive receive = {};  // with a call, or early is set; both where the sizes differ
    std::shared_ptr<Early> early;
  };
  Landing land(int source, const MessageHeader& header);
  /// It is there.
  void landed(int source, const Landing& landing);
  /// It will never be: its receive fails.
  void lost(int source, const Landing& landing, const std::exception_ptr& why);
  /// Nothing comes from this source any more.
  void fail(int source, const std::exception_ptr& why);

  /// After end(), the source's thread is to end, too. Returns whether it waits for another rank, which has to be ended then; a message
  /// that is coming is waited for first.
  bool leave(int source);
  void release(int source);

  // For AnySource.
  /// Blocks until a receive needs looking after; false: after stop_watching().
  bool watch(std::chrono::milliseconds pause);
  void stop_watching();
  /// Whether receives wait for any rank.
  bool any_waiting();
  void fail_any(const std::exception_ptr& why);
  /// Fails receives whose time is over. Returns the sources whose threads wait for ever for such a one.
  std::vector<int> expire();

 private:
  struct Source {
    enum class Phase { idle, opening, waiting, moving };
    std::condition_variable changed;
    Phase phase = Phase::idle;
    bool endless = false, over = false;
    std::exception_ptr failure;
  };
  using Posted = std::list<Receive>;

  Source& at(int source) { return *sources_[static_cast<size_t>(source)]; }
  bool is_wanted(int source) const;
  bool asked_for(int source) const;
  bool needs_watch() const;
  std::exception_ptr nobody_left() const;
  std::shared_ptr<Early> take_early(const Receive& receive);
  template <typename Which>
  void fail_posted(std::unique_lock<std::mutex>& lock, Which which, const std::exception_ptr& why);
  void deliver(const Receive& receive, const Early& early) const;
  std::exception_ptr too_late(const Receive& receive) const;

  const int rank_;
  const SharedTimeout timeout_;
  const std::string where_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Source>> sources_;
  Posted posted_;
  std::map<int, std::deque<std::shared_ptr<Early>>> early_;  // that nobody has taken, by tag, as they came
  std::exception_ptr ended_;
  Clock::time_point last_arrival_ = Clock::now();
  std::condition_variable watch_;
  bool watching_ = true;
};

}  // namespace epccl_torch
