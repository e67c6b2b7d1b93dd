// What a run of `epccl-perf links` says.
#include "perf/src/links/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace epccl::perf::links {
namespace {

using testing::HasSubstr;

/// Three nodes of one rank, of which the second sends slowly.
Row slow_sender() {
  Row row{Pairs::rails, 3, {0, 1, 2}, {}, {}};
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to < 3; ++to)
      if (from != to) row.links.push_back({from, to, from == 1 ? 1e9 : 8e9, 5e-6});
  row.diagnosis = diagnose(row.links, row.node_of, 0.75);
  return row;
}

TEST(LinksReport, HasALineForEachRankAndOneForWhatIsSlow) {
  const std::string text = table_row(slow_sender());
  EXPECT_THAT(text, HasSubstr("# rails: 6 links in 3 rounds, usual 8.00 GB/s, median 8.00 GB/s,  5.00 us\n"));
  EXPECT_THAT(
      text,
      HasSubstr("       1       1       2      1.00      1.00      8.00      8.00      5.00      5.00\n"));
  EXPECT_THAT(
      text,
      HasSubstr("       2       2       2      8.00      8.00      1.00      4.50      5.00      5.00\n"));
  EXPECT_THAT(text, HasSubstr("# slow: node 1 sends at 1 GB/s, 0.12 of what is usual\n"));
  EXPECT_THAT(table_footer({}, {slow_sender(), slow_sender()}), HasSubstr("Slow                 : 2\n"));
  EXPECT_THAT(table_footer({}, {}), HasSubstr("Slow                 : none\n"));
}

TEST(LinksReport, HasAllLinksAndWhatIsSlowAsJson) {
  const auto document = json_report({}, {slow_sender()}, {"it ended early"});
  const auto& result = document["results"][0];
  EXPECT_EQ(result["kind"], "rails");
  EXPECT_EQ(result["usual_rate"], 8);
  EXPECT_EQ(result["links"].size(), 6U);
  EXPECT_EQ(result["links"][0],
            (nlohmann::ordered_json{{"from", 0}, {"to", 1}, {"latency_us", 5.0}, {"rate", 8.0}}));
  ASSERT_EQ(result["slow"].size(), 1U);
  EXPECT_EQ(result["slow"][0],
            (nlohmann::ordered_json{{"what", "node_sends"}, {"from", 1}, {"to", nullptr}, {"rate", 1.0}}));
  EXPECT_EQ(document["errors"][0], "it ended early");
}

}  // namespace
}  // namespace epccl::perf::links
