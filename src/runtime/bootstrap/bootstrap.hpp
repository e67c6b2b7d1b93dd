// Joining a communicator, the collective exchange used to set everything else up, and the control line that stays open
// afterwards: it is how ranks learn at once that another died, gave up, or disagrees with them.
//
//   rank 0 ----\                 hub: one thread in the process that made the id. Star-shaped: one connection a rank.
//   rank 1 -----+---- hub        Joining is a mutual challenge-response over the id's secret; who fails it is refused,
//   rank n ----/                 logged, and has no effect on the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/interrupt.hpp"
#include "base/status.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::runtime {

using Blob = std::vector<std::byte>;

/// What a rank is doing, told to the hub when it has been waiting for a while. The hub compares the ranks' reports: two
/// with the same sequence number and different `call` text disagree, and everybody is told (Notice::mismatch).
struct StallReport {
  uint64_t sequence = 0;  // number of the collective on this communicator
  std::string call;       // "alltoall count 4 float32": equal text on every rank that makes the same call
  std::string waiting;    // for people: "rank 3 to send 4096 bytes"
  /// Of messages: the ranks that have yet to send or take one. None of them can have left; a message that is still on its way may be of one
  /// that has, so they are named only when nothing has come for long.
  std::vector<int> peers = {};
};

/// Something every rank must hear of.
struct Notice {
  enum class Kind : uint8_t {
    died,      // `rank`'s connection closed without leave()
    failed,    // `rank` reported an error or aborted
    mismatch,  // ranks disagree; `text` names both and both values
    // `rank`'s process ended regularly without leave(): a failure to who is in a call, or begins one. Blocking calls here go on
    // unless they need that rank.
    ended,
    // The hub's process died. `rank`: the first of its ranks that had not left, -1: there was none. A notice `died` for each other of these
    // follows.
    hub_lost,
  };
  Kind kind = Kind::died;
  int rank = -1;
  std::string text;  // a sentence with rank, host and pid
  Reason reason = Reason::none;
};

/// Why a shrink cannot come about.
struct ShrinkVerdict {
  std::string text;  // which ranks exclude what
  std::vector<int>
      kept;  // ascending: the ranks that any of those kept who disagree, the same for all of them
};

struct JoinOptions {
  uint64_t session = 0;  // which group of the rendezvous; that of an id has only this one
  std::shared_ptr<Interrupt>
      interrupt;  // ends joining and later blocking calls with an error; null: nothing does
  /// Asked now and then while joining: an error ends it, and is its error. `last`: joining has failed otherwise.
  std::function<Status(bool last)> check = {};
  /// Of a split or shrink: what the ranks are in the parent, for messages.
  std::vector<int> ranks_of_parent = {};
  /// Told when nobody is at the address that the ranks were to meet at; may be empty. `at_loopback`: it is this machine's, whosever it was
  /// meant to be.
  std::function<void(bool at_loopback)> nobody_there = {};
};

/// One thread at a time, except report_failure(), report_stall(), publish(), poll_notice() and leave(), which any thread may call while
/// another one blocks. A blocking call fails at once when a notice arrives (but `ended`), with the notice's text; the notice itself
/// is still there for poll_notice().
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// Joins as `rank` of `ranks`, within `timeout` seconds; blocks until all have joined. Errors name what is missing
  /// ("2 of 8 ranks had joined after 30 s; missing: 3, 5") or wrong (rank taken twice, different rank counts, bad secret,
  /// nobody listening at address:port).
  static Result<std::unique_ptr<Bootstrap>> join(const UniqueId& id, int rank, int ranks, double timeout,
                                                 JoinOptions options = {});

  /// Collective: every rank's blob, in rank order. Sizes may differ. All ranks call in the same order.
  virtual Result<std::vector<Blob>> allgather(std::span<const std::byte> mine) = 0;
  /// Collective.
  virtual Status barrier() = 0;

  /// Leaves a blob (a transport's address) under `key` at the hub, and fetches other ranks' blobs when needed. A lookup of
  /// what is not yet published waits for it, up to the timeout.
  virtual Status publish(const std::string& key, std::span<const std::byte> blob) = 0;
  virtual Result<Blob> lookup(int rank, const std::string& key) = 0;

  /// Readable when poll_notice() may have something.
  virtual int fd() const = 0;
  /// The next notice, if one has arrived. Never blocks.
  virtual std::optional<Notice> poll_notice() = 0;

  /// Tells everybody that this rank gives up (they get Notice::failed with the text and the reason). Never blocks for long.
  virtual void report_failure(const Status& why) = 0;
  void report_failure(const std::string& text) { report_failure(Status(Code::remote_error, text)); }
  /// Tells the hub what this rank waits for. Never blocks for long.
  virtual void report_stall(const StallReport& report) = 0;

  /// Tells the hub which ranks (ascending) this one's next shrink excludes, for it to compare the lists of those who are to meet. Never
  /// blocks for long. The shrink's number, for shrink_verdict().
  virtual uint32_t announce_shrink(std::span<const int> excluded) = 0;
  /// Nothing: nothing is known against that shrink. `ask`: asks the hub, for a second at most; else never blocks.
  virtual std::optional<ShrinkVerdict> shrink_verdict(uint32_t number, bool ask) = 0;

  /// Of `ranks`, one that has left, with a word on it; "": none, as far as is known: the first time it asks the hub to tell from then on. Never
  /// blocks.
  virtual std::string who_left(std::span<const int> /*ranks*/) { return ""; }

  /// Whether the hub has ended in order, since its ranks have left. From then on nobody tells of other ranks' ends. Any thread.
  virtual bool is_alone() { return false; }

  /// What the other ranks were last known to do ("left: 3; rank 2 was last seen waiting in call #7 (...): ..."), for the
  /// error of a rank that has waited too long. Asks the hub, for two seconds at most, or `briefly`; "" when nothing is known.
  virtual std::string describe_others(bool /*briefly*/ = false) { return ""; }

  /// The ranks that have died or left, as far as the hub knows, which is asked for half a second at most; where it has ended, as far as this
  /// rank knows (deaths are notices).
  virtual std::vector<int> lost_ranks() { return {}; }

  /// A regular goodbye: no Notice::died for this rank. The destructor without it counts as a death, unless the process ends regularly. `last_call`: the number of
  /// this rank's last collective (StallReport::sequence); whoever waits in a later one then, or comes to wait in one, cannot end it,
  /// so all get a Notice::mismatch. any_call: nobody does.
  virtual void leave(uint64_t last_call) noexcept = 0;
  static constexpr uint64_t any_call = UINT64_MAX;
};

}  // namespace epccl::runtime
