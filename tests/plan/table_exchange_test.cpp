// Plans of table exchanges: proved right, with as many messages as there are pairs of nodes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "algorithms/tables/table_exchange.hpp"
#include "plan/verifier.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

using topology::Cluster;

plan::VerifyReport prove(const Cluster& cluster, uint64_t bytes, uint64_t chunk) {
  SCOPED_TRACE(fmt::format("{} blocks of {} chunks of {}", tests::shape_text(cluster), bytes, chunk));
  plan::Plan plan{cluster, "tables", {}};
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    plan.ranks.push_back(build_table_exchange(cluster, rank, bytes, chunk));
  plan::VerifyReport report;
  const Status proved = plan::verify(plan, table_transfers(cluster, bytes), {}, {}, &report);
  EXPECT_TRUE(proved.ok()) << proved.message();
  return report;
}

TEST(TableExchange, IsRightOnEveryShapeWithChunksOfEverySize) {
  for (const Cluster& cluster : tests::small_shapes())
    for (const uint64_t bytes : {1, 7, 100})
      for (const uint64_t chunk : {1, 16, 1 << 20}) prove(cluster, bytes, chunk);
}

TEST(TableExchange, SendsEveryNodesBlocksOnceToEveryOther) {
  const Cluster cluster = Cluster::from_sizes({3, 5, 1});
  const auto report = prove(cluster, 8, 1 << 20);
  EXPECT_EQ(report.links.messages, 6u);
  for (int from = 0; from < cluster.nodes(); ++from)
    for (int to = 0; to < cluster.nodes(); ++to)
      EXPECT_EQ(report.links.between_nodes(from, to),
                from == to ? 0 : static_cast<uint64_t>(cluster.local_size(from)) * 8);
}

TEST(TableExchange, OfManyNodesSpreadsMessagesOverTheRanks) {
  const auto report = prove(Cluster::uniform(32, 8), 64, 1 << 20);
  for (const uint64_t sent : report.links.messages_sent) EXPECT_LE(sent, 4u);
}

}  // namespace
}  // namespace epccl::algorithms
