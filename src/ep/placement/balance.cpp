#include "ep/placement/balance.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

namespace epccl::ep {
namespace {

// Of thousands of slots; which takes seconds.
constexpr size_t changes_looked_at = 1 << 30;

/// Experts by load, the largest first.
std::vector<int> by_load(std::span<const double> load) {
  std::vector<int> experts(load.size());
  std::iota(experts.begin(), experts.end(), 0);
  std::ranges::stable_sort(
      experts, [&](int a, int b) { return load[static_cast<size_t>(a)] > load[static_cast<size_t>(b)]; });
  return experts;
}

// Jefferson's method of apportionment: the next copy is of the expert whose copies have most to do.
std::vector<int> numbers_of_copies(std::span<const double> load, int ranks, size_t slots) {
  using Candidate = std::tuple<double, int>;  // share, the lower number first
  std::vector<int> copies(load.size(), 1);
  std::priority_queue<Candidate> largest;
  const auto offer = [&](int expert) {
    const auto at = static_cast<size_t>(expert);
    if (copies[at] < ranks && load[at] > 0) largest.emplace(load[at] / copies[at], -expert);
  };
  for (size_t expert = 0; expert < load.size(); ++expert) offer(static_cast<int>(expert));
  for (size_t free = slots - load.size(); free > 0 && !largest.empty(); --free) {
    const int expert = -std::get<int>(largest.top());
    largest.pop();
    ++copies[static_cast<size_t>(expert)];
    offer(expert);
  }
  return copies;
}

/// The best of the changes that it is shown.
class Step {
 public:
  Step(const Arrangement& arrangement, int fullest, uint64_t moves_left)
      : arrangement_(arrangement), now_(arrangement.load_of(fullest)), moves_left_(moves_left) {}

  /// Whether a change that leaves some rank with so much may be better than the best so far: each moves something.
  bool may_be_better(double load) const { return now_ - load > worth_ && now_ - load > smallest(); }

  void consider(std::initializer_list<Change> changes) {
    const Arrangement::Outcome outcome = arrangement_.outcome_of({changes.begin(), changes.size()});
    if (outcome.moves > 0 && static_cast<uint64_t>(outcome.moves) > moves_left_) return;
    const double gain = now_ - outcome.fullest;
    if (gain <= smallest()) return;
    const double worth = gain / static_cast<double>(std::max<int64_t>(1, outcome.moves));
    if (worth <= worth_) return;
    worth_ = worth;
    std::ranges::copy(changes, best_.begin());
    count_ = changes.size();
  }

  std::span<const Change> best() const { return {best_.data(), count_}; }

 private:
  // Less is what rounding may make of nothing.
  double smallest() const { return 1e-9 * now_; }

