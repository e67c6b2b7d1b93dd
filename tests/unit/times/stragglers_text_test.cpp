// What is said of stragglers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/comm/stragglers.hpp"

namespace epccl::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Lateness found_on(int ranks) {
  Lateness found;
  found.calls = 100;
  found.seconds = 10;
  found.median_between = 5;
  found.median_own = 1;
  found.ranks.resize(static_cast<size_t>(ranks), {.late = 0, .between = 5, .own = 1, .waited = 4});
  return found;
}

const std::vector<std::string> hosts{"one", "two", "three"};

TEST(StragglersText, NamesTheRankWithItsNodeAndTheReason) {
  Lateness found = found_on(6);
  found.ranks[3] = {
      .late = 3, .last_in = 96, .between = 8, .own = 1, .waited = 1, .by = LateBy::between_calls};
  EXPECT_THAT(
      describe(found, topology::Cluster::uniform(3, 2), hosts),
      ElementsAre("rank 3 of node 1 on two is late by 3 s of 10 s (30 %), the last in 96 of 100 calls: "
                  "between calls it takes 8 s, the median rank 5 s"));
}

TEST(StragglersText, BeginsWithTheWorst) {
  Lateness found = found_on(6);
  found.ranks[1] = {.late = 1, .own = 2.5, .by = LateBy::own_work};
  found.ranks[4] = {.late = 2, .by = LateBy::others};
  EXPECT_THAT(describe(found, topology::Cluster::uniform(3, 2), hosts),
              ElementsAre(StartsWith("rank 4 "),
                          HasSubstr("its own work in calls takes 2.5 s, the median rank 1 s")));
}

TEST(StragglersText, SaysOfANodeWhatIsSoOfAllItsRanks) {
  Lateness found = found_on(6);
  for (const size_t rank : {2U, 3U, 4U})
    found.ranks[rank] = {.late = 0.1 * static_cast<double>(rank), .by = LateBy::between_calls};
  EXPECT_THAT(describe(found, topology::Cluster::uniform(3, 2), hosts),
              ElementsAre(StartsWith("rank 4 of node 2 on three is late"),
                          StartsWith("all ranks of node 1 on two are late, rank 3 by 0.3 s of 10 s")));
}

TEST(StragglersText, IsNoneWhereNobodyIsLate) {
  EXPECT_TRUE(describe(found_on(6), topology::Cluster::uniform(3, 2), hosts).empty());
}

}  // namespace
}  // namespace epccl::runtime
