// Which sizes static mode allows: tables of maxima grow with the number of ranks.
#include <gtest/gtest.h>

#include <vector>

#include "ep/handle/device_plans.hpp"

namespace epccl::ep {
namespace {

using topology::Cluster;

SlotRules rules_of(uint32_t tokens, uint32_t k) {
  SlotRules rules;
  rules.layout = SlotLayout::expert_major;
  rules.max_tokens = tokens;
  rules.max_topk = k;
  return rules;
}

TEST(StaticTableSizes, GrowWithRanksUntilTheyCannotBeNumbered) {
  const SlotRules most = rules_of(1 << 14, 64);
  EXPECT_TRUE(check_table_sizes(Cluster::uniform(1, 8), most, {}).ok());
  EXPECT_TRUE(check_table_sizes(Cluster::uniform(254, 8), most, {}).ok());
  const Status refused = check_table_sizes(Cluster::uniform(256, 8), most, {});
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_EQ(refused.message(),
            "static_topk 64 with max_send_tokens_per_rank 16384 on 2048 ranks: tables of a rank have up to "
            "4328390656 places, of which 4294967295 can be numbered");
  EXPECT_TRUE(check_table_sizes(Cluster::uniform(256, 8), rules_of(1 << 13, 64), {}).ok());
}

// A node of two has one rank that relays for two of every three elsewhere.
TEST(StaticTableSizes, AreThoseOfTheRankThatRelaysMost) {
  const SlotRules most = rules_of(1 << 14, 64);
  std::vector<int> nodes(520, 3);
  EXPECT_TRUE(check_table_sizes(Cluster::from_sizes(nodes), most, Strategy::dedup).ok());
  nodes.push_back(2);
  EXPECT_EQ(check_table_sizes(Cluster::from_sizes(nodes), most, Strategy::dedup).code(),
            Code::invalid_argument);
}

}  // namespace
}  // namespace epccl::ep
