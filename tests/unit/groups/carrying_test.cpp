// Who carries what, and what a carrier does that must leave.
#include <deque>

#include "cluster.hpp"

namespace epccl::runtime {
namespace {

constexpr double long_time = 1e3;  // seconds: only a rule ends the wait

CarryPolicy patient() {
  CarryPolicy policy;
  policy.aggregate = Aggregate::always;
  policy.gather_seconds = policy.patience_seconds = long_time;
  return policy;
}

/// Everybody sends to everybody.
struct Alltoall {
  Alltoall(int ranks, size_t bytes, uint64_t number) {
    for (int a = 0; a < ranks; ++a)
      for (int b = 0; b < ranks; ++b) wishes.emplace_back(a, b, bytes, number);
  }
  std::vector<P2pOperation> of(int rank) {
    std::vector<P2pOperation> operations;
    for (Wish& wish : wishes) {
      if (wish.source == rank) operations.push_back(wish.send());
      if (wish.destination == rank) operations.push_back(wish.recv());
    }
    return operations;
  }
  void expect_arrived() const {
    for (const Wish& wish : wishes) wish.expect_arrived();
  }
  std::deque<Wish> wishes;
};

std::vector<int> all_of(TestCluster& cluster) {
  std::vector<int> all(static_cast<size_t>(cluster.ranks()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  return all;
}

void run(TestCluster& cluster, size_t bytes, uint64_t number) {
  Alltoall exchange(cluster.ranks(), bytes, number);
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    ASSERT_TRUE(cluster.p2p(rank).start(exchange.of(rank)).ok());
  ASSERT_TRUE(cluster.finish(all_of(cluster)));
  exchange.expect_arrived();
}

/// Lanes open in the first calls that want them.
void warm_up(TestCluster& cluster) {
  for (uint64_t call = 0; call < 3; ++call) run(cluster, 10, call);
}

TEST(Carrying, PutsWhatANodeHasForARankIntoOneWrite) {
  TestCluster cluster({4, 4, 4}, patient());
  warm_up(cluster);
  const auto before = cluster[5].network->counters();
  const uint64_t carried_before = cluster.counters(5).carried;
  run(cluster, 100, 7);
  const auto after = cluster[5].network->counters();
  EXPECT_EQ(after.lane_writes - before.lane_writes, 2u) << "one for each other node";
  EXPECT_EQ(after.messages_sent, before.messages_sent) << "nothing else";
  EXPECT_EQ(after.messages_by_lane - before.messages_by_lane, 8u) << "one of each rank of other nodes";
  EXPECT_EQ(cluster.counters(5).carried - carried_before, 8u);
}

TEST(Carrying, LeavesLargeMessagesAlone) {
  TestCluster cluster({2, 2}, patient());
  warm_up(cluster);
  const uint64_t before = cluster.counters(0).carried;
  run(cluster, Carrying::largest_message + 1, 7);
  EXPECT_EQ(cluster.counters(0).carried, before);
}

TEST(Carrying, IsNotDoneWhereTheSettingForbidsIt) {
  CarryPolicy policy = patient();
  policy.aggregate = Aggregate::never;
  TestCluster cluster({2, 2}, policy);
  warm_up(cluster);
  EXPECT_EQ(cluster[0].network->counters().lane_writes, 0u);
  EXPECT_EQ(cluster[0].network->counters().messages_by_lane, 0u);
}

// Rank 0 has something for rank 3, whose carrier would be rank 1: which is in no call, and never will be.
TEST(Carrying, DoesNotWaitForACarrierThatIsNotThere) {
  CarryPolicy policy = patient();
  policy.patience_seconds = 10e-3;
  TestCluster cluster({2, 2}, policy);
  warm_up(cluster);
  const auto before = cluster.counters(0).withdrawn;  // this thread may have been off its core
  Wish wish(0, 3, 50, 1);
  ASSERT_TRUE(cluster.p2p(0).start({wish.send()}).ok());
  ASSERT_TRUE(cluster.p2p(3).start({wish.recv()}).ok());
  ASSERT_TRUE(cluster.finish({0, 3}));
  wish.expect_arrived();
  EXPECT_EQ(cluster.counters(0).withdrawn - before, 1u);
}

// The carrier has been in its call of the same number, and left: there is nothing to wait for.
TEST(Carrying, DoesNotWaitForACarrierThatHasLeft) {
  TestCluster cluster({2, 2}, patient());
  warm_up(cluster);
  ASSERT_TRUE(cluster.p2p(1).start({}).ok());
  ASSERT_TRUE(cluster.finish({1}));
  Wish wish(0, 3, 50, 1);
  ASSERT_TRUE(cluster.p2p(0).start({wish.send()}).ok());
  ASSERT_TRUE(cluster.p2p(3).start({wish.recv()}).ok());
  ASSERT_TRUE(cluster.finish({0, 3})) << "without the rule it would wait for a thousand seconds";
  wish.expect_arrived();
}

// An origin may be a call ahead of its carrier: what it has then leaves with what its neighbours have in that call.
TEST(Carrying, LeavesTheSecondParcelOfACallToTheNext) {
  TestCluster cluster({2, 2}, patient());
  warm_up(cluster);
  const auto writes = [&cluster] { return cluster[1].network->counters().lane_writes; };
  const uint64_t before = writes();
  Wish first(0, 3, 50, 1), second(0, 3, 50, 2), own(1, 3, 50, 3), local(0, 1, 10, 4);
  ASSERT_TRUE(cluster.p2p(1).start({local.recv()}).ok());
  ASSERT_TRUE(cluster.p2p(0).start({first.send()}).ok());
  while (!cluster.p2p(0).done()) {
    cluster.drive(1);
    cluster.drive(0);
  }
  EXPECT_EQ(writes() - before, 1u);
  ASSERT_TRUE(cluster.p2p(0).start({second.send(), local.send()}).ok());
  ASSERT_TRUE(cluster.finish({1}));
  EXPECT_EQ(writes() - before, 1u) << "rank 1 was still in its first call";
  ASSERT_TRUE(cluster.p2p(1).start({own.send()}).ok());
  ASSERT_TRUE(cluster.finish({0, 1}));
  EXPECT_EQ(writes() - before, 2u) << "both parcels in one write";
  ASSERT_TRUE(cluster.p2p(3).start({first.recv(), second.recv(), own.recv()}).ok());
  ASSERT_TRUE(cluster.finish({3}));
  for (const Wish* wish : {&first, &second, &own}) wish->expect_arrived();
}

// A destination that is in no call: neither the origin nor the carrier is kept by it.
TEST(Carrying, KeepsNobodyForADestinationThatIsLate) {
  TestCluster cluster({2, 2}, patient());
  warm_up(cluster);
  Wish wish(0, 3, 5000, 1), local(0, 1, 10, 2);
  ASSERT_TRUE(cluster.p2p(1).start({local.recv()}).ok());
  ASSERT_TRUE(cluster.p2p(0).start({wish.send(), local.send()}).ok());
  ASSERT_TRUE(cluster.finish({0, 1}));
  EXPECT_EQ(cluster.parcels(1), cluster.parcels(0) + 1) << "rank 1 carried it";
  // Neither of them does anything any more.
  ASSERT_TRUE(cluster.p2p(3).start({wish.recv()}).ok());
  ASSERT_TRUE(cluster.finish({3}));
  wish.expect_arrived();
}

// What a destination keeps for an origin without receives is bounded; the rest goes directly, where tcp holds the sender.
TEST(Carrying, EndsWithTheAllowance) {
  TestCluster cluster({2, 2}, patient());
  warm_up(cluster);
  constexpr int sends = 40;
  std::deque<Wish> wishes;
  for (uint64_t i = 0; i < sends; ++i) wishes.emplace_back(0, 3, 10'000, i);
  for (Wish& wish : wishes) {
    Wish local(0, 1, 10, 2);
    ASSERT_TRUE(cluster.p2p(1).start({local.recv()}).ok());
    ASSERT_TRUE(cluster.p2p(0).start({wish.send(), local.send()}).ok());
    ASSERT_TRUE(cluster.finish({0, 1}));
  }
  const uint64_t carried = cluster.parcels(1);
  EXPECT_LT(carried, 20u);
  EXPECT_EQ(cluster[0].network->lanes()->allowance(3) / 10'000, 0u);
  std::vector<P2pOperation> receives;
  for (Wish& wish : wishes) receives.push_back(wish.recv());
  Wish answer(3, 0, 10, 1);
  receives.push_back(answer.send());
  ASSERT_TRUE(cluster.p2p(3).start(receives).ok());
  ASSERT_TRUE(cluster.p2p(2).start({}).ok());
  ASSERT_TRUE(cluster.p2p(0).start({answer.recv()}).ok());
  ASSERT_TRUE(cluster.finish({0, 2, 3}));
  for (const Wish& wish : wishes) wish.expect_arrived();
  // Whatever rank 3 sends from now on says what it has taken.
  Wish later(3, 0, 10, 2);
  ASSERT_TRUE(cluster.p2p(3).start({later.send()}).ok());
  ASSERT_TRUE(cluster.p2p(2).start({}).ok());
  ASSERT_TRUE(cluster.p2p(0).start({later.recv()}).ok());
  ASSERT_TRUE(cluster.finish({0, 2, 3}));
  EXPECT_GT(cluster[0].network->lanes()->allowance(3), 90'000u);
}

// In a pattern that never shares a lane, a rank stops handing its messages over.
TEST(Carrying, IsGivenUpWhereItDoesNotPay) {
  CarryPolicy policy;
  policy.patience_seconds = 1e-3;
  TestCluster cluster({3, 3, 3}, policy);
  const auto star = [&cluster](uint64_t number) {
    std::deque<Wish> wishes;
    for (int leaf = 1; leaf < 9; ++leaf) {
      wishes.emplace_back(0, leaf, 100, number);
      wishes.emplace_back(leaf, 0, 100, number);
    }
    for (int rank = 0; rank < 9; ++rank) {
      std::vector<P2pOperation> operations;
      for (Wish& wish : wishes) {
        if (wish.source == rank) operations.push_back(wish.send());
        if (wish.destination == rank) operations.push_back(wish.recv());
      }
      ASSERT_TRUE(cluster.p2p(rank).start(operations).ok());
    }
    ASSERT_TRUE(cluster.finish(all_of(cluster)));
    for (const Wish& wish : wishes) wish.expect_arrived();
  };
  constexpr uint64_t calls = 200;
  for (uint64_t call = 0; call < calls; ++call) star(call);
  const Carrying::Counters& root = cluster.counters(0);
  EXPECT_LT(root.carried + root.withdrawn, calls * 6 / 4) << "of " << calls * 6 << " messages";
}

TEST(Carrying, GoesOnWhereItPays) {
  CarryPolicy policy;
  policy.gather_seconds = policy.patience_seconds = long_time;
  TestCluster cluster({3, 3, 3}, policy);
  constexpr uint64_t calls = 50;
  for (uint64_t call = 0; call < calls; ++call) run(cluster, 100, call);
  EXPECT_GT(cluster.counters(4).carried, (calls - 10) * 6);
}

}  // namespace
}  // namespace epccl::runtime
