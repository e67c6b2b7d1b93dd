// Reductions at every level of vector instructions, against the definition and against each other.
#include "device/host/reduction.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "reduction_oracle.hpp"

namespace epccl::device::testing {
namespace {

/// A buffer at some address, mostly not aligned, between guards.
class Buffer {
 public:
  Buffer(Element element, size_t elements, std::mt19937_64& random)
      : element_(element),
        before_(1 + random() % 64),
        bytes_(before_ + elements * bytes_of(element) + 64, guard) {}

  std::byte* data() { return bytes_.data() + before_; }
  const std::byte* data() const { return bytes_.data() + before_; }
  uint64_t bits(size_t i) const {
    uint64_t result = 0;
    std::memcpy(&result, data() + i * bytes_of(element_), bytes_of(element_));
    return result;
  }
  void set(size_t i, uint64_t bits) {
    std::memcpy(data() + i * bytes_of(element_), &bits, bytes_of(element_));
  }
  bool guards_intact(size_t elements) const {
    for (size_t i = 0; i < before_; ++i)
      if (bytes_[i] != guard) return false;
    for (size_t i = before_ + elements * bytes_of(element_); i < bytes_.size(); ++i)
      if (bytes_[i] != guard) return false;
    return true;
  }

 private:
  static constexpr std::byte guard{0xa5};
  Element element_;
  size_t before_;
  std::vector<std::byte> bytes_;
};

uint64_t random_bits(Element element, Kind kind, std::mt19937_64& random) {
  if (element == Element::float64) {
    if (kind == Kind::any_bits && random() % 8 == 0) return random() | 0x7ff0000000000000;
    if (kind != Kind::ordinary) return random();
    return std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(random())) * 0x1p-62);
  }
  if (is_float(element)) return random_element(format_of(element), kind, random);
  return kind == Kind::ordinary ? random() % 100 : random();
}

struct Problem {
  Reduction reduction;
  bool final = true;
  size_t elements = 0;
  std::vector<Buffer> buffers;
  std::vector<bool> raw;

  std::vector<uint64_t> expected() const {
    std::vector<uint64_t> result(elements);
    for (size_t i = 0; i < elements; ++i) {
      std::vector<Operand> operands;
      for (size_t s = 0; s < buffers.size(); ++s) operands.push_back({buffers[s].bits(i), raw[s]});
      result[i] = expected_bits(reduction, operands, final);
    }
    return result;
  }

  std::string text() const {
    return std::string(text_of(reduction.element)) + " " + text_of(reduction.op) + ", " +
           std::to_string(buffers.size()) + " sources of " + std::to_string(elements) + " elements, final " +
           std::to_string(final) + ", ranks " + std::to_string(reduction.ranks);
  }
};

Problem random_problem(Element element, ReduceOp op, size_t sources, size_t elements,
                       std::mt19937_64& random) {
  constexpr Kind kinds[] = {Kind::ordinary, Kind::wide, Kind::any_bits};
  const Kind kind = kinds[random() % 3];
  Problem problem{{element, op, random_bits(element, kind, random), 1 + static_cast<int>(random() % 300)},
                  random() % 2 == 0,
                  elements,
                  {},
                  {}};
  for (size_t s = 0; s < sources; ++s) {
    Buffer& buffer = problem.buffers.emplace_back(element, elements, random);
    problem.raw.push_back(random() % 2 == 0);
    for (size_t i = 0; i < elements; ++i) buffer.set(i, random_bits(element, kind, random));
  }
  return problem;
}

void run(const Problem& problem, const std::vector<Buffer>& buffers, Buffer& destination) {
  std::vector<ReduceSource> sources;
  for (size_t s = 0; s < buffers.size(); ++s) sources.push_back({buffers[s].data(), problem.raw[s]});
  reduce(problem.reduction, sources, problem.final, destination.data(), problem.elements);
}

void expect(const Problem& problem, const std::vector<uint64_t>& expected, const Buffer& result) {
  for (size_t i = 0; i < problem.elements; ++i)
    ASSERT_EQ(result.bits(i), expected[i]) << problem.text() << ", element " << i;
  ASSERT_TRUE(result.guards_intact(problem.elements)) << problem.text();
}

class EveryReduction : public ::testing::TestWithParam<std::tuple<Element, ReduceOp>> {};

TEST_P(EveryReduction, IsTheDefinitionAtEveryLevel) {
  std::mt19937_64 random = seeded_generator();
  const auto [element, op] = GetParam();
  for (const size_t sources : {1, 2, 3, 8, 17}) {
    for (const size_t elements :
         {size_t{0}, size_t{1}, size_t{7}, size_t{63}, size_t{64}, 65 + random() % 900}) {
      const Problem problem = random_problem(element, op, sources, elements, random);
      const std::vector<uint64_t> expected = problem.expected();
      for (const Simd level : levels()) {
        SCOPED_TRACE(text_of(level));
        const SimdLimit limit(level);
        Buffer destination(element, elements, random);
        ASSERT_NO_FATAL_FAILURE(run(problem, problem.buffers, destination));
        ASSERT_NO_FATAL_FAILURE(expect(problem, expected, destination));
      }
    }
  }
}

