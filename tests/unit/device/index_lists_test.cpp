// Index lists at every level of vector instructions, against the definitions.
#include "device/host/index_lists.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "numbers.hpp"

namespace epccl::device::testing {
namespace {

constexpr uint32_t poison = 0xdeadbeef;

/// use() at every level, with a trace of which.
template <typename Use>
void at_every_level(Use use) {
  for (const Simd level : levels()) {
    SCOPED_TRACE(text_of(level));
    const SimdLimit limit(level);
    use();
  }
}

template <typename Id>
class NumberFromOne : public ::testing::Test {};
using IdTypes = ::testing::Types<int64_t, int32_t>;
TYPED_TEST_SUITE(NumberFromOne, IdTypes);

TYPED_TEST(NumberFromOne, AddsOneToEveryNumber) {
  auto random = seeded_generator();
  for (size_t size = 0; size < 70; ++size) {
    const auto limit = static_cast<uint32_t>(1 + random() % 300);
    std::vector<TypeParam> ids;
    std::vector<uint32_t> expected;
    for (size_t i = 0; i < size; ++i) {
      expected.push_back(static_cast<uint32_t>(random() % (limit + 1)));
      ids.push_back(static_cast<TypeParam>(expected.back()) - 1);
    }
    at_every_level([&] {
      std::vector<uint32_t> numbers(size + 1, poison);
      EXPECT_TRUE(number_from_one(std::span<const TypeParam>(ids), limit, numbers.data()));
      EXPECT_EQ(numbers.back(), poison);
      numbers.pop_back();
      EXPECT_EQ(numbers, expected);
    });
  }
}

TYPED_TEST(NumberFromOne, SeesOneWrongNumberAmongMany) {
  using Limits = std::numeric_limits<TypeParam>;
  std::vector<TypeParam> wrong{-2, 5, 6, Limits::max(), Limits::max() - 1, Limits::min(), Limits::min() + 1};
  if constexpr (std::is_same_v<TypeParam, int64_t>)  // right in their lower halves
    wrong.insert(wrong.end(), {int64_t{1} << 32, (int64_t{1} << 32) - 1, int64_t{-1} << 32});
  for (const TypeParam bad : wrong)
    for (size_t at = 0; at < 37; ++at)
      at_every_level([&] {
        std::vector<TypeParam> ids(37, 4);
        ids[at] = bad;
        std::vector<uint32_t> numbers(ids.size());
        EXPECT_FALSE(number_from_one(std::span<const TypeParam>(ids), 5, numbers.data())) << bad << at;
      });
}

TEST(SplitRuns, MarksTheFirstOfEveryRun) {
  auto random = seeded_generator();
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> words;
    std::vector<uint32_t> lower, upper;
    const size_t size = random() % 100;
    for (uint32_t token = static_cast<uint32_t>(random() % 3); words.size() < size;
         token += 1 + static_cast<uint32_t>(random() % 1000)) {
      upper.push_back(token);
      for (size_t run = 1 + random() % (round % 40 + 1), i = 0; i < run; ++i) {
        const auto low = static_cast<uint32_t>(random()) & ~1U;
        words.push_back(uint64_t{token} << 32 | low);
        lower.push_back(low | (i == 0 ? 1 : 0));
      }
    }
    at_every_level([&] {
      std::vector<uint32_t> low(words.size() + 1, poison), high(words.size() + 1, poison);
      ASSERT_EQ(split_runs(words, low.data(), high.data()), upper.size());
      EXPECT_EQ(low.back(), poison);
      EXPECT_EQ(high.back(), poison);
      low.pop_back();
      high.resize(upper.size());
      EXPECT_EQ(low, lower);
      EXPECT_EQ(high, upper);
    });
  }
}

TEST(IndicesWithBit, AreAllThatHaveIt) {
  auto random = seeded_generator();
  for (int round = 0; round < 200; ++round) {
    const auto bit = static_cast<unsigned>(random() % 64);
    std::vector<uint64_t> masks(random() % 100);
    std::vector<uint32_t> expected;
    for (uint32_t i = 0; i < masks.size(); ++i) {
      masks[i] = random();
      if ((masks[i] >> bit & 1) != 0) expected.push_back(i);
    }
    at_every_level([&] {
      std::vector<uint32_t> indices(masks.size() + 1, poison);
      ASSERT_EQ(indices_with_bit(masks, bit, indices.data()), expected.size());
      EXPECT_EQ(indices.back(), poison);
      indices.resize(expected.size());
      EXPECT_EQ(indices, expected);
    });
  }
}

TEST(AscendBelow, IsTrueOfWhatAscends) {
  auto random = seeded_generator();
  for (size_t size = 0; size < 70; ++size) {
    std::vector<uint32_t> numbers;
    uint32_t next = 0;
    for (size_t i = 0; i < size; ++i) next = 1 + numbers.emplace_back(next + random() % 2 * (random() % 999));
    at_every_level([&] {
      EXPECT_TRUE(ascend_below(numbers, next));
      EXPECT_TRUE(ascend_below(numbers, 1U << 31));
      EXPECT_EQ(ascend_below(numbers, next - 1), size == 0);
    });
  }
}

TEST(AscendBelow, SeesOneThatDoesNot) {
  for (const uint32_t bad : {0U, 9U, 1U << 31, (1U << 31) + 40, UINT32_MAX})
    for (size_t at = 1; at < 37; ++at)
      at_every_level([&] {
        std::vector<uint32_t> numbers;
        for (uint32_t i = 0; i < 37; ++i) numbers.push_back(10 + i);
        numbers[at] = bad;
        EXPECT_FALSE(ascend_below(numbers, 100)) << bad << " at " << at;
        numbers.assign(37, 7);
        EXPECT_FALSE(ascend_below(numbers, 100));
      });
}

TEST(WordsFit, ComparesEveryWordAndItsPart) {
  auto random = seeded_generator();
  for (int round = 0; round < 300; ++round) {
    const uint32_t few = static_cast<uint32_t>(random() % 200);
    const WordLimits limits{std::array{few, 1U << 30, 1U << 31}[random() % 3], 0x7e,
                            static_cast<uint32_t>(random() % 0x81)};
    std::vector<uint32_t> words(random() % 70);
    bool fit = true;
    size_t expected = 0;
    for (uint32_t& word : words) {
      const bool wild = random() % 100 == 0;
      word = wild ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(random() % 100);
      fit = fit && word < limits.limit && (word & limits.mask) < limits.masked_limit;
      expected += word % 2;
    }
    at_every_level([&] {
      size_t odd = poison;
      EXPECT_EQ(words_fit(words, limits, odd), fit);
      EXPECT_EQ(odd, expected);
    });
  }
}

}  // namespace
}  // namespace epccl::device::testing
