// Ranks that sleep whenever nothing moves, and wake for nothing but what they have announced and for messages that they have asked for: every
// plan ends all the same, whoever comes late. Where one does not, its ranks sleep until their longest sleep is over.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include "../../plan/shapes.hpp"
#include "algorithms/alltoall/counts.hpp"
#include "algorithms/collectives/collective.hpp"
#include "algorithms/tables/table_exchange.hpp"
#include "runtime/executor/node_calls.hpp"
#include "runtime/executor/pending_waits.hpp"
#include "runtime/executor/ready_steps.hpp"

namespace epccl::runtime {
namespace {

using namespace algorithms;  // NOLINT: their builders are what is run
using plan::Kind;
using topology::Cluster;

constexpr uint64_t sequence = 1;

/// What ranks tell each other while they run a plan; what they copy does not matter here.
class Sleepers {
 public:
  Sleepers(const plan::Plan& plan, std::mt19937_64& random) : cluster_(plan.cluster), random_(random) {
    for (const plan::RankPlan& rank : plan.ranks)
      ranks_.emplace_back(compile(rank, cluster_), cluster_.local_size(cluster_.node_of(rank.rank)));
  }

  /// Everybody runs until it sleeps; then the next one comes. False: those that are not through all sleep.
  bool run() {
    std::vector<int> late(ranks_.size());
    for (size_t i = 0; i < late.size(); ++i) late[i] = static_cast<int>(i);
    std::ranges::shuffle(late, random_);
    while (!awake_.empty() || !late.empty()) {
      if (awake_.empty()) {
        begin(late.back());
        late.pop_back();
        continue;
      }
      const size_t chosen = random_() % awake_.size();
      const int rank = awake_[chosen];
      if (sweep(rank) && random_() % 2 == 0) continue;  // another one goes on meanwhile
      while (sweep(rank)) {
      }
      std::erase(awake_, rank);
      Rank& it = ranks_[static_cast<size_t>(rank)];
      it.reasons = it.waits.reasons(sequence);
    }
    return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.steps.all_complete(); });
  }

