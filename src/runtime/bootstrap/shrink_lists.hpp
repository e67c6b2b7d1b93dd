// What ranks exclude when they shrink a communicator, compared: those who are to meet must exclude the same ranks.
//
// Where no two of them keep each other and differ, they may still wait for each other in a circle (0 excludes 1, which excludes 2, which
// excludes 0): each waits for one that is in a shrink without it. That fails, too.
//
// A rank counts its shrinks with each other rank apart: the n-th of rank a that keeps b belongs to the n-th of b that keeps a, since
// a rank that another one excludes has no part in that shrink (and may be in the next). Shrinks that failed together count no more
// between the ranks that were in it; for a rank that is still to come they do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace epccl::runtime {

class ShrinkLists {
 public:
  explicit ShrinkLists(int ranks) : by_rank_(static_cast<size_t>(ranks)) {}

  /// A shrink that cannot come about.
  struct Verdict {
    int rank = -1;
    uint32_t number = 0;  // of the rank's shrinks, from 0
    std::string text;     // "rank 0 excludes 3, rank 1 excludes 2, 3"
    std::vector<int>
        kept;  // that the first to fail for it were to meet, themselves included: equal for all who fail for it
  };
  /// The next shrink of `rank`, which excludes these others (ascending). Whose shrinks fail for it: those of the ranks that disagree,
  /// and of everybody who is to meet them, or whom one of them keeps and who waits for one of them.
  std::vector<Verdict> add(int rank, std::vector<int> excluded);
  /// `rank` waits no more in its shrink of this number: its time is up.
  void over(int rank, uint32_t number);

 private:
  struct Shrink {
    std::shared_ptr<const std::vector<int>> excluded;
    std::string failure = {};
    size_t failed_with = 0;  // where `failure` is not empty: of failures_
    bool over = false;       // its rank waits no more, and not since it failed
    bool keeps(int rank) const;
  };
  using Place = std::pair<int, uint32_t>;  // rank, number

  Shrink& at(Place place) { return by_rank_[static_cast<size_t>(place.first)][place.second]; }
  const Shrink& at(Place place) const { return by_rank_[static_cast<size_t>(place.first)][place.second]; }
  /// The shrink of `other` that belongs to this one; nothing: it is not there yet.
  std::optional<Place> counterpart(Place mine, int other) const;
  /// Whether `other` has, or is to have, a part in this shrink.
  bool counts(const Shrink& shrink, int other) const;
  void fail(std::vector<Place> failing, const std::string& text, size_t with, std::vector<Verdict>& verdicts);
  /// The shrink that `rank` waits in now.
  std::optional<Place> waiting(int rank) const;
  /// Ranks that wait for each other from this shrink on, the first for the second and the last for the first; empty: there are none.
  std::vector<Place> circle(Place first) const;
  /// Why a shrink fails with others that have failed already, or of others that have come already.
  struct Cause {
    std::string text;
    size_t with;
  };
  std::optional<Cause> cause(Place mine);
  template <typename Visit>
  void for_each_counterpart(Place mine, Visit visit);

  std::vector<std::vector<Shrink>> by_rank_;
  /// Shrinks that failed for one reason.
  struct Failure {
    std::string text;
    std::set<int> ranks;
    std::vector<int> kept;  // ascending
  };
  std::vector<Failure> failures_;
};

}  // namespace epccl::runtime