TEST_P(EveryReduction, MayOverwriteAnyOfItsSources) {
  std::mt19937_64 random = seeded_generator();
  const auto [element, op] = GetParam();
  for (const size_t sources : {1, 2, 3, 8}) {
    const Problem problem = random_problem(element, op, sources, 1 + random() % 500, random);
    const std::vector<uint64_t> expected = problem.expected();
    for (const Simd level : levels()) {
      for (size_t in_place = 0; in_place < sources; ++in_place) {
        SCOPED_TRACE(std::string(text_of(level)) + ", in place of source " + std::to_string(in_place));
        const SimdLimit limit(level);
        std::vector<Buffer> buffers = problem.buffers;
        run(problem, buffers, buffers[in_place]);
        ASSERT_NO_FATAL_FAILURE(expect(problem, expected, buffers[in_place]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reduction, EveryReduction,
                         ::testing::Combine(::testing::ValuesIn(all_elements), ::testing::ValuesIn(all_ops)),
                         [](const auto& param_info) {
                           return std::string(text_of(std::get<0>(param_info.param))) + "_" +
                                  text_of(std::get<1>(param_info.param));
                         });

/// One element, at the best level.
uint64_t reduced(Element element, ReduceOp op, std::vector<uint64_t> operands, int ranks = 1) {
  std::vector<ReduceSource> sources;
  for (const uint64_t& bits : operands) sources.push_back({reinterpret_cast<const std::byte*>(&bits), true});
  uint64_t result = 0;
  reduce({element, op, 0, ranks}, sources, true, reinterpret_cast<std::byte*>(&result), 1);
  return result;
}

TEST(Reduction, AverageOfIntegersIsCutTowardsZero) {
  EXPECT_EQ(reduced(Element::int32, ReduceOp::avg, {7, 0}, 2), 3u);
  EXPECT_EQ(reduced(Element::int32, ReduceOp::avg, {0xfffffff9, 0}, 2), 0xfffffffdu) << "-7 / 2 is -3";
  EXPECT_EQ(reduced(Element::uint32, ReduceOp::avg, {0xfffffff9, 0}, 2), 0x7ffffffcu);
  EXPECT_EQ(reduced(Element::int8, ReduceOp::avg, {100, 27}, 200), 0u) << "more ranks than an int8 can count";
}

TEST(Reduction, AverageOfFloat16DoesNotOverflowWhereTheSumWould) {
  EXPECT_EQ(reduced(Element::float16, ReduceOp::avg, {0x7bff, 0x7bff}, 2), 0x7bffu);
  EXPECT_EQ(reduced(Element::float16, ReduceOp::sum, {0x7bff, 0x7bff}), 0x7c00u);
}

TEST(Reduction, Float8SaturatesAsInNccl) {
  EXPECT_EQ(reduced(Element::float8e4m3, ReduceOp::sum, {0x7e, 0x7e}), 0x7eu);
  EXPECT_EQ(reduced(Element::float8e5m2, ReduceOp::sum, {0x7b, 0x7b}), 0x7bu);
  EXPECT_EQ(reduced(Element::float8e5m2, ReduceOp::sum, {0xfc, 0x00}), 0xfbu) << "an infinity too";
  EXPECT_EQ(reduced(Element::float8e5m2, ReduceOp::min, {0xfc, 0x00}), 0xfcu)
      << "but a minimum is an operand";
}

TEST(Reduction, LargestAndSmallestPreferNumbersToNans) {
  constexpr uint64_t nan = 0xffc12345, one = 0x3f800000, minus_zero = 0x80000000;
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    EXPECT_EQ(reduced(Element::float32, op, {nan, one}), one);
    EXPECT_EQ(reduced(Element::float32, op, {one, nan}), one);
    EXPECT_EQ(reduced(Element::float32, op, {nan, nan}), 0x7fc00000u);
  }
  EXPECT_EQ(reduced(Element::float32, ReduceOp::max, {minus_zero, 0}), 0u);
  EXPECT_EQ(reduced(Element::float32, ReduceOp::min, {0, minus_zero}), minus_zero);
}

TEST(Reduction, SumsOfHalvesAreRoundedOnce) {
  // 2048 + 1 + 1 in float16: rounded after each addition it would stay 2048.
  EXPECT_EQ(reduced(Element::float16, ReduceOp::sum, {0x6800, 0x3c00, 0x3c00}), 0x6801u);
}

}  // namespace
}  // namespace epccl::device::testing
