// alltoall and alltoallv plans: proved right, with exactly the bytes and messages that the closed forms say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "algorithms/alltoall/alltoall.hpp"
#include "plan/verifier.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

using tests::bytes_between;
using topology::Cluster;

plan::VerifyReport prove(Algorithm algorithm, const Cluster& cluster, const Exchange& exchange,
                         const Parameters& parameters) {
  SCOPED_TRACE(fmt::format("{} on {}: {}", to_string(algorithm), tests::shape_text(cluster),
                           tests::text_of(parameters)));
  plan::VerifyReport report;
  const auto built = build_alltoall_everywhere(algorithm, cluster, exchange, parameters);
  const auto transfers = exchange.transfers();
  const Status status = plan::verify(built, transfers, &report);
  EXPECT_TRUE(status.ok()) << status.message();
  for (const auto& rank : built.ranks) EXPECT_LE(rank.scratch_bytes, parameters.scratch_bytes);
  EXPECT_TRUE(tests::every_input_read_is_offered(built));
  for (int source = 0; source < cluster.nodes() && status.ok(); ++source)
    for (int destination = 0; destination < cluster.nodes(); ++destination) {
      const uint64_t expected =
          source == destination ? 0 : bytes_between(cluster, exchange, source, destination);
      EXPECT_EQ(report.links.between_nodes(source, destination), expected);
    }
  return report;
}

TEST(Alltoall, IsRightForEveryShapeAndConstant) {
  for (const Cluster& cluster : tests::small_shapes())
    for (const Parameters& parameters : tests::parameter_choices()) {
      if (!check(cluster, parameters).ok()) continue;
      for (const uint64_t block : {0, 1, 5, 40})
        for (const Algorithm algorithm : all_algorithms)
          prove(algorithm, cluster, Exchange::uniform(cluster.ranks(), block), parameters);
    }
}

