// sum_row at every level of vector instructions, against the definition and against each other.
#include "device/host/row_sum.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "device/host/fp16.hpp"
#include "device/host/simd.hpp"
#include "numbers.hpp"

namespace epccl::device::testing {
namespace {

float rounded(float value, RowType type) {
  return static_cast<float>(nearest(value, format_of(type)));
}

/// The definition, one element at a time.
double expected(RowType type, const std::vector<SumTerm>& terms, const std::vector<Row>& rows,
                size_t element) {
  float rank = 0, node = 0, total = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const float x = static_cast<float>(rows[i].value(type, element));
    // volatile: else a compiler may fuse the product with the addition.
    volatile float product = terms[i].weighted ? terms[i].weight * x : x;
    rank += product;
    if (terms[i].ends_rank) {
      node += rounded(rank, type);
      rank = 0;
    }
    if (terms[i].ends_node) {
      total += rounded(node, type);
      node = 0;
    }
  }
  return nearest(total, format_of(type));
}

uint32_t nan_of(RowType type) {
  if (type == RowType::float32) return 0x7fc00000;
  return type == RowType::bfloat16 ? bfloat16_nan : float16_nan;
}

struct Sum {
  RowType type;
  size_t elements;
  std::vector<Row> rows;
  std::vector<SumTerm> terms;

  Row result(Simd level, std::mt19937_64& random) const {
    Row row(elements * element_bytes(type), random);
    const SimdLimit limit(level);
    sum_row(type, row.data(), terms, elements);
    return row;
  }
};

/// How terms are grouped: as in real sums, where the last ends all, or by chance.
void random_ends(std::vector<SumTerm>& terms, std::mt19937_64& random) {
  const bool real = random() % 4 != 0;
  const uint64_t rank_size = 1 + random() % 4, node_size = 1 + random() % 3;
  for (SumTerm& term : terms) {
    term.ends_rank = random() % rank_size == 0;
    term.ends_node = (term.ends_rank || !real) && random() % node_size == 0;
  }
  if (real && !terms.empty()) terms.back().ends_rank = terms.back().ends_node = true;
}

Sum random_sum(RowType type, std::mt19937_64& random) {
  Sum sum{type, random() % 301, {}, std::vector<SumTerm>(random() % 13)};
  const Kind kind = std::array{Kind::ordinary, Kind::ordinary, Kind::wide, Kind::any_bits}[random() % 4];
  const uint64_t weighted = random() % 3;
  sum.rows.reserve(sum.terms.size());
  for (SumTerm& term : sum.terms) {
    Row& row = sum.rows.emplace_back(sum.elements * element_bytes(type), random);
    row.fill(type, sum.elements, kind, random);
    term.row = row.data();
    term.weighted = weighted == 2 || (weighted == 1 && random() % 2 == 0);
    term.weight = std::bit_cast<float>(random_element(float32_format, kind, random));
  }
  random_ends(sum.terms, random);
  return sum;
}

void expect_right_everywhere(const Sum& sum, std::mt19937_64& random) {
  std::vector<std::byte> first;
  for (const Simd level : levels()) {
    SCOPED_TRACE(text_of(level));
    const Row result = sum.result(level, random);
    ASSERT_TRUE(result.intact());
    for (size_t i = 0; i < sum.elements; ++i) {
      const double right = expected(sum.type, sum.terms, sum.rows, i);
      ASSERT_TRUE(same(result.value(sum.type, i), right))
          << "element " << i << ": " << result.value(sum.type, i) << " instead of " << right;
      if (!std::isnan(right)) continue;
      ASSERT_EQ(result.bits(sum.type, i), nan_of(sum.type));
    }
    const std::vector<std::byte> bytes(result.data(), result.data() + sum.elements * element_bytes(sum.type));
    if (level == Simd::portable) first = bytes;
    ASSERT_EQ(bytes, first);
  }
}

TEST(RowSum, RandomSumsHaveTheDefinedBitsAtEveryLevel) {
  auto random = seeded_generator();
  for (int repeat = 0; repeat < 1000; ++repeat) {
    for (const RowType type : all_types) {
      const Sum sum = random_sum(type, random);
      SCOPED_TRACE(::testing::Message() << "repeat " << repeat << ", type " << static_cast<int>(type) << ", "
                                        << sum.elements << " elements, " << sum.terms.size() << " terms");
      expect_right_everywhere(sum, random);
      if (HasFatalFailure()) return;
    }
  }
}

/// Sums of single-element rows, given as bits of `type`.
Sum small_sum(RowType type, std::vector<SumTerm> terms, const std::vector<uint32_t>& values,
              size_t elements) {
  std::mt19937_64 random(1);
  Sum sum{type, elements, {}, std::move(terms)};
  sum.rows.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    Row& row = sum.rows.emplace_back(elements * element_bytes(type), random);
    for (size_t element = 0; element < elements; ++element) row.set(type, element, values[i]);
    sum.terms[i].row = row.data();
  }
  return sum;
}

