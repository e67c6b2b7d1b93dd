// alltoallv on one node by plans that are built once and fitted to each call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

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

// As the runtime does it: what a slot cannot hold is read where it lies.
plan::RankPlan fitted(FittedPlan steps, const Exchange& exchange, int rank) {
  const auto step = [&](uint32_t index) -> plan::Step& { return steps.plan.steps[index]; };
  bool is_read_from = false;
  for (int peer = 0; peer < exchange.ranks(); ++peer) {
    const auto at = static_cast<size_t>(peer);
    const uint64_t sent = exchange.bytes(rank, peer), received = exchange.bytes(peer, rank);
    fit_sent(step(steps.sent[at]), sent <= slot || peer == rank ? sent : 0,
             exchange.input_offset(rank, peer));
    fit_received(step(steps.received[at]), received, exchange.output_offset(rank, peer));
    if (peer == rank) continue;
    fit_turn(step(steps.let_go[at]), sent > slot);
    if (sent > slot) steps.plan.offered.include(exchange.input_offset(rank, peer), sent);
    is_read_from |= received > slot;
    if (received > slot)
      fit_source(step(steps.received[at]), exchange.input_offset(peer, rank));
    else
      fit_slot(step(steps.received[at]), rank, head, slot);
  }
  fit_turn(step(steps.has_read), is_read_from);
  return with_extents(steps.plan, exchange, rank);
}

TEST(NodeAlltoallv, MovesAnyBlocksByTheSamePlan) {
  auto random = tests::seeded_generator("node alltoallv");
  for (const int ranks : {1, 2, 3, 8}) {
    const Cluster cluster = Cluster::uniform(1, ranks);
    std::vector<FittedPlan> steps;
    for (int rank = 0; rank < ranks; ++rank) steps.push_back(build_blocks(cluster, rank, head, slot));
    for (const uint64_t most : {0, 64, 130, 5}) {
      SCOPED_TRACE(fmt::format("{} ranks, up to {} bytes", ranks, most));
      const Exchange exchange = Exchange::packed(ranks, tests::random_counts(ranks, most, random));
      plan::Plan everywhere{cluster, "node_alltoallv", {}};
      for (int rank = 0; rank < ranks; ++rank) {
        everywhere.ranks.push_back(fitted(steps[static_cast<size_t>(rank)], exchange, rank));
        EXPECT_LE(everywhere.ranks.back().scratch_bytes, head + static_cast<uint64_t>(ranks) * slot);
      }
      const Status status = plan::verify(everywhere, exchange.transfers());
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST(NodeAlltoallv, LeavesTheHeadOfScratchAlone) {
  const FittedPlan steps = build_blocks(Cluster::uniform(1, 4), 1, head, slot);
  for (const plan::Step& step : steps.plan.steps)
    for (const plan::Location& at : {step.source, step.destination}) {
      if (at.rank >= 0 && at.buffer == plan::Buffer::scratch) {
        EXPECT_GE(at.offset, head);
      }
    }
}

// The others wait for what a rank tells: its own block, and theirs that it reads, may be long.
TEST(NodeAlltoallv, TellsBeforeItCopiesAnythingButSmallBlocks) {
  const FittedPlan steps = build_blocks(Cluster::uniform(1, 4), 1, head, slot);
  const auto& all = steps.plan.steps;
  const auto post = std::ranges::find(all, plan::Kind::post, &plan::Step::kind);
  ASSERT_NE(post, all.end());
  EXPECT_EQ(post->dependency_count, 3U) << "the blocks in scratch";
  const auto waits_for_post = [&](const plan::Step& step) {
    const auto dependencies = steps.plan.dependencies_of(step);
    return std::ranges::find(dependencies, static_cast<uint32_t>(post - all.begin())) != dependencies.end();
  };
  EXPECT_TRUE(waits_for_post(all[steps.sent[1]])) << "its own block";
  for (const uint32_t read : {steps.received[0], steps.received[2], steps.received[3]})
    EXPECT_TRUE(waits_for_post(all[steps.plan.dependencies_of(all[read])[0]]));
}

}  // namespace
}  // namespace epccl::algorithms
