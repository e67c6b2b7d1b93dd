// What the hub knows of one communicator: who has joined, what was exchanged, who is gone. No sockets and no
// clock in here: frames come in, frames go out through `send`.
//
//   absent --admit--> present --leave, end--> left
//                        |--disconnected--> dead         (everybody hears of it)
//
// Used by the hub's thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/bootstrap/call_reports.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/shrink_lists.hpp"
#include "runtime/bootstrap/wire.hpp"

namespace epccl::runtime {

class Roster {
 public:
  using Frame = std::shared_ptr<const wire::Bytes>;  // one frame, shared by all queues it stands in
  using Send = std::function<void(int rank, const Frame&)>;

  /// `hub`: the hub's own process, which is no rank.
  Roster(Member hub, Send send) : hub_(std::move(hub)), send_(std::move(send)) {}

  /// Takes a rank in, or says why not. The last one to come completes the group.
  Status admit(const Member& member, int ranks);
  /// A frame from a present rank. An error is a breach of the protocol: the caller drops the connection.
  Status receive(int rank, wire::Type type, wire::Reader& body);
  /// Not all can come, and why. Without effect on a complete group, and on one that nobody has come to.
  void give_up(const std::string& why);
  /// The connection of a rank is gone; a death unless it has left.
  void disconnected(int rank, const Status& why);
  /// The hub's process ends: ranks in this process die with it, the others are told that the hub may go.
  void close(const std::string& why = "");

  /// Whether a rank lives in the hub's process.
  bool is_of_hub(int rank) const;
  bool has_left(int rank) const;
  /// The ranks of the hub's process have left, others are still here, and nothing has gone wrong.
  bool others_are_left() const;
  /// All have come and all are gone.
  bool finished() const { return complete_ && present_ == 0; }
  /// They will never all have come: a notice was given before.
  bool given_up() const { return first_notice_.has_value() && !complete_; }
  /// Whether every rank has come, or has been told that it comes too late: nobody is to come any more.
  bool all_have_come() const { return came_ > 0 && came_ == ranks(); }
  /// Nobody is here any more, whether or not all had come.
  bool deserted() const { return present_ == 0; }

 private:
  enum class State : uint8_t { absent, present, left, dead };
  struct Slot {
    State state = State::absent;
    Member member;
    bool came = false;  // let in or not
    // The allgather or barrier this rank has come to and that is not complete.
    bool gathering = false;
    uint32_t gather_number = 0;
    wire::GatherKind gather_kind{};
    wire::Bytes gather_blob;
    bool watches = false;                      // who leaves
    uint64_t last_call = Bootstrap::any_call;  // of one that has left
  };
  struct Lookup {
    int asker = -1;
    uint32_t request = 0;
  };
  using Key = std::pair<int, std::string>;  // publishing rank, name

  Slot& slot(int rank) { return slots_[static_cast<size_t>(rank)]; }
  int ranks() const { return static_cast<int>(slots_.size()); }
  bool holds_hub(const Member& member) const { return member.process == hub_.process; }

  void complete();
  Status gather(int rank, wire::Reader& body);
  void finish_gather();
  Status publish(int rank, wire::Reader& body);
  Status lookup(int rank, wire::Reader& body);
  Status stall(int rank, wire::Reader& body);
  Status failure(int rank, wire::Reader& body);
  Status question(int rank, wire::Reader& body);
  Status shrink(int rank, wire::Reader& body);
  Status shrink_over(int rank, wire::Reader& body);
  Status leave(int rank, wire::Reader& body);
  Status end(int rank, wire::Reader& body);
  Status watch(int rank, wire::Reader& body);
  wire::Bytes may_close() const;
  void depart(int rank, uint64_t last_call);
  void answer_lookups_of(int publisher);

  void put_missing(wire::Writer& frame) const;
  std::vector<int> lost() const;
  void broadcast(wire::Bytes frame, int except = -1);
  void notify(Notice notice, int except = -1);

  const Member hub_;
  Send send_;
  std::vector<Slot> slots_;
  int joined_ = 0;  // ever
  int came_ = 0;
  int present_ = 0;  // now
  int left_ = 0;
  bool complete_ = false;
  int gathering_ = 0;
  int first_gathering_ = -1;
  std::map<Key, wire::Bytes> published_;
  size_t published_bytes_ = 0;
  std::map<Key, std::vector<Lookup>> waiting_;
  CallReports calls_;
  std::optional<Notice> first_notice_;
  std::optional<ShrinkLists> shrinks_;  // from the first on
  int deaths_told_ = 0, ends_told_ = 0, failures_told_ = 0;
};

}  // namespace epccl::runtime