  std::string stuck() const {
    std::string text;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      text +=
          fmt::format("rank {}{} sleeps for", rank, ranks_[rank].steps.all_complete() ? " (through)" : "");
      for (const transports::SleepFor& reason : ranks_[rank].reasons.all())
        text += fmt::format(" {}>={} of {:b}", reason.slot, reason.value & 0xffffff, reason.locals[0]);
      text += "\n";
    }
    return text;
  }

 private:
  struct Rank {
    Rank(CompiledPlan compiled, int local_size) : plan(std::move(compiled)), waits(local_size) {}
    CompiledPlan plan;
    ReadySteps steps;
    PendingWaits waits;
    std::vector<uint32_t> receives;
    std::array<uint64_t, transports::node_counters> counters{};
    transports::SleepReasons reasons;
  };
  using Message = std::array<int64_t, 3>;  // from, to, tag

  void begin(int rank) {
    Rank& it = ranks_[static_cast<size_t>(rank)];
    it.steps.begin(it.plan);
    it.waits.begin();
    awake_.push_back(rank);
  }

  bool sweep(int rank) {
    Rank& it = ranks_[static_cast<size_t>(rank)];
    bool moved = it.steps.start_all([&](uint32_t step) { start(rank, step); }, [] { return true; });
    moved |= it.waits.poll(
        [&](const PendingWaits::Wait& wait) { return reached(rank, wait.local, wait.slot, wait.value); },
        [&](uint32_t step) { complete(it, step); });
    for (const uint32_t step : std::exchange(it.receives, {})) {
      const bool came = sent_.contains(message(rank, it.plan.steps[step].step));
      came ? complete(it, step) : it.receives.push_back(step);
      moved |= came;
    }
    return moved;
  }

  void start(int rank, uint32_t index) {
    Rank& it = ranks_[static_cast<size_t>(rank)];
    const plan::Step& step = it.plan.steps[index].step;
    switch (step.kind) {
      case Kind::recv:
        it.receives.push_back(index);
        return;
      case Kind::wait:
        if (!reached(rank, it.plan.steps[index].peer_local, step.slot, step.value))
          return it.waits.add(index, it.plan.steps[index]);
        break;
      case Kind::send:
        sent_.insert({rank, step.peer, step.tag});
        wake_receiver(step.peer);
        break;
      case Kind::post:
        it.counters[step.slot] = counter_value(sequence, step.value);
        wake_sleepers(cluster_.node_of(rank));
        break;
      default:
        break;
    }
    complete(it, index);
  }

  static void complete(Rank& it, uint32_t index) {
    it.steps.completed();
    const CompiledStep& step = it.plan.steps[index];
    for (uint32_t s = step.first_successor; s < step.last_successor; ++s)
      it.steps.release(it.plan.successors[s]);
  }

  static Message message(int to, const plan::Step& step) { return {step.peer, to, step.tag}; }

  uint64_t counter(int node, int local, int slot) const {
    const auto rank = static_cast<size_t>(cluster_.rank_at(node, local));
    return ranks_[rank].counters[static_cast<size_t>(slot)];
  }
  bool reached(int rank, int local, int slot, uint32_t value) const {
    return counter(cluster_.node_of(rank), local, slot) >= counter_value(sequence, value);
  }

  bool holds(int node, const transports::SleepFor& reason) const {
    for (int local = 0; local < cluster_.local_size(node); ++local)
      if ((reason.locals[static_cast<size_t>(local) / 64] >> (local % 64) & 1) != 0 &&
          counter(node, local, reason.slot) < reason.value)
        return false;
    return true;
  }

  void wake(int rank) {
    if (std::ranges::find(awake_, rank) == awake_.end()) awake_.push_back(rank);
    ranks_[static_cast<size_t>(rank)].reasons = {};
  }
  void wake_sleepers(int node) {
    for (const int rank : cluster_.members(node))
      if (std::ranges::any_of(ranks_[static_cast<size_t>(rank)].reasons.all(),
                              [&](const auto& reason) { return holds(node, reason); }))
        wake(rank);
  }
  void wake_receiver(int rank) {
    const Rank& it = ranks_[static_cast<size_t>(rank)];
    if (std::ranges::any_of(it.receives, [&](uint32_t step) {
          return sent_.contains(message(rank, it.plan.steps[step].step));
        }))
      wake(rank);
  }

  const Cluster& cluster_;
  std::mt19937_64& random_;
  std::vector<Rank> ranks_;
  std::vector<int> awake_;
  std::set<Message> sent_;
};

void expect_an_end(const plan::Plan& plan, std::mt19937_64& random) {
  for (int run = 0; run < 2; ++run) {
    Sleepers sleepers(plan, random);
    ASSERT_TRUE(sleepers.run()) << sleepers.stuck();
  }
}

template <typename Build>
plan::Plan everywhere(const Cluster& cluster, Build build) {
  plan::Plan plan{cluster, "", {}};
  for (int rank = 0; rank < cluster.ranks(); ++rank) plan.ranks.push_back(build(rank));
  return plan;
}

