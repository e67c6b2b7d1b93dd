#include "perf/src/moe/routing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace epccl::perf::moe {
namespace {

RoutingRule rule(const char* text) {
  const auto parsed = parse_routing(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed.ok() ? *parsed : RoutingRule{};
}

TopkTable table_of(const char* text, uint32_t experts, uint32_t topk, uint32_t tokens, int rank = 0,
                   uint64_t seed = 1) {
  return make_routing(rule(text), experts, topk, seed)->table(rank, tokens);
}

/// How often each expert occurs.
std::vector<int> uses(const TopkTable& table, uint32_t experts) {
  std::vector<int> count(experts);
  for (const int64_t expert : table.experts) ++count[static_cast<size_t>(expert)];
  return count;
}

TEST(ParseRouting, KnowsEveryRuleAndPrintsIt) {
  for (const char* text : {"uniform", "zipf:0.8", "groups:4/8", "hot:2", "trace:/a:b.jsonl"})
    EXPECT_EQ(to_string(rule(text)), text);
  EXPECT_EQ(rule("groups:4/8").chosen, 4u);
  EXPECT_EQ(rule("groups:4/8").groups, 8u);
  EXPECT_EQ(rule("trace:/a:b.jsonl").path, "/a:b.jsonl");
}

TEST(ParseRouting, RefusesTheRest) {
  for (const char* bad :
       {"", "even", "uniform:", "zipf", "zipf:", "zipf:x", "zipf:-1", "zipf:11", "zipf:nan", "groups:4",
        "groups:0/8", "groups:9/8", "groups:4/8x", "hot", "hot:0", "hot:-1", "trace", "trace:"}) {
    EXPECT_FALSE(parse_routing(bad).ok()) << bad;
  }
}

TEST(CheckRouting, RefusesWhatNoTokenCanHave) {
  EXPECT_TRUE(check_routing(rule("groups:4/8"), 256, 8).ok());
  EXPECT_TRUE(check_routing(rule("uniform"), 8, 8).ok());
  EXPECT_NE(check_routing(rule("uniform"), 8, 9).message().find("only 8 experts"), std::string::npos);
  EXPECT_NE(check_routing(rule("groups:4/8"), 100, 8).message().find("100 experts are not 8 groups"),
            std::string::npos);
  EXPECT_NE(check_routing(rule("groups:2/8"), 16, 5).message().find("only 4"), std::string::npos);
  EXPECT_FALSE(check_routing(rule("hot:17"), 16, 2).ok());
}

class EveryRule : public testing::TestWithParam<const char*> {};

TEST_P(EveryRule, GivesDistinctExpertsThatExist) {
  for (const uint32_t topk : {1u, 7u, 32u}) {
    const TopkTable table = table_of(GetParam(), 64, topk, 500, 3);
    ASSERT_EQ(table.experts.size(), 500u * topk);
    for (uint32_t token = 0; token < table.tokens; ++token) {
      const auto row = table.row(token);
      EXPECT_EQ(std::set<int64_t>(row.begin(), row.end()).size(), topk);
      for (const int64_t expert : row) EXPECT_TRUE(expert >= 0 && expert < 64) << expert;
    }
  }
}

TEST_P(EveryRule, FollowsFromSeedAndRankAlone) {
  const TopkTable table = table_of(GetParam(), 64, 4, 200, 5, 7);
  EXPECT_EQ(table_of(GetParam(), 64, 4, 200, 5, 7).experts, table.experts);
  EXPECT_NE(table_of(GetParam(), 64, 4, 200, 6, 7).experts, table.experts);
  EXPECT_NE(table_of(GetParam(), 64, 4, 200, 5, 8).experts, table.experts);
  const TopkTable shorter = table_of(GetParam(), 64, 4, 50, 5, 7);
  EXPECT_TRUE(std::equal(shorter.experts.begin(), shorter.experts.end(), table.experts.begin()));
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryRule,
                         testing::Values("uniform", "zipf:0.8", "zipf:3", "zipf:10", "groups:4/8", "hot:2"));

TEST(Routing, IsTheSameOnEveryMachine) {
  EXPECT_EQ(table_of("uniform", 256, 4, 1).experts, (std::vector<int64_t>{243, 85, 242, 169}));
  EXPECT_EQ(table_of("zipf:1.2", 256, 4, 1).experts, (std::vector<int64_t>{224, 49, 145, 126}));
  EXPECT_EQ(table_of("zipf:10", 256, 8, 1).experts,
            (std::vector<int64_t>{51, 61, 49, 36, 154, 86, 237, 122}));
}

TEST(UniformRouting, UsesAllExpertsAlike) {
  const auto count = uses(table_of("uniform", 32, 4, 8000), 32);
  for (const int uses_of_one : count) EXPECT_NEAR(uses_of_one, 1000, 150);
}

TEST(ZipfRouting, FirstChoicesFollowThePowerLaw) {
  constexpr uint32_t tokens = 40'000, experts = 16;
  auto count = uses(table_of("zipf:1", experts, 1, tokens), experts);
  std::sort(count.rbegin(), count.rend());
  double sum = 0;
  for (uint32_t i = 0; i < experts; ++i) sum += 1.0 / (1 + i);
  for (uint32_t i = 0; i < 8; ++i)
    EXPECT_NEAR(count[i], tokens / (1 + i) / sum, 300) << "expert number " << i;
}

TEST(ZipfRouting, IsUniformForExponentZero) {
  const auto count = uses(table_of("zipf:0", 16, 1, 16'000), 16);
  for (const int uses_of_one : count) EXPECT_NEAR(uses_of_one, 1000, 150);
}

// A second at most: draws that look at each expert take minutes.
TEST(ZipfRouting, DrawsFromManyExpertsOfWhomAFewHaveAlmostAllWeight) {
  constexpr uint32_t experts = 1 << 20, topk = 64, tokens = 500;
  const TopkTable table = table_of("zipf:10", experts, topk, tokens);
  for (uint32_t token = 0; token < tokens; ++token) {
    const auto row = table.row(token);
    EXPECT_EQ(std::set<int64_t>(row.begin(), row.end()).size(), topk);
  }
}

TEST(ZipfRouting, DrawsTheRestAsIfTheTakenWereNotThere) {
  constexpr uint32_t experts = 64, topk = 16, tokens = 4000;
  const TopkTable table = table_of("zipf:10", experts, topk, tokens);
  const auto count = uses(table, experts);
  // All but the first dozen weigh as little as a weight can, and are alike.
  auto rest = count;
  std::sort(rest.rbegin(), rest.rend());
  const double mean = std::accumulate(rest.begin() + 16, rest.end(), 0.0) / (experts - 16);
  for (size_t i = 16; i < rest.size(); ++i) EXPECT_NEAR(rest[i], mean, 6 * std::sqrt(mean)) << i;
}

TEST(ZipfRouting, HasTheSameHotExpertsOnEveryRank) {
  const auto hottest = [](int rank) {
    const auto count = uses(table_of("zipf:1.5", 64, 2, 4000, rank), 64);
    return std::max_element(count.begin(), count.end()) - count.begin();
  };
  EXPECT_EQ(hottest(0), hottest(1));
  EXPECT_EQ(hottest(0), hottest(77));
}

TEST(GroupRouting, KeepsToAsManyGroups) {
  const TopkTable table = table_of("groups:3/8", 64, 6, 1000);
  std::set<size_t> seen;
  for (uint32_t token = 0; token < table.tokens; ++token) {
    std::set<int64_t> groups;
    for (const int64_t expert : table.row(token)) groups.insert(expert / 8);
    EXPECT_LE(groups.size(), 3u);
    seen.insert(groups.begin(), groups.end());
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(GroupRouting, UsesAllExpertsAlike) {
  const auto count = uses(table_of("groups:4/8", 32, 4, 8000), 32);
  for (const int uses_of_one : count) EXPECT_NEAR(uses_of_one, 1000, 150);
}

TEST(HotRouting, GivesEveryTokenAHotExpert) {
  auto count = uses(table_of("hot:2", 64, 4, 6000), 64);
  std::sort(count.rbegin(), count.rend());
  EXPECT_GE(count[0] + count[1], 6000);
  EXPECT_NEAR(count[0], count[1], 400);
  EXPECT_NEAR(count[2], 6000.0 * 3 / 63, 100);
}

TEST(AllTables, AreThoseOfTheRanks) {
  const auto routing = make_routing(rule("uniform"), 16, 2, 1);
  const auto tables = all_tables(*routing, 3, 10);
  ASSERT_EQ(tables.size(), 3u);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(tables[static_cast<size_t>(rank)].experts, routing->table(rank, 10).experts);
}

}  // namespace
}  // namespace epccl::perf::moe