TEST(Alltoall, StagesLargeBlocksInRoundsWherePeersCannotBeRead) {
  Parameters parameters;
  parameters.direct = false;
  for (const Algorithm algorithm : all_algorithms)
    prove(algorithm, Cluster::from_sizes({3, 2}), Exchange::uniform(5, 300'000), parameters);
}

// Where scratch is small for so many ranks slots are smaller.
TEST(Alltoall, StagesInAsMuchScratchAsThereIsWherePeersCannotBeRead) {
  Parameters parameters;
  parameters.direct = false;
  for (const Cluster& cluster :
       {Cluster::uniform(1, 4), Cluster::uniform(2, 2), Cluster::from_sizes({3, 1, 2})})
    for (const uint64_t scratch : {128 << 10, 256 << 10}) {
      parameters.scratch_bytes = scratch;
      ASSERT_TRUE(check(cluster, parameters).ok());
      const int ranks = cluster.ranks();
      for (const Algorithm algorithm : all_algorithms)
        for (const uint64_t block : {10, 100'000})
          for (const Exchange& exchange :
               {Exchange::uniform(ranks, block),
                Exchange::packed(ranks, std::vector<uint64_t>(static_cast<size_t>(ranks * ranks), block))})
            prove(algorithm, cluster, exchange, parameters);
    }
}

// A rank that sends much to one peer stages in many rounds, and waits for a peer that it sends little to.
TEST(Alltoallv, StagesMuchAndLittleInOneNode) {
  Parameters parameters;
  parameters.direct = false;
  auto random = tests::seeded_generator("staged alltoallv");
  for (const int ranks : {3, 4, 7})
    prove(Algorithm::flat, Cluster::uniform(1, ranks),
          Exchange::packed(ranks, tests::random_counts(ranks, 400'000, random)), parameters);
}

TEST(Alltoallv, IsRightForRandomCountsWithZeros) {
  auto random = tests::seeded_generator("alltoallv");
  for (int repeat = 0; repeat < 4; ++repeat)
    for (const Cluster& cluster : tests::small_shapes())
      for (const Parameters& parameters : tests::parameter_choices()) {
        if (!check(cluster, parameters).ok()) continue;
        const auto exchange =
            Exchange::packed(cluster.ranks(), tests::random_counts(cluster.ranks(), 60, random));
        for (const Algorithm algorithm : all_algorithms) prove(algorithm, cluster, exchange, parameters);
      }
}

/// Ranks dealt out to nodes as they come.
Cluster mixed_nodes(std::mt19937_64& random) {
  const uint64_t nodes = 2 + random() % 3, ranks = nodes + random() % 9;
  std::vector<uint64_t> hosts;
  for (uint64_t rank = 0; rank < ranks; ++rank) hosts.push_back(rank < nodes ? rank : random() % nodes);
  std::ranges::shuffle(hosts, random);
  return Cluster::from_host_ids(hosts).value();
}

// What lies side by side in the input is sent from there, past the ring, and what does not goes through it: a piece of the ring may
// have had no packed message for a turn or more when it is written again.
TEST(Alltoallv, IsRightWhereTheRingIsWrittenManyTimesAndSomeMessagesPassIt) {
  auto random = tests::seeded_generator("rings");
  const auto below = [&](uint64_t end) { return random() % end; };
  for (int repeat = 0; repeat < 400; ++repeat) {
    const Cluster cluster = mixed_nodes(random);
    Parameters parameters;
    parameters.eager_limit = 16;
    parameters.chunk_bytes = 1 + below(40);
    parameters.carriers = static_cast<int>(below(4));
    parameters.push = below(2) == 0;
    parameters.send_window = below(2) == 0 ? 1 + below(100) : 1 << 20;
    parameters.scratch_bytes = 16 * static_cast<uint64_t>(cluster.max_local_size()) + 8 + below(300);
    if (!check(cluster, parameters).ok()) continue;
    const auto pairs = static_cast<size_t>(cluster.ranks() * cluster.ranks());
    const auto counts = below(2) == 0 ? std::vector<uint64_t>(pairs, 1 + below(300))
                                      : tests::random_counts(cluster.ranks(), 1 + below(300), random);
    prove(Algorithm::two_stage, cluster, Exchange::packed(cluster.ranks(), counts, below(2) * below(9)),
          parameters);
  }
}

TEST(Alltoallv, IsRightWhenOneRankGetsEverything) {
  for (const Cluster& cluster : {Cluster::uniform(3, 4), Cluster::from_sizes({3, 5})}) {
    std::vector<uint64_t> counts(static_cast<size_t>(cluster.ranks() * cluster.ranks()), 0);
    for (int source = 0; source < cluster.ranks(); ++source)
      counts[static_cast<size_t>(source * cluster.ranks() + 1)] = 999;
    for (const Parameters& parameters : tests::parameter_choices())
      if (check(cluster, parameters).ok())
        for (const Algorithm algorithm : all_algorithms)
          prove(algorithm, cluster, Exchange::packed(cluster.ranks(), counts), parameters);
  }
}

// flat: every rank sends one message to every rank of every other node.
TEST(Alltoall, FlatSendsOneMessagePerRemoteRank) {
  const auto report = prove(Algorithm::flat, Cluster::uniform(4, 8), Exchange::uniform(32, 64), {});
  for (const uint64_t messages : report.links.messages_sent) EXPECT_EQ(messages, 24U);
}

TEST(Alltoall, FlatGivesEveryRankAReceiverOfItsOwnInEachStep) {
  const Cluster cluster = Cluster::uniform(3, 4);
  const auto built =
      build_alltoall_everywhere(Algorithm::flat, cluster, Exchange::uniform(cluster.ranks(), 8), {});
  for (size_t step = 0; step < 8; ++step) {
    std::set<int> receivers;
    for (const plan::RankPlan& rank : built.ranks) {
      std::vector<int> sends;
      for (const plan::Step& it : rank.steps)
        if (it.kind == plan::Kind::send) sends.push_back(it.peer);
      ASSERT_EQ(sends.size(), 8u);
      EXPECT_TRUE(receivers.insert(sends[step]).second) << "step " << step << ": two send to " << sends[step];
    }
  }
}

TEST(Alltoall, TwoStageSendsOneMessagePerRemoteNodeAlongTheRail) {
  const Cluster cluster = Cluster::uniform(4, 8);
  const auto report = prove(Algorithm::two_stage, cluster, Exchange::uniform(32, 64), {});
  for (const uint64_t messages : report.links.messages_sent) EXPECT_EQ(messages, 3U);
  for (const auto& pair : report.links.rank_pairs)
    EXPECT_EQ(cluster.local_of(pair.source), cluster.local_of(pair.destination));
}

// A small node's ranks share what those of a large one send it, and what comes from there.
TEST(Alltoall, TwoStageBetweenUnequalNodesGivesEveryRankAsManyMessages) {
  const Cluster cluster = Cluster::from_sizes({8, 2});
  const auto built = build_alltoall_everywhere(Algorithm::two_stage, cluster, Exchange::uniform(10, 64), {});
  for (const plan::RankPlan& rank : built.ranks) {
    const auto received = std::ranges::count(rank.steps, plan::Kind::recv, &plan::Step::kind);
    const bool is_of_large = cluster.node_of(rank.rank) == 0;
    EXPECT_EQ(received, is_of_large ? (cluster.local_of(rank.rank) < 2 ? 1 : 0) : 4) << "rank " << rank.rank;
  }
}

// Shared: one message per pair of nodes, still along rails.
TEST(Alltoall, TwoStageWithOneCarrierSendsOneMessagePerNodePair) {
  const Cluster cluster = Cluster::uniform(4, 8);
  Parameters parameters;
  parameters.carriers = 1;
  const auto report = prove(Algorithm::two_stage, cluster, Exchange::uniform(32, 64), parameters);
  EXPECT_EQ(report.links.messages, 12U);
  for (const auto& pair : report.links.rank_pairs)
    EXPECT_EQ(cluster.local_of(pair.source), cluster.local_of(pair.destination));
}

TEST(Alltoall, TwoStageCutsMessagesIntoChunks) {
  Parameters parameters;
  parameters.chunk_bytes = 1000;
  const auto report =
      prove(Algorithm::two_stage, Cluster::uniform(2, 2), Exchange::uniform(4, 1250), parameters);
  for (const uint64_t messages : report.links.messages_sent) EXPECT_EQ(messages, 3U);  // 2500 bytes
}

class LargeShapes : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(LargeShapes, AreProvedInFull) {
  const auto [nodes, local] = GetParam();
  const Cluster cluster = Cluster::uniform(nodes, local);
  for (const int carriers : {0, 1}) {
    Parameters parameters;
    parameters.carriers = carriers;
    prove(Algorithm::two_stage, cluster, Exchange::uniform(cluster.ranks(), 96), parameters);
  }
  prove(Algorithm::flat, cluster, Exchange::uniform(cluster.ranks(), 96), {});
}

INSTANTIATE_TEST_SUITE_P(Alltoall, LargeShapes,
                         testing::Values(std::pair(16, 8), std::pair(8, 16), std::pair(64, 2),
                                         std::pair(128, 8)),
                         [](const auto& test) {
                           return fmt::format("{}x{}", test.param.first, test.param.second);
                         });

TEST(Parameters, WithTooLittleScratchAreRefusedWithTheBytesNeeded) {
  Parameters parameters;
  parameters.scratch_bytes = 100;
  const Status status = check(Cluster::uniform(2, 8), parameters);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("EPCCL_SCRATCH_SIZE 100 is too small"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace epccl::algorithms
