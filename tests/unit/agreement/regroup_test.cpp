// Ranks that disagreed about a shrink meet anew, not where some of them may still be.
#include "runtime/comm/regroup.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "../calls/control_line.hpp"

namespace epccl::runtime {
namespace {

/// A rank of four; rank 0, where they meet, is another one.
class Shrinking {
 public:
  explicit Shrinking(int rank)
      : regroup_(
            rank, nullptr, points_, line_, [](const std::vector<int>&, Absence) { return ""; },
            [](int, bool) {}, 1.0) {}

  /// Where it meets the others, who do not come; `kept` where that is since they disagree.
  uint64_t in_vain(const std::vector<int>& excluded, std::optional<std::vector<int>> kept = {}) {
    const Gathering gathering = regroup_.gather_shrunk(excluded, Absence::gone).value();
    if (kept) line_.verdict = {"rank 0 excludes others", std::move(*kept)};
    for (const bool last : {false, true}) EXPECT_EQ(gathering.check(last).ok(), !line_.verdict);
    line_.verdict.reset();
    gathering.in_vain();
    return gathering.session;
  }

 private:
  class Line : public ControlLine {
   public:
    std::optional<ShrinkVerdict> shrink_verdict(uint32_t, bool) override { return verdict; }
    std::optional<ShrinkVerdict> verdict;
  };
  static std::vector<UniqueId> some_points() {
    UniqueId point{};
    point.bytes.front() = std::byte{1};
    return std::vector(4, point);
  }

  const std::vector<UniqueId> points_ = some_points();
  Line line_;
  Regroup regroup_;
};

TEST(RegroupInVain, TakesTheSamePlaceAgain) {
  Shrinking one(1), two(2);
  const uint64_t first = one.in_vain({3});
  EXPECT_EQ(one.in_vain({3}), first);
  EXPECT_EQ(two.in_vain({3}), first);
}

TEST(RegroupAfterADisagreement, TakesAnotherPlaceWhateverEachHadAskedFor) {
  Shrinking one(1), two(2);
  const std::vector<int> kept{0, 1, 2};
  const uint64_t first = one.in_vain({3}, kept);
  EXPECT_NE(two.in_vain({1, 3}, kept), first);
  const uint64_t second = one.in_vain({3});
  EXPECT_NE(second, first);
  EXPECT_EQ(two.in_vain({3}), second);
}

// Those with a rank that was not in it count it not: that one has not heard of it.
TEST(RegroupAfterADisagreement, TakesThePlaceThatOthersKnowWithThoseWhoWereNotInIt) {
  Shrinking one(1), two(2);
  one.in_vain({3}, std::vector{0, 1});
  EXPECT_EQ(one.in_vain({3}), two.in_vain({3}));
}

}  // namespace
}  // namespace epccl::runtime
