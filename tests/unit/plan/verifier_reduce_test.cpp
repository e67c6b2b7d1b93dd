// Reductions, in and out of place: what the verifier accepts, and what it finds.
#include <gtest/gtest.h>

#include <array>

#include "plan/verifier.hpp"
#include "small_plans.hpp"

namespace epccl::plan {
namespace {

constexpr uint8_t all = RowTerm::rank_sum | RowTerm::node_sum;

// Two ranks of one node; rank 0 adds up 8 bytes of both.
struct TwoRanks {
  Builder zero{0}, one{1};

  Status verify(bool in_place = false) && {
    Plan plan{topology::Cluster::uniform(1, 2), "test", {}};
    plan.ranks.push_back(std::move(zero).take());
    plan.ranks.push_back(std::move(one).take());
    plan = testing::with_ends(std::move(plan));
    const std::vector<RowSum> sums{{0, 0, 8, {{0, 0}, {1, 0, RowTerm::unweighted, all}}}};
    if (!in_place) return plan::verify(plan, {}, sums, {});
    return verify_in_place(plan, {}, sums, std::array{InPlace{}, InPlace{}});
  }
};

Location input(int rank, uint64_t offset = 0) {
  return {rank, Buffer::input, offset};
}

TEST(Reduce, OfAllInputsIsTheResult) {
  TwoRanks ranks;
  ranks.zero.reduce(0, std::array{input(1), input(0)}, {}, ranks.zero.output(0), 8, true);
  EXPECT_TRUE(std::move(ranks).verify().ok());
}

TEST(Reduce, MayBeMadeInPartsAndPieces) {
  TwoRanks ranks;
  Builder& b = ranks.zero;
  const uint32_t part = b.reduce(0, std::array{input(1)}, {}, b.scratch(0), 8, false);
  for (const uint64_t at : {0, 5})
    b.reduce(0, std::array{input(0, at)}, std::array{b.scratch(at)}, b.output(at), at == 0 ? 5 : 3, true,
             std::array{part});
  const Status status = std::move(ranks).verify();
  EXPECT_TRUE(status.ok()) << status.message();
}

void expect_found(Status status, const char* what) {
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
}

TEST(Reduce, ThatLeavesARankOutIsFound) {
  TwoRanks ranks;
  ranks.zero.reduce(0, std::array{input(0)}, {}, ranks.zero.output(0), 8, true);
  expect_found(std::move(ranks).verify(), "wrong data");
}

TEST(Reduce, ThatCountsARankTwiceIsFound) {
  TwoRanks ranks;
  ranks.zero.reduce(0, std::array{input(1), input(0), input(1)}, {}, ranks.zero.output(0), 8, true);
  expect_found(std::move(ranks).verify(), "counts rank 1 twice");
}

TEST(Reduce, OfOtherBytesIsFound) {
  TwoRanks ranks;
  Builder& b = ranks.zero;
  const uint32_t swapped = b.copy(0, input(1, 4), b.scratch(0), 4);
  const uint32_t rest = b.copy(0, input(1, 0), b.scratch(4), 4);
  b.reduce(0, std::array{input(0), b.scratch(0)}, {}, b.output(0), 8, true, std::array{swapped, rest});
  expect_found(std::move(ranks).verify(), "wrong data");
}

TEST(Reduce, ThatIsNeverFinishedIsFound) {
  TwoRanks ranks;
  ranks.zero.reduce(0, std::array{input(1), input(0)}, {}, ranks.zero.output(0), 8, false);
  expect_found(std::move(ranks).verify(), "wrong data");
}

TEST(Reduce, OfAFinishedResultIsFound) {
  TwoRanks ranks;
  Builder& b = ranks.zero;
  const uint32_t part = b.reduce(0, std::array{input(1)}, {}, b.scratch(0), 8, true);
  b.reduce(0, std::array{input(0)}, std::array{b.scratch(0)}, b.output(0), 8, true, std::array{part});
  expect_found(std::move(ranks).verify(), "finished");
}

TEST(Reduce, OfAPartialResultAsAnInputIsFound) {
  TwoRanks ranks;
  Builder& b = ranks.zero;
  const uint32_t part = b.reduce(0, std::array{input(1)}, {}, b.scratch(0), 8, false);
  b.reduce(0, std::array{input(0), b.scratch(0)}, {}, b.output(0), 8, true, std::array{part});
  expect_found(std::move(ranks).verify(), "no input");
}

TEST(Reduce, OfWhatIsNotMadeYetIsARace) {
  TwoRanks ranks;
  Builder& b = ranks.zero;
  b.reduce(0, std::array{input(1)}, {}, b.scratch(0), 8, false);
  b.reduce(0, std::array{input(0)}, std::array{b.scratch(0)}, b.output(0), 8, true);
  expect_found(std::move(ranks).verify(), "race");
}

TEST(Reduce, MayWriteWhereItReadsButNotFurtherOn) {
  TwoRanks ranks;
  Builder& b = ranks.zero;
  const uint32_t copied = b.copy(0, input(0), b.scratch(0), 8);
  const uint32_t made =
      b.reduce(0, std::array{b.scratch(0), input(1)}, {}, b.scratch(0), 8, true, std::array{copied});
  b.copy(0, b.scratch(0), b.output(0), 8, std::array{made});
  EXPECT_TRUE(std::move(ranks).verify().ok());
  TwoRanks shifted;
  Builder& c = shifted.zero;
  const uint32_t there = c.copy(0, input(0), c.scratch(0), 8);
  c.reduce(0, std::array{c.scratch(0), input(1)}, {}, c.scratch(4), 8, true, std::array{there});
  expect_found(std::move(shifted).verify(), "4 bytes further");
}

TEST(InPlaceCall, MayOverwriteItsInputWithTheResultOfIt) {
  TwoRanks ranks;
  ranks.zero.reduce(0, std::array{input(1), input(0)}, {}, ranks.zero.output(0), 8, true);
  const Status status = std::move(ranks).verify(true);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(InPlaceCall, ThatOverwritesWhatAnotherStepReadsIsARace) {
  TwoRanks ranks;
  Builder& b = ranks.zero;
  b.copy(0, input(0), b.scratch(0), 8);
  b.reduce(0, std::array{input(1), input(0)}, {}, b.output(0), 8, true);
  expect_found(std::move(ranks).verify(true), "race");
}

TEST(InPlaceCall, ThatReadsWhatItHasOverwrittenIsFound) {
  TwoRanks ranks;
  Builder& b = ranks.zero;
  const uint32_t first = b.reduce(0, std::array{input(1), input(0)}, {}, b.output(0), 8, true);
  b.reduce(0, std::array{input(0)}, {}, b.scratch(0), 8, false, std::array{first});
  expect_found(std::move(ranks).verify(true), "no input");
}

}  // namespace
}  // namespace epccl::plan
