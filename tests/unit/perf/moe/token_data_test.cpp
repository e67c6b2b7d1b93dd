#include "perf/src/moe/token_data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/host/fp16.hpp"
#include "device/host/fp8.hpp"

namespace epccl::perf::moe {
namespace {

const DataType bfloat16{epcclBfloat16, "bfloat16", 2}, float16{epcclFloat16, "half", 2},
    float32{epcclFloat32, "float", 4};

std::vector<float> decode(const DataType& type, const std::vector<std::byte>& row) {
  std::vector<float> values(row.size() / type.bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, row.data() + i * type.bytes, 2);
    if (type == bfloat16) values[i] = device::float_of_bfloat16(bits);
    if (type == float16) values[i] = device::float_of_float16(bits);
    if (type == float32) std::memcpy(&values[i], row.data() + i * 4, 4);
  }
  return values;
}

std::vector<float> token(const TokenData& data, const TokenId& id, int factor = 1) {
  std::vector<std::byte> row(data.row_bytes());
  data.write(id, factor, row.data());
  return decode(data.type(), row);
}

TEST(TokenData, AreIntegersWhoseSumsAreExact) {
  for (const DataType& type : {bfloat16, float16, float32}) {
    for (const uint32_t terms : {1u, 8u, 64u, 128u}) {
      const int largest = largest_exact_value(type, terms);
      EXPECT_GE(largest, 2);
      const TokenData data(type, 4096, largest);
      const auto values = token(data, {3, 5, 7});
      const auto sums = token(data, {3, 5, 7}, static_cast<int>(terms));
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], std::round(values[i]));
        ASSERT_LE(std::abs(values[i]), largest);
        ASSERT_EQ(sums[i], values[i] * static_cast<float>(terms));
      }
    }
  }
}

TEST(TokenData, DifferBySourceTokenAndExchange) {
  const TokenData data(bfloat16, 64, 32);
  const auto values = token(data, {1, 2, 3});
  EXPECT_EQ(values, token(data, {1, 2, 3}));
  for (const TokenId& other : {TokenId{2, 2, 3}, TokenId{1, 3, 3}, TokenId{1, 2, 4}, TokenId{2, 1, 3}})
    EXPECT_NE(values, token(data, other));
}

TEST(TokenData, FillTheWholeRowAndNoMore) {
  const TokenData data(float32, 7, 100);
  std::vector<std::byte> row(data.row_bytes() + 4, std::byte{0xAA});
  data.write({0, 0, 0}, 1, row.data());
  EXPECT_EQ(row[data.row_bytes()], std::byte{0xAA});
  const auto values = decode(float32, row);
  EXPECT_EQ(values[6], std::round(values[6]));
}

TEST(QuantisableTokens, ComeOutOfTheLibrarysQuantisationAsPredicted) {
  for (const DataType& type : {bfloat16, float16, float32}) {
    for (const uint32_t hidden : {1u, 128u, 300u}) {
      const TokenData data(type, hidden, 1);
      std::vector<std::byte> row(data.row_bytes()), values(hidden), wanted(hidden);
      std::vector<float> scales(scales_of(hidden)), wanted_scales(scales.size());
      data.write_quantisable({1, 2, 3}, row.data());
      data.write_quantised({1, 2, 3}, wanted.data(), wanted_scales.data());
      const device::RowType row_type = type == bfloat16  ? device::RowType::bfloat16
                                       : type == float16 ? device::RowType::float16
                                                         : device::RowType::float32;
      device::quantise_e4m3(row_type, row.data(), hidden, values.data(),
                            reinterpret_cast<std::byte*>(scales.data()));
      EXPECT_EQ(values, wanted);
      EXPECT_EQ(scales, wanted_scales);
    }
  }
}

TEST(CompareRows, CountElementsAndDescribeTheFirst) {
  std::vector<std::byte> row(8, std::byte{1});
  EXPECT_EQ(compare_rows(row, row.data(), 2).wrong, 0u);
  std::vector<std::byte> other = row;
  other[3] = std::byte{0x2f};
  other[6] = other[7] = std::byte{9};
  const RowCheck check = compare_rows(row, other.data(), 2);
  EXPECT_EQ(check.wrong, 2u);
  EXPECT_EQ(check.first, 1u);
  EXPECT_EQ(check.expected, "0x0101");
  EXPECT_EQ(check.found, "0x2f01");
}

}  // namespace
}  // namespace epccl::perf::moe
