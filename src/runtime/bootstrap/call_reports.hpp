// What the hub hears of the ranks' collectives: in which one a rank waits for long, and after which one it has left. Ranks that
// cannot get any further, since they do not make the same calls, are found by that.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/bootstrap/member.hpp"

namespace epccl::runtime {

class CallReports {
 public:
  /// A rank waits. What that shows to be wrong, if anything.
  std::optional<std::string> waits(const Member& by, StallReport report);
  /// A rank has left after its collective `last_call`. What that shows to be wrong, if anything.
  std::optional<std::string> left(const Member& by, uint64_t last_call);
  /// Of `ranks`, one that has left; "": none.
  std::string left_of(std::span<const int> ranks) const;
  /// A rank has died: what it waited for counts no more.
  void died(int rank) { waiting_.erase(rank); }

  std::vector<int> all_left() const;

  /// What the others were last known to do, for the error of a rank that has waited too long: "left: 3; rank 2 was last seen
  /// waiting in call #7 (...): ...". "": nothing is known.
  std::string others(int asker) const;

 private:
  struct Waiting {
    Member member;
    StallReport report;
  };
  struct Left {
    Member member;
    uint64_t last_call = 0;
  };
  std::optional<std::string> compare_texts(const Waiting& mine);
  std::optional<std::string> missing_peer(const Waiting& mine) const;
  static std::optional<std::string> compare_ends(const Left& left, const Waiting& waiting);

  std::map<int, Waiting> waiting_;  // by rank
  std::map<int, Left> left_;        // by rank
  // By the number of a call: the first to report it, and what it calls.
  std::map<uint64_t, std::pair<Member, std::string>> calls_;
};

}  // namespace epccl::runtime
