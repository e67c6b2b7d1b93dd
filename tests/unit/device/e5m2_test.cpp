// FP8 e5m2 against its definition.
#include "device/host/e5m2.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "numbers.hpp"

namespace epccl::device::testing {
namespace {

double rounded(double value) {
  const double result = nearest(value, e5m2_format);
  return std::abs(result) > e5m2_format.largest ? std::copysign(e5m2_format.largest, value) : result;
}

TEST(E5m2, EveryCodeWidensExactlyAndComesBack) {
  for (uint32_t code = 0; code < 256; ++code) {
    SCOPED_TRACE(code);
    const float value = float_of_e5m2(static_cast<uint8_t>(code));
    EXPECT_TRUE(same(value, decoded(code, e5m2_format)));
    const uint8_t back = e5m2_of(value);
    if (std::isnan(value))
      EXPECT_EQ(back & 0x7f, 0x7f);
    else if (std::isinf(value))
      EXPECT_EQ(back, code - 1) << "saturates";
    else
      EXPECT_EQ(back, code);
  }
}

/// The point half way above each number, and the floats on either side of it.
TEST(E5m2, TiesGoToEvenAndTheirNeighboursToTheNearer) {
  for (uint32_t code = 0; code < 255; ++code) {
    const double low = decoded(code, e5m2_format), high = decoded(code + 1, e5m2_format);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const float tie = static_cast<float>((low + high) / 2);
    ASSERT_EQ(e5m2_of(tie), code % 2 == 0 ? code : code + 1);
    for (const float value : {std::nextafter(tie, HUGE_VALF), std::nextafter(tie, -HUGE_VALF)})
      ASSERT_TRUE(same(float_of_e5m2(e5m2_of(value)), rounded(value))) << value;
  }
}

TEST(E5m2, RoundsFloatsFromEverywhereToTheNearest) {
  for (uint64_t bits = 0; bits < 1ull << 32; bits += 4099) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const double expected = std::isinf(value) ? std::copysign(e5m2_format.largest, value) : rounded(value);
    ASSERT_TRUE(same(float_of_e5m2(e5m2_of(value)), expected)) << value;
  }
}

}  // namespace
}  // namespace epccl::device::testing
