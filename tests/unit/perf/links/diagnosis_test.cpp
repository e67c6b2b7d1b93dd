// Which links are slow, and whose doing that is.
#include "perf/src/links/diagnosis.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace epccl::perf::links {
namespace {

constexpr double usual = 10e9, slow = 2e9;

/// The rails of nodes with two ranks each: is_slow(from, to).
std::vector<Link> rails(int nodes, const std::function<bool(int from, int to)>& is_slow) {
  std::vector<Link> links;
  for (int from = 0; from < 2 * nodes; ++from)
    for (int to = from % 2; to < 2 * nodes; to += 2)
      if (from != to) links.push_back({from, to, is_slow(from, to) ? slow : usual, 5e-6});
  return links;
}

std::vector<int> two_each(int nodes) {
  std::vector<int> node_of;
  for (int node = 0; node < nodes; ++node) node_of.insert(node_of.end(), 2, node);
  return node_of;
}

std::vector<std::string> found(int nodes, const std::function<bool(int from, int to)>& is_slow) {
  const Diagnosis diagnosis = diagnose(rails(nodes, is_slow), two_each(nodes), 0.75);
  EXPECT_EQ(diagnosis.usual_rate, usual);
  EXPECT_EQ(diagnosis.median_latency, 5e-6);
  std::vector<std::string> texts;
  for (const Finding& finding : diagnosis.slow)
    texts.push_back(to_string(finding, diagnosis, two_each(nodes)));
  return texts;
}

using Texts = std::vector<std::string>;

// What is usual then is that.
TEST(LinkDiagnosis, WhereNearlyAllLinksAreSlowIsEmpty) {
  const Diagnosis diagnosis = diagnose(rails(4, [](int from, int) { return from != 0; }), two_each(4), 0.75);
  EXPECT_EQ(diagnosis.usual_rate, slow);
  EXPECT_TRUE(diagnosis.slow.empty());
}

TEST(LinkDiagnosis, OfLinksThatAreAlikeIsEmpty) {
  EXPECT_TRUE(found(4, [](int, int) { return false; }).empty());
}

TEST(LinkDiagnosis, NamesOneLinkAndItsDirection) {
  EXPECT_EQ(found(4, [](int from, int to) { return from == 2 && to == 6; }),
            (Texts{"rank 2 (node 1) sends to rank 6 (node 3) at 2 GB/s, 0.20 of what is usual"}));
}

TEST(LinkDiagnosis, NamesARankThatSendsSlowlyToAll) {
  EXPECT_EQ(found(4, [](int from, int) { return from == 3; }),
            (Texts{"rank 3 (node 1) sends at 2 GB/s, 0.20 of what is usual"}));
}

TEST(LinkDiagnosis, NamesARankThatReceivesSlowlyFromAll) {
  EXPECT_EQ(found(4, [](int, int to) { return to == 4; }),
            (Texts{"rank 4 (node 2) receives at 2 GB/s, 0.20 of what is usual"}));
}

// Of three nodes two thirds of the links are slow then.
TEST(LinkDiagnosis, NamesANodeAllOfWhoseLinksAreSlowBothWays) {
  for (const int nodes : {3, 4, 5, 9}) {
    EXPECT_EQ(found(nodes, [](int from, int to) { return from / 2 == 1 || to / 2 == 1; }),
              (Texts{"node 1 sends at 2 GB/s, 0.20 of what is usual",
                     "node 1 receives at 2 GB/s, 0.20 of what is usual"}))
        << nodes << " nodes";
  }
}

TEST(LinkDiagnosis, NamesTwoNodesThoughTheyAreSlowToEachOtherToo) {
  const auto bad = [](int rank) { return rank / 2 == 1 || rank / 2 == 4; };
  const Texts texts = found(8, [&](int from, int to) { return bad(from) || bad(to); });
  EXPECT_EQ(texts, (Texts{"node 1 sends at 2 GB/s, 0.20 of what is usual",
                          "node 4 sends at 2 GB/s, 0.20 of what is usual",
                          "node 1 receives at 2 GB/s, 0.20 of what is usual",
                          "node 4 receives at 2 GB/s, 0.20 of what is usual"}));
}

// Of a rank that has only one link each way nobody knows which of the two it is.
TEST(LinkDiagnosis, OfTwoNodesNamesLinks) {
  EXPECT_EQ(found(2, [](int from, int) { return from == 0; }),
            (Texts{"rank 0 (node 0) sends to rank 2 (node 1) at 2 GB/s, 0.20 of what is usual"}));
}

TEST(LinkDiagnosis, BeginsWithTheSlowest) {
  std::vector<Link> links = rails(4, [](int, int) { return false; });
  links[1].rate = 3e9;
  links[5].rate = 1e9;
  const Diagnosis diagnosis = diagnose(links, two_each(4), 0.75);
  ASSERT_EQ(diagnosis.slow.size(), 2U);
  EXPECT_EQ(diagnosis.slow[0].rate, 1e9);
  EXPECT_EQ(diagnosis.slow[1].rate, 3e9);
}

TEST(LinkDiagnosis, CountsAsSlowWhatIsBelowTheThreshold) {
  std::vector<Link> links = rails(4, [](int, int) { return false; });
  links[1].rate = 0.7 * usual;
  EXPECT_EQ(diagnose(links, two_each(4), 0.75).slow.size(), 1U);
  EXPECT_TRUE(diagnose(links, two_each(4), 0.65).slow.empty());
}

TEST(LinkDiagnosis, OfNoLinksIsEmpty) {
  EXPECT_TRUE(diagnose({}, {}, 0.75).slow.empty());
}

}  // namespace
}  // namespace epccl::perf::links
