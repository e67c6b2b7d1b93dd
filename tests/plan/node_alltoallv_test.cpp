// alltoallv on one node by plans that are built once and fitted to each call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "algorithms/alltoall/exchange.hpp"
#include "algorithms/alltoall/node_alltoallv.hpp"
#include "plan/verifier.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

using topology::Cluster;

constexpr uint64_t head = 256, slot = 64;

plan::RankPlan with_extents(plan::RankPlan plan, const Exchange& exchange, int rank) {
  for (int peer = 0; peer < exchange.ranks(); ++peer) {
    plan.input_bytes += exchange.bytes(rank, peer);
    plan.output_bytes += exchange.bytes(peer, rank);
  }
  return plan;
}

// As the runtime does it: what a slot cannot hold stays behind.
plan::RankPlan fitted_small(FittedPlan& steps, const Exchange& exchange, int rank) {
  const auto fitting = [](uint64_t bytes) { return bytes <= slot ? bytes : 0; };
  for (int peer = 0; peer < exchange.ranks(); ++peer) {
    const auto at = static_cast<size_t>(peer);
    fit_sent(steps.plan.steps[steps.sent[at]], fitting(exchange.bytes(rank, peer)),
             exchange.input_offset(rank, peer));
    fit_received(steps.plan.steps[steps.received[at]], fitting(exchange.bytes(peer, rank)),
                 exchange.output_offset(rank, peer));
  }
  return with_extents(steps.plan, exchange, rank);
}

plan::RankPlan fitted_large(FittedPlan& steps, const Exchange& exchange, int rank) {
  const auto left = [](uint64_t bytes) { return bytes <= slot ? 0 : bytes; };
  for (int source = 0; source < exchange.ranks(); ++source) {
    plan::Step& step = steps.plan.steps[steps.received[static_cast<size_t>(source)]];
    fit_sent(step, left(exchange.bytes(source, rank)), exchange.input_offset(source, rank));
    fit_received(step, left(exchange.bytes(source, rank)), exchange.output_offset(rank, source));
  }
  return with_extents(steps.plan, exchange, rank);
}

void prove(const Cluster& cluster, std::vector<plan::RankPlan> ranks, const Exchange& exchange, bool small) {
  const plan::Plan everywhere{cluster, "node_alltoallv", std::move(ranks)};
  std::vector<plan::Transfer> transfers = exchange.transfers();
  std::erase_if(transfers, [&](const auto& transfer) { return (transfer.bytes <= slot) != small; });
  const Status status = plan::verify(everywhere, transfers);
  EXPECT_TRUE(status.ok()) << (small ? "small: " : "large: ") << status.message();
}

TEST(NodeAlltoallv, MovesAnyBlocksByTheSamePlans) {
  auto random = tests::seeded_generator("node alltoallv");
  for (const int ranks : {1, 2, 3, 8}) {
    const Cluster cluster = Cluster::uniform(1, ranks);
    std::vector<FittedPlan> small, large;
    for (int rank = 0; rank < ranks; ++rank) {
      small.push_back(build_small_blocks(cluster, rank, head, slot));
      large.push_back(build_large_blocks(cluster, rank));
    }
    for (const uint64_t most : {0, 64, 130, 5}) {
      SCOPED_TRACE(fmt::format("{} ranks, up to {} bytes", ranks, most));
      const Exchange exchange = Exchange::packed(ranks, tests::random_counts(ranks, most, random));
      std::vector<plan::RankPlan> first, second;
      for (int rank = 0; rank < ranks; ++rank) {
        first.push_back(fitted_small(small[static_cast<size_t>(rank)], exchange, rank));
        second.push_back(fitted_large(large[static_cast<size_t>(rank)], exchange, rank));
        EXPECT_LE(first.back().scratch_bytes, head + static_cast<uint64_t>(ranks) * slot);
        EXPECT_EQ(second.back().scratch_bytes, 0U);
      }
      prove(cluster, std::move(first), exchange, true);
      prove(cluster, std::move(second), exchange, false);
    }
  }
}

TEST(NodeAlltoallv, LeavesTheHeadOfScratchAlone) {
  const FittedPlan steps = build_small_blocks(Cluster::uniform(1, 4), 1, head, slot);
  for (const plan::Step& step : steps.plan.steps)
    for (const plan::Location& at : {step.source, step.destination}) {
      if (at.rank >= 0 && at.buffer == plan::Buffer::scratch) {
        EXPECT_GE(at.offset, head);
      }
    }
}

}  // namespace
}  // namespace epccl::algorithms
