// Groups of any pattern, the ranks entering and moving in any order: all is delivered, to the right receive, and nobody hangs.
#include <algorithm>
#include <deque>

#include "cluster.hpp"

namespace epccl::runtime {
namespace {

using Random = std::mt19937_64;

size_t random_size(Random& random) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return Carrying::largest_message + random() % 2;
    case 2:
      return random() % 60'000;
    default:
      return random() % 600;
  }
}

/// Random settings, so that every race is lost by each side now and then.
CarryPolicy random_policy(Random& random) {
  CarryPolicy policy;
  policy.aggregate = random() % 4 == 0 ? Aggregate::automatic : Aggregate::always;
  constexpr double some[] = {0, 20e-6, 500e-6, 5e-3};
  policy.gather_seconds = some[random() % 4];
  policy.patience_seconds = some[random() % 4];
  policy.leave_seconds = some[random() % 4];
  return policy;
}

/// Whether messages to other nodes are cut, and how.
uint64_t random_pieces(Random& random) {
  constexpr uint64_t some[] = {0, 0, 100, 20'000};
  return some[random() % 4];
}

/// One group of every rank: what it sends and receives, in an order of its own, but in order between two ranks.
std::vector<P2pOperation> group_of(int rank, std::deque<Wish>& wishes, Random& random) {
  std::vector<P2pOperation> operations;
  for (Wish& wish : wishes) {
    if (wish.source == rank) operations.push_back(wish.send());
    if (wish.destination == rank) operations.push_back(wish.recv());
  }
  if (random() % 2 == 0)
    std::ranges::stable_sort(operations, [&, salt = random()](const auto& a, const auto& b) {
      const auto place = [salt](const P2pOperation& o) {
        return (static_cast<uint64_t>(o.peer) * 2 + (o.is_send ? 1 : 0) + 1) * (salt | 1) % 1009;
      };
      return place(a) < place(b);
    });
  return operations;
}

/// Ranks enter one by one while those that are in already move on; in each round every rank has one group.
void run_groups(TestCluster& cluster, std::vector<std::deque<Wish>>& rounds, Random& random) {
  const auto ranks = static_cast<size_t>(cluster.ranks());
  std::vector<size_t> entered(ranks, 0);  // groups begun
  const double deadline = now_seconds() + patience_seconds;
  for (;;) {
    const int rank = static_cast<int>(random() % ranks);
    size_t& next = entered[static_cast<size_t>(rank)];
    if (cluster.p2p(rank).done() && next < rounds.size() && random() % 4 == 0) {
      const Status started = cluster.p2p(rank).start(group_of(rank, rounds[next++], random));
      ASSERT_TRUE(started.ok()) << started.message();
    }
    for (uint64_t steps = random() % 4; steps > 0; --steps) cluster.drive(rank);
    if (testing::Test::HasFatalFailure()) return;
    bool all = true;
    for (int other = 0; other < cluster.ranks(); ++other)
      all = all && entered[static_cast<size_t>(other)] == rounds.size() && cluster.p2p(other).done();
    if (all) break;
    ASSERT_LT(now_seconds(), deadline) << "a group hangs";
  }
  for (const auto& round : rounds)
    for (const Wish& wish : round) wish.expect_arrived();
}

const std::vector<std::vector<int>> shapes = {{1, 1}, {2, 2},       {3, 1},      {2, 3, 1},
                                              {4, 4}, {2, 2, 2, 2}, {4, 4, 4, 4}};

TEST(Groups, OfRandomMessagesArrive) {
  auto random = seeded_random();
  uint64_t carried = 0;
  for (int attempt = 0; attempt < 30; ++attempt) {
    TestCluster cluster(shapes[random() % shapes.size()], random_policy(random), random_pieces(random));
    const auto ranks = static_cast<uint64_t>(cluster.ranks());
    std::vector<std::deque<Wish>> rounds(1 + random() % 12);
    uint64_t number = 0;
    for (auto& round : rounds)
      for (uint64_t left = random() % (3 * ranks * ranks); left > 0; --left)
        round.emplace_back(random() % ranks, random() % ranks, random_size(random), ++number);
    run_groups(cluster, rounds, random);
    if (testing::Test::HasFailure()) return;
    for (int rank = 0; rank < cluster.ranks(); ++rank) carried += cluster.counters(rank).carried;
  }
  EXPECT_GT(carried, 0u) << "nothing here was about carrying";
}

TEST(Groups, OfRegularPatternsArrive) {
  auto random = seeded_random();
  for (int attempt = 0; attempt < 40; ++attempt) {
    TestCluster cluster(shapes[random() % shapes.size()], random_policy(random), random_pieces(random));
    const int ranks = cluster.ranks();
    std::vector<std::deque<Wish>> rounds(1 + random() % 8);
    uint64_t number = 0;
    for (auto& round : rounds) {
      const auto add = [&](int from, int to) { round.emplace_back(from, to, random_size(random), ++number); };
      const int root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
      const uint64_t pattern = random() % 6;
      for (int a = 0; a < ranks; ++a) {
        if (pattern == 0 || pattern == 5) {  // alltoallv; 5: with a pipeline of neighbours in the same group
          const bool leaves_zeros_out = random() % 2 == 0;
          for (int b = 0; b < ranks; ++b)
            if (!leaves_zeros_out || random() % 3 != 0) add(a, b);
        }
        if (pattern == 1) add(root, a), add(a, root);                // star
        if (pattern == 2) add(a, (a + 1) % ranks);                   // ring
        if ((pattern == 3 || pattern == 5) && a > 0) add(a - 1, a);  // pipeline
        if (pattern == 4)                                            // several to the same peer
          for (int i = 0; i < 5; ++i) add(a, ranks - 1 - a);
      }
    }
    run_groups(cluster, rounds, random);
    if (testing::Test::HasFailure()) return;
  }
}

// A rank that has copied what another sends must say so before it leaves, though its messages fill the ring: the sender waits.
TEST(Groups, AreNotOverBeforeTheSenderOfALargeMessageKnowsThatItWasTaken) {
  TestCluster cluster({2}, {});
  constexpr size_t large = 100'000;
  std::deque<Wish> wishes;
  wishes.emplace_back(1, 0, large, 1);
  for (uint64_t i = 0; i < transports::MessageRing::slots; ++i) wishes.emplace_back(0, 1, 8, 2 + i);
  std::vector<P2pOperation> of_receiver, later_of_sender;
  for (Wish& wish : wishes) {
    of_receiver.push_back(wish.source == 0 ? wish.send() : wish.recv());
    if (wish.source == 0) later_of_sender.push_back(wish.recv());
  }
  ASSERT_TRUE(cluster.p2p(0).start(of_receiver).ok());
  ASSERT_TRUE(cluster.p2p(1).start({wishes.front().send()}).ok());
  for (int i = 0; i < 3; ++i) cluster.drive(0);
  wishes.front().expect_arrived();
  EXPECT_FALSE(cluster.p2p(0).done());
  ASSERT_TRUE(cluster.finish({0, 1}));
  ASSERT_TRUE(cluster.p2p(1).start(later_of_sender).ok());
  ASSERT_TRUE(cluster.finish({1}));
  for (const Wish& wish : wishes) wish.expect_arrived();
}

}  // namespace
}  // namespace epccl::runtime
