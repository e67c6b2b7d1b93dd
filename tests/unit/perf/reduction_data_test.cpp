// The oracle of reductions, against the library's own: they share nothing, so what both say is right.
#include "perf/src/reduction_data.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "device/host/reduction.hpp"
#include "perf/src/number_format.hpp"

namespace epccl::perf {
namespace {

using Bytes = std::vector<std::byte>;
using device::Element;
using device::ReduceOp;

constexpr RedOp all_ops[] = {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min, RedOp::avg, RedOp::mulsum};
constexpr uint64_t many = 20011;  // more than the pattern's period

ReduceOp operation_of(RedOp op) {
  constexpr ReduceOp operations[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max,
                                     ReduceOp::min, ReduceOp::avg,  ReduceOp::premul_sum};
  return operations[static_cast<size_t>(op)];
}

/// What the library makes of these ranks' inputs, two operands at a time as along a ring.
Bytes reduced(const ReductionData& data, const DataType& type, RedOp op, int ranks, uint64_t elements,
              const std::vector<int>& order) {
  Bytes result(elements * type.bytes), input(result.size());
  for (size_t i = 0; i < order.size(); ++i) {
    data.fill(input, order[i]);
    const device::Reduction reduction{static_cast<Element>(type.id), operation_of(op),
                                      ReductionData::scalar_bits(type, order[i]), ranks};
    const device::ReduceSource sources[] = {{result.data(), false}, {input.data(), true}};
    device::reduce(reduction, std::span(sources).subspan(i == 0 ? 1 : 0), i + 1 == order.size(),
                   result.data(), elements);
  }
  return result;
}

std::vector<int> all_of(int ranks) {
  std::vector<int> order(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Bytes reduced(const ReductionData& data, const DataType& type, RedOp op, int ranks, uint64_t elements) {
  return reduced(data, type, op, ranks, elements, all_of(ranks));
}

class Data : public testing::TestWithParam<int> {
 protected:
  template <class Visit>
  void for_each(const Visit& visit) {
    for (const DataType& type : all_datatypes()) {
      for (const RedOp op : all_ops) {
        SCOPED_TRACE(std::string(type.name) + " " + to_string(op));
        visit(type, op, ReductionData(type, op, GetParam(), 7));
      }
    }
  }
};

TEST_P(Data, AgreesWithTheLibrary) {
  for_each([](const DataType& type, RedOp op, const ReductionData& data) {
    const BlockCheck check = data.check(reduced(data, type, op, GetParam(), many), 0);
    EXPECT_EQ(check.wrong, 0u) << "first " << check.first << ": " << check.expected << ", found "
                               << check.found;
  });
}

TEST_P(Data, FindsAPartThatIsShiftedOrOfAnotherExchange) {
  for_each([](const DataType& type, RedOp op, const ReductionData& data) {
    if (GetParam() == 1 && op == RedOp::prod && is_float(type)) return;  // few values
    const Bytes right = reduced(data, type, op, GetParam(), many);
    const size_t part = 64 * type.bytes;
    for (const uint64_t shift : {1, 2, 64, 1024, 4093, 4096, 8186}) {
      const auto shifted = std::span(right).subspan(shift * type.bytes, part);
      EXPECT_GT(data.check(shifted, 0).wrong, 0u) << shift;
      EXPECT_EQ(data.check(shifted, shift).wrong, 0u) << shift;
    }
    const ReductionData other(type, op, GetParam(), 8);
    EXPECT_GT(other.check(right, 0).wrong, 0u);
  });
}

TEST_P(Data, FindsARankThatIsMissingOrCountedTwice) {
  if (GetParam() == 1) return;
  for_each([](const DataType& type, RedOp op, const ReductionData& data) {
    const bool idempotent = op == RedOp::max || op == RedOp::min;
    for (const int wrong_rank : {0, GetParam() - 1}) {
      std::vector<int> missing = all_of(GetParam()), twice = missing;
      missing.erase(missing.begin() + wrong_rank);
      twice.insert(twice.begin() + wrong_rank, wrong_rank);
      for (const auto& order : {missing, twice}) {
        if (order == twice && idempotent) continue;
        const Bytes result = reduced(data, type, op, GetParam(), 4093, order);
        EXPECT_GT(data.check(result, 0).wrong, 0u)
            << "rank " << wrong_rank << ", " << order.size() << " inputs";
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Data, testing::Values(1, 2, 3, 4, 8, 12, 70));

TEST(ReductionData, DescribesTheFirstWrongElement) {
  const DataType type;
  const ReductionData data(type, RedOp::sum, 2, 1);
  Bytes result = reduced(data, type, RedOp::sum, 2, 100);
  std::fill_n(result.begin() + 40, 4, poison_byte);
  result[80] ^= std::byte{1};
  const BlockCheck check = data.check(result, 0);
  EXPECT_EQ(check.wrong, 2u);
  EXPECT_EQ(check.first, 10u);
  EXPECT_TRUE(check.unwritten);
  EXPECT_NE(check.found.find("0xaaaaaaaa"), std::string::npos) << check.found;
}

TEST(NumberFormat, EncodesWhatItDecodes) {
  for (const DataType& type : all_datatypes()) {
    if (!is_float(type)) continue;
    SCOPED_TRACE(type.name);
    EXPECT_EQ(precision_of(type), type.bytes == 8 ? 53 : precision_of(type));
    const double largest = static_cast<double>(uint64_t{1} << std::min(precision_of(type), 53));
    for (const double value : {0.0, 1.0, -1.0, 0.5, 3.0, largest, largest - 1, -largest}) {
      if (value == largest - 1 && type.bytes == 8) continue;
      EXPECT_EQ(decoded(type, encoded(type, value)), value);
    }
  }
  EXPECT_EQ(encoded({epcclFloat16, "half", 2}, 1.0), 0x3c00u);
  EXPECT_EQ(encoded({epcclBfloat16, "bfloat16", 2}, -2.0), 0xc000u);
  EXPECT_EQ(encoded({epcclFloat8e4m3, "f8e4m3", 1}, 16.0), 0x58u);
  EXPECT_EQ(encoded({epcclFloat8e5m2, "f8e5m2", 1}, 8.0), 0x48u);
}

TEST(RedOps, AreParsedByNcclTestsNames) {
  EXPECT_EQ(parse_redops("all")->size(), std::size(all_ops));
  EXPECT_EQ(*parse_redops("mulsum,sum,mulsum"), (std::vector<RedOp>{RedOp::mulsum, RedOp::sum}));
  EXPECT_NE(parse_redops("add").status().message().find("--op add"), std::string::npos);
}

}  // namespace
}  // namespace epccl::perf