  const Arrangement& arrangement_;
  double now_, worth_ = 0;
  uint64_t moves_left_;
  std::array<Change, most_changes> best_;
  size_t count_ = 0;
};

/// What can be done with an expert of the fullest rank and another rank, which has none of it. Most comes to nothing, which the two ranks'
/// loads show.
void consider_rank(Step& step, const Arrangement& it, int fullest, int expert, int rank) {
  const double here = it.load_of(fullest), there = it.load_of(rank), share = it.share(expert);
  const double shared = share * it.copies(expert) / (it.copies(expert) + 1);
  const double sharing = here - share + shared;  // where others have a copy more
  if (it.has_room(rank)) {
    if (step.may_be_better(std::max(here - share, there + share)))
      step.consider({{fullest, expert, -1}, {rank, -1, expert}});
    if (step.may_be_better(std::max(sharing, there + shared))) step.consider({{rank, -1, expert}});
  }
  for (const int other : it.experts_of(rank)) {
    const double its = it.share(other);
    if (its < share && it.may_get(fullest, other) &&
        step.may_be_better(std::max(here - share + its, there - its + share)))
      step.consider({{fullest, expert, other}, {rank, other, expert}});
    if (it.copies(other) > 1 && step.may_be_better(std::max(sharing, there - its + shared)))
      step.consider({{rank, other, expert}});
  }
}

/// What can be done with an expert of the fullest rank of which others have copies, too.
void consider_dropping(Step& step, const Arrangement& it, int fullest, int expert) {
  step.consider({{fullest, expert, -1}});
  const double rest = it.load_of(fullest) - it.share(expert);
  for (int other = 0; other < it.experts(); ++other)
    if (it.may_get(fullest, other) &&
        step.may_be_better(rest + it.share(other) * it.copies(other) / (it.copies(other) + 1)))
      step.consider({{fullest, expert, other}});
}

}  // namespace

void arrange(Arrangement& empty, std::span<const double> load) {
  const int ranks = empty.ranks();
  const std::vector<int> copies =
      numbers_of_copies(load, ranks, static_cast<size_t>(ranks) * empty.slots_per_rank());
  const auto share = [&](int expert) {
    return load[static_cast<size_t>(expert)] / copies[static_cast<size_t>(expert)];
  };
  std::vector<int> order = by_load(load);
  std::ranges::stable_sort(order, [&](int a, int b) { return share(a) > share(b); });
  std::vector<double> work(static_cast<size_t>(ranks));
  for (const int expert : order)
    for (int copy = 0; copy < copies[static_cast<size_t>(expert)]; ++copy) {
      std::optional<int> least;
      const auto key = [&](int rank) {
        return std::pair(work[static_cast<size_t>(rank)], empty.experts_of(rank).size());
      };
      for (int rank = 0; rank < ranks; ++rank)
        if (empty.has_room(rank) && empty.may_get(rank, expert) && (!least || key(rank) < key(*least)))
          least = rank;
      // Those with room may all have it. The first copy always has a place: all together are no more than the slots.
      if (!least) break;
      empty.put(*least, expert);
      work[static_cast<size_t>(*least)] += share(expert);
    }
}

void add_missing(Arrangement& arrangement, std::span<const double> load) {
  for (const int expert : by_load(load)) {
    if (arrangement.copies(expert) > 0) continue;
    // Nothing has to go, the rank has least then, and as few as can be.
    std::optional<std::tuple<bool, double, size_t>> least;
    Change best;
    const auto offer = [&](Change change, double load_then) {
      const std::tuple key(change.loses >= 0, load_then, arrangement.experts_of(change.rank).size());
      if (least && *least <= key) return;
      least = key;
      best = change;
    };
    for (int rank = 0; rank < arrangement.ranks(); ++rank) {
      if (!arrangement.may_get(rank, expert)) continue;
      const double then = arrangement.load_of(rank) + load[static_cast<size_t>(expert)];
      if (arrangement.has_room(rank))
        offer({rank, -1, expert}, then);
      else
        for (const int other : arrangement.experts_of(rank))
          if (arrangement.copies(other) > 1) offer({rank, other, expert}, then - arrangement.share(other));
    }
    arrangement.apply({&best, 1});
  }
}

void improve(Arrangement& arrangement, double tolerance, uint64_t max_moves) {
  const uint64_t first = arrangement.moves();
  const uint64_t last = max_moves > UINT64_MAX - first ? UINT64_MAX : first + max_moves;
  // Each step lets the loads, the largest first, come earlier in the order of words, so that they end.
  const size_t slots = static_cast<size_t>(arrangement.ranks()) * arrangement.slots_per_rank();
  const size_t most = std::min(8 * slots, 64 + changes_looked_at / (slots * arrangement.slots_per_rank()));
  for (size_t steps = 0; steps < most; ++steps) {
    const int fullest = arrangement.fullest();
    if (arrangement.load_of(fullest) <= (1 + tolerance) * arrangement.mean()) return;
    Step step(arrangement, fullest, last - std::min(last, arrangement.moves()));
    for (const int expert : arrangement.experts_of(fullest)) {
      for (int rank = 0; rank < arrangement.ranks(); ++rank)
        if (arrangement.may_get(rank, expert)) consider_rank(step, arrangement, fullest, expert, rank);
      if (arrangement.copies(expert) > 1) consider_dropping(step, arrangement, fullest, expert);
    }
    if (step.best().empty()) return;
    arrangement.apply(step.best());
  }
}

}  // namespace epccl::ep