void expect_alltoalls_to_end(const Cluster& cluster, const Exchange& exchange, const Parameters& parameters,
                             std::mt19937_64& random) {
  for (const Algorithm algorithm : all_algorithms) {
    SCOPED_TRACE(fmt::format("{} on {}: {}", to_string(algorithm), tests::shape_text(cluster),
                             tests::text_of(parameters)));
    expect_an_end(build_alltoall_everywhere(algorithm, cluster, exchange, parameters), random);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// All stage two pieces, then wait for those who read the first; the late one's pieces are what these read next.
TEST(RanksThatSleep, EndAnAlltoallInRounds) {
  auto random = tests::seeded_generator("asleep, in rounds");
  Parameters parameters;
  parameters.direct = false;
  for (const Cluster& cluster :
       {Cluster::uniform(1, 3), Cluster::uniform(1, 8), Cluster::from_sizes({3, 2})}) {
    expect_alltoalls_to_end(cluster, Exchange::uniform(cluster.ranks(), 300'000), parameters, random);
    const auto counts = tests::random_counts(cluster.ranks(), 400'000, random);
    expect_alltoalls_to_end(cluster, Exchange::packed(cluster.ranks(), counts), parameters, random);
  }
}

/// More ranks do what so many do.
std::vector<Cluster> shapes() {
  std::vector<Cluster> all = tests::small_shapes();
  std::erase_if(all, [](const Cluster& cluster) { return cluster.ranks() > 8; });
  return all;
}

TEST(RanksThatSleep, EndAnAlltoallOfEveryShapeWithEveryConstant) {
  auto random = tests::seeded_generator("asleep, alltoall");
  for (const Cluster& cluster : shapes())
    for (const Parameters& parameters : tests::parameter_choices()) {
      if (!check(cluster, parameters).ok()) continue;
      expect_alltoalls_to_end(cluster, Exchange::uniform(cluster.ranks(), 40), parameters, random);
      const auto counts = tests::random_counts(cluster.ranks(), 60, random);
      expect_alltoalls_to_end(cluster, Exchange::packed(cluster.ranks(), counts), parameters, random);
    }
}

bool has(Collective kind, Variant variant) {
  const bool rooted = kind == Collective::broadcast || kind == Collective::reduce;
  const bool all = kind == Collective::allreduce;
  switch (variant) {
    case Variant::plain:
      return true;
    case Variant::alone:
    case Variant::split:
      return all;
    case Variant::tree:
      return rooted || all;
    case Variant::relay:
      return rooted;
    case Variant::together:
      return kind == Collective::reduce_scatter;
  }
  return false;
}

/// Direct and staged, with tiny constants and with the default ones, in all ways to do it.
std::vector<CollectiveParameters> ways_of(const Cluster& cluster, const CollectiveSpec& call) {
  const bool sums = reduces(call.kind);
  std::vector<CollectiveParameters> ways;
  for (unsigned bits = 0; bits < 1 << 5; ++bits)
    for (const Variant variant : variants) {
      const auto is = [&](unsigned bit) { return (bits & bit) != 0; };
      const bool flat = is(1), fetches = is(16), alone = variant == Variant::alone;
      // What some do not know, or do not do together.
      if ((is(8) && !sums) || (fetches && (alone || !sums)) || !has(call.kind, variant) ||
          (flat && variant != Variant::plain))
        continue;
      CollectiveParameters it;
      it.form = flat ? Form::flat : Form::two_level;
      it.variant = variant;
      it.direct = is(2);
      it.stage_bytes = 64;
      if (is(4)) {
        it.chunk_bytes = 3;
        it.scratch_bytes = 2 * call.unit * (3 * static_cast<uint64_t>(cluster.ranks()) + 2);
      }
      it.carriers = is(8) ? 0 : 1;
      it.fetch = fetches;
      ways.push_back(it);
    }
  return ways;
}

TEST(RanksThatSleep, EndEveryCollectiveOfEveryShape) {
  auto random = tests::seeded_generator("asleep, collectives");
  for (const Cluster& cluster : shapes())
    for (const Collective kind :
         {Collective::allgather, Collective::reduce_scatter, Collective::allreduce, Collective::broadcast,
          Collective::reduce, Collective::gather, Collective::scatter}) {
      const CollectiveSpec call{kind, 132, cluster.ranks() / 2, 4};
      for (const CollectiveParameters& way : ways_of(cluster, call)) {
        if (!check(cluster, call, way).ok()) continue;
        SCOPED_TRACE(fmt::format("{} {} {} on {}: carriers {} fetch {}, chunk {} scratch {} direct {}",
                                 to_string(kind), to_string(way.form), to_string(way.variant),
                                 tests::shape_text(cluster), way.carriers, way.fetch, way.chunk_bytes,
                                 way.scratch_bytes, way.direct));
        expect_an_end(build_collective_everywhere(cluster, call, way), random);
        if (HasFatalFailure()) return;
      }
    }
}

TEST(RanksThatSleep, EndTheExchangesBeforeOtherCalls) {
  auto random = tests::seeded_generator("asleep, exchanges");
  for (const Cluster& cluster : tests::small_shapes()) {
    SCOPED_TRACE(tests::shape_text(cluster));
    expect_an_end(everywhere(cluster, [&](int rank) { return build_counts_exchange(cluster, rank); }),
                  random);
    expect_an_end(everywhere(cluster, [&](int rank) { return build_table_exchange(cluster, rank, 100, 64); }),
                  random);
  }
}

}  // namespace
}  // namespace epccl::runtime