/// All elements of the sum at every level; they have to be one number.
void expect_value(const Sum& sum, double value) {
  std::mt19937_64 random(1);
  for (const Simd level : levels()) {
    const Row result = sum.result(level, random);
    for (size_t i = 0; i < sum.elements; ++i)
      EXPECT_TRUE(same(result.value(sum.type, i), value))
          << text_of(level) << ": " << result.value(sum.type, i);
  }
}

constexpr SumTerm open = {};
constexpr SumTerm ends_rank = {nullptr, 1, false, true, false};
constexpr SumTerm ends_all = {nullptr, 1, false, true, true};
SumTerm weighted(float weight, SumTerm term) {
  term.weight = weight;
  term.weighted = true;
  return term;
}

TEST(RowSum, OfNothingIsZero) {
  for (const RowType type : all_types) expect_value(small_sum(type, {}, {}, 100), 0.0);
}

TEST(RowSum, OfMinusZeroIsPlusZero) {
  for (const RowType type : all_types) {
    const uint32_t minus_zero = type == RowType::float32 ? 0x80000000 : 0x8000;
    expect_value(small_sum(type, {ends_all}, {minus_zero}, 100), 0.0);
    expect_value(small_sum(type, {weighted(1, ends_all), ends_all}, {minus_zero, minus_zero}, 100), 0.0);
  }
  // Minus a half of the smallest float16 is rounded to -0, and that is added to +0.
  expect_value(small_sum(RowType::float16, {weighted(0.5f, ends_all)}, {0x8001}, 100), 0.0);
}

TEST(RowSum, ProductsAreRoundedBeforeTheyAreAdded) {
  const float x = 1 + 0x1p-12f;
  volatile float square = x * x;
  const Sum sum = small_sum(RowType::float32, {open, weighted(x, ends_all)},
                            {std::bit_cast<uint32_t>(-square), std::bit_cast<uint32_t>(x)}, 100);
  expect_value(sum, 0.0);
}

TEST(RowSum, RoundsEachRankAndEachNode) {
  const std::vector<uint32_t> values = {bfloat16_of(256), bfloat16_of(1), bfloat16_of(1)};
  const auto sum_of = [&](const SumTerm& first, const SumTerm& second) {
    return small_sum(RowType::bfloat16, {first, second, ends_all}, values, 100);
  };
  expect_value(sum_of(open, open), 258);
  expect_value(sum_of(ends_rank, ends_rank), 258);
  expect_value(sum_of(open, ends_rank), 256);      // 257, a tie, becomes 256, twice
  expect_value(sum_of(ends_rank, ends_all), 256);  // the same, with nodes
  expect_value(sum_of(ends_all, open), 258);
}

TEST(RowSum, TermsAfterTheLastEndAreLost) {
  const std::vector<uint32_t> values = {bfloat16_of(1), bfloat16_of(2)};
  expect_value(small_sum(RowType::bfloat16, {ends_all, open}, values, 100), 1);
  expect_value(small_sum(RowType::bfloat16, {ends_all, ends_rank}, values, 100), 1);
}

TEST(RowSum, OverflowIsInfinity) {
  const std::vector<uint32_t> values = {float16_of(65504), float16_of(16)};
  expect_value(small_sum(RowType::float16, {open, ends_all}, values, 100), HUGE_VAL);
  expect_value(small_sum(RowType::float16, {weighted(-1, open), weighted(-1, ends_all)}, values, 100),
               -HUGE_VAL);
  expect_value(small_sum(RowType::float16, {open, weighted(0.9375f, ends_all)}, values, 100), 65504);
}

TEST(RowSum, NanStaysNanWhateverItsBits) {
  for (const uint32_t bits : {0x7f81u, 0x7fffu, 0xffffu, 0xff81u})
    expect_value(small_sum(RowType::bfloat16, {ends_rank, ends_all}, {bits, bfloat16_of(1)}, 100), NAN);
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xffffffffu})
    for (const RowType type : all_types)
      expect_value(small_sum(type, {weighted(std::bit_cast<float>(bits), ends_rank), ends_all}, {0, 0}, 100),
                   NAN);
}

TEST(RowSum, DestinationMayBeOneOfTheRows) {
  auto random = seeded_generator();
  for (const RowType type : all_types) {
    for (const Simd level : levels()) {
      Sum sum = random_sum(type, random);
      while (sum.terms.empty()) sum = random_sum(type, random);
      const Row apart = sum.result(level, random);
      Row& row = sum.rows[random() % sum.rows.size()];
      const SimdLimit limit(level);
      sum_row(type, row.data(), sum.terms, sum.elements);
      EXPECT_EQ(std::memcmp(row.data(), apart.data(), sum.elements * element_bytes(type)), 0)
          << text_of(level);
    }
  }
}

}  // namespace
}  // namespace epccl::device::testing
