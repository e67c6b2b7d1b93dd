// The kernels' fast divisions: the float8 of the true quotient, for all divisors that scales can be; and scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "../device/numbers.hpp"
#include "device/kernels/body/quantise.hpp"

namespace epccl::device::kernels {
namespace {

uint8_t magnitude_code(float value) {
  return e4m3_of(value) & 0x7f;
}

void expect_same(float value, float divisor) {
  const Divisor by(divisor);
  ASSERT_EQ(by.is_extreme(), divisor < 0x1p-60F || divisor > 0x1p100F);
  ASSERT_EQ(magnitude_code(by.quotient(value)), magnitude_code(value / divisor));
  // Of a block whose scale it is no quotient is larger than this.
  if (by.is_extreme() || !std::isfinite(value) || std::fabs(value / divisor) > 450) return;
  ASSERT_EQ(magnitude_code(by.quotient_of_finite(value)), magnitude_code(value / divisor))
      << value << " / " << divisor;
}

/// A divisor of any size that scales have; now and then with few or with all bits.
float random_divisor(std::mt19937_64& random) {
  uint32_t mantissa = static_cast<uint32_t>(random()) & 0x7fffff;
  if (random() % 8 == 0) mantissa = random() % 2 == 0 ? 0x7fffff : 1U << random() % 23;
  return std::bit_cast<float>(static_cast<uint32_t>(1 + random() % 245) << 23 | mantissa);
}

TEST(Divisor, IsExactForAllBfloat16) {
  std::mt19937_64 random = device::testing::seeded_generator();
  for (int repetition = 0; repetition < 30; ++repetition) {
    const float divisor = random_divisor(random);
    for (uint32_t bits = 0; bits < 0x10000; ++bits)
      ASSERT_NO_FATAL_FAILURE(expect_same(float_of_bfloat16(static_cast<uint16_t>(bits)), divisor));
  }
}

// Halfway between two float8, and next to it, the last bit of the quotient decides.
TEST(Divisor, IsExactNextToTies) {
  std::mt19937_64 random = device::testing::seeded_generator();
  for (int repetition = 0; repetition < 3000; ++repetition) {
    const float divisor = random_divisor(random);
    for (uint8_t code = 0; code < 0x7e; ++code) {
      const float tie = (float_of_e4m3(code) + float_of_e4m3(code + 1)) / 2;
      float value = tie * divisor;
      if (!std::isfinite(value)) continue;
      value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) + static_cast<uint32_t>(random() % 7) - 3);
      ASSERT_NO_FATAL_FAILURE(expect_same(value, divisor));
    }
  }
}

/// As fp8.hpp has it.
float true_scale(float amax) {
  if (amax == 0) return 1;
  return std::max(amax / e4m3_max, 0x1p-126F);
}

TEST(ScaleOf, IsTheRoundedQuotient) {
  std::mt19937_64 random = device::testing::seeded_generator();
  constexpr uint32_t infinity = 0x7f800000, some = 4099;  // a prime: all exponents, all kinds of last bits
  for (uint32_t bits = static_cast<uint32_t>(random() % some); bits < infinity; bits += some)
    ASSERT_EQ(scale_of(bits), true_scale(std::bit_cast<float>(bits))) << std::hex << bits;
}

TEST(ScaleOf, IsOneForZerosAndNeverSubnormal) {
  EXPECT_EQ(scale_of(0), 1);
  for (uint32_t bits = 1; bits < 100000; ++bits) ASSERT_EQ(scale_of(bits), 0x1p-126F);
  // Around the smallest normal quotient.
  const auto smallest = std::bit_cast<uint32_t>(0x1p-126F * e4m3_max);
  for (uint32_t bits = smallest - 5000; bits < smallest + 5000; ++bits)
    ASSERT_EQ(scale_of(bits), true_scale(std::bit_cast<float>(bits))) << std::hex << bits;
}

}  // namespace
}  // namespace epccl::device::kernels
