// bfloat16 and float16 against their definitions.
#include "device/host/fp16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "numbers.hpp"

namespace epccl::device::testing {
namespace {

struct Half {
  const char* name;
  const Format& format;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
  uint16_t nan;
};
const Half halves[] = {{"bfloat16", bfloat16_format, float_of_bfloat16, bfloat16_of, bfloat16_nan},
                       {"float16", float16_format, float_of_float16, float16_of, float16_nan}};

TEST(Fp16, EveryPatternWidensExactlyAndComesBack) {
  for (const Half& half : halves) {
    SCOPED_TRACE(half.name);
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float value = half.widen(static_cast<uint16_t>(bits));
      ASSERT_TRUE(same(value, decoded(bits, half.format))) << bits;
      ASSERT_EQ(half.narrow(value), std::isnan(value) ? half.nan : bits);
    }
  }
}

/// The point half way above each number, and the floats on either side of it.
TEST(Fp16, TiesGoToEvenAndTheirNeighboursToTheNearer) {
  for (const Half& half : halves) {
    SCOPED_TRACE(half.name);
    for (uint32_t bits = 0; bits < 0xffff; ++bits) {
      const double low = decoded(bits, half.format), high = decoded(bits + 1, half.format);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const float tie = static_cast<float>((low + high) / 2);
      ASSERT_EQ(half.narrow(tie), bits % 2 == 0 ? bits : bits + 1);
      for (const float value : {std::nextafter(tie, HUGE_VALF), std::nextafter(tie, -HUGE_VALF)})
        ASSERT_TRUE(same(half.widen(half.narrow(value)), nearest(value, half.format))) << value;
    }
  }
}

TEST(Fp16, RoundsFloatsFromEverywhereToTheNearest) {
  for (const Half& half : halves) {
    SCOPED_TRACE(half.name);
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 4099) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
      ASSERT_TRUE(same(half.widen(half.narrow(value)), nearest(value, half.format))) << value;
    }
  }
}

TEST(Fp16, WhatIsTooLargeBecomesInfinity) {
  EXPECT_EQ(float16_of(65519.996f), 0x7bff);
  EXPECT_EQ(float16_of(65520), 0x7c00)
      << "half a step above the largest is a tie, and the even side is infinity";
  EXPECT_EQ(float16_of(-1e30f), 0xfc00);
  EXPECT_EQ(bfloat16_of(0x1.fefffep127f), 0x7f7f);
  EXPECT_EQ(bfloat16_of(0x1.ffp127f), 0x7f80);
  EXPECT_EQ(bfloat16_of(-std::numeric_limits<float>::max()), 0xff80);
}

TEST(Fp16, EveryNanBecomesTheSame) {
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u, 0xffc00000u}) {
    EXPECT_EQ(float16_of(std::bit_cast<float>(bits)), float16_nan);
    EXPECT_EQ(bfloat16_of(std::bit_cast<float>(bits)), bfloat16_nan);
  }
}

}  // namespace
}  // namespace epccl::device::testing
