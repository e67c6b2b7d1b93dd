// e4m3 against its definition, and blocks with their scales at every level of vector instructions.
#include "device/host/fp8.hpp"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/host/fp16.hpp"
#include "numbers.hpp"

namespace epccl::device::testing {
namespace {

/// To the nearest, but what is too large becomes the largest.
double saturated(double value) {
  const double rounded = nearest(value, e4m3_format);
  return std::isinf(rounded) ? std::copysign(e4m3_format.largest, value) : rounded;
}

TEST(E4m3, EveryCodeIsTheNumberOfItsDefinition) {
  for (uint32_t code = 0; code < 256; ++code)
    EXPECT_TRUE(same(float_of_e4m3(static_cast<uint8_t>(code)), decoded(code, e4m3_format))) << code;
  EXPECT_EQ(float_of_e4m3(0x7e), 448);
  EXPECT_EQ(float_of_e4m3(0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(float_of_e4m3(0xff)));
}

TEST(E4m3, EveryCodeComesBack) {
  for (uint32_t code = 0; code < 256; ++code)
    EXPECT_EQ(e4m3_of(float_of_e4m3(static_cast<uint8_t>(code))), code);
}

/// Floats from everywhere, and around every number and tie.
std::vector<float> dense_floats() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < 1ull << 32; bits += 5003)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (double value = -500; value <= 500; value += 0x1p-10) {
    const float middle = static_cast<float>(value);
    values.insert(values.end(),
                  {middle, std::nextafter(middle, HUGE_VALF), std::nextafter(middle, -HUGE_VALF)});
  }
  return values;
}

TEST(E4m3, RoundsToTheNearestAndSaturates) {
  for (const float value : dense_floats())
    ASSERT_TRUE(same(decoded(e4m3_of(value), e4m3_format), saturated(value))) << value;
  EXPECT_EQ(e4m3_of(HUGE_VALF), 0x7e);
  EXPECT_EQ(e4m3_of(-HUGE_VALF), 0xfe);
}

/// A row in FP8, and the calls at one level.
struct Quantised {
  Row values, scales;

  Quantised(size_t elements, std::mt19937_64& random)
      : values(elements, random), scales(e4m3_scales(elements) * sizeof(float), random) {}

  float scale(size_t block) const { return std::bit_cast<float>(scales.bits(RowType::float32, block)); }
  uint8_t code(size_t element) const { return static_cast<uint8_t>(values.data()[element]); }
  double value(size_t element) const { return decoded(code(element), e4m3_format); }
};

Quantised quantised(Simd level, RowType type, const Row& source, size_t elements, std::mt19937_64& random) {
  Quantised result(elements, random);
  const SimdLimit limit(level);
  quantise_e4m3(type, source.data(), elements, result.values.data(), result.scales.data());
  EXPECT_TRUE(result.values.intact() && result.scales.intact());
  return result;
}

/// With 448 among them the scale is 1, so that the levels' own conversion is seen as it is.
TEST(E4m3, EveryLevelConvertsAsTheDefinition) {
  std::vector<float> values = dense_floats();
  std::erase_if(values, [](float value) { return std::isfinite(value) && std::abs(value) > 448; });
  for (size_t i = 0; i < values.size(); i += e4m3_block) values[i] = 448;
  std::mt19937_64 random(1);
  Row source(values.size() * sizeof(float), random);
  std::memcpy(source.data(), values.data(), values.size() * sizeof(float));
  for (const Simd level : levels()) {
    const Quantised result = quantised(level, RowType::float32, source, values.size(), random);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(result.code(i), e4m3_of(values[i])) << text_of(level) << ": " << values[i];
  }
}

float expected_scale(RowType type, const Row& source, size_t begin, size_t end) {
  double amax = 0;
  for (size_t i = begin; i < end; ++i) {
    const double x = std::abs(source.value(type, i));
    if (std::isfinite(x)) amax = std::max(amax, x);
  }
  return amax == 0 ? 1 : std::max(static_cast<float>(amax) / 448.0f, FLT_MIN);
}

void expect_quantised(RowType type, const Row& source, size_t elements, const Quantised& result) {
  for (size_t begin = 0, block = 0; begin < elements; begin += e4m3_block, ++block) {
    const size_t end = std::min(elements, begin + e4m3_block);
    const float scale = expected_scale(type, source, begin, end);
    ASSERT_EQ(result.scale(block), scale) << "block " << block;
    for (size_t i = begin; i < end; ++i) {
      const float x = static_cast<float>(source.value(type, i));
      ASSERT_TRUE(same(result.value(i), saturated(x / scale))) << "element " << i << ": " << x;
    }
  }
}

TEST(E4m3, RandomRowsAreQuantisedAlikeAtEveryLevel) {
  auto random = seeded_generator();
  for (int repeat = 0; repeat < 300; ++repeat) {
    for (const RowType type : all_types) {
      const size_t elements = random() % 700;
      const Kind kind = std::array{Kind::ordinary, Kind::wide, Kind::any_bits}[random() % 3];
      Row source(elements * element_bytes(type), random);
      source.fill(type, elements, kind, random);
      const Quantised first = quantised(Simd::portable, type, source, elements, random);
      for (const Simd level : levels()) {
        SCOPED_TRACE(::testing::Message()
                     << text_of(level) << ", type " << static_cast<int>(type) << ", " << elements);
        const Quantised result = quantised(level, type, source, elements, random);
        expect_quantised(type, source, elements, result);
        if (HasFatalFailure()) return;
        ASSERT_EQ(std::memcmp(result.values.data(), first.values.data(), elements), 0);
      }
    }
  }
}

/// 300 elements, `values` again and again.
Row repeated(const std::vector<float>& values, std::mt19937_64& random) {
  Row row(300 * sizeof(float), random);
  for (size_t i = 0; i < 300; ++i)
    row.set(RowType::float32, i, std::bit_cast<uint32_t>(values[i % values.size()]));
  return row;
}

TEST(E4m3, ZeroBlocksHaveScaleOne) {
  std::mt19937_64 random(1);
  const Row source = repeated({0.0f, -0.0f}, random);
  for (const Simd level : levels()) {
    const Quantised result = quantised(level, RowType::float32, source, 300, random);
    for (size_t block = 0; block < 3; ++block) EXPECT_EQ(result.scale(block), 1);
    for (size_t i = 0; i < 300; ++i) EXPECT_EQ(result.code(i), i % 2 == 0 ? 0x00 : 0x80);
  }
}

TEST(E4m3, NotFiniteElementsDoNotChangeTheScale) {
  std::mt19937_64 random(1);
  const Row source = repeated({HUGE_VALF, 224, -HUGE_VALF, NAN, -NAN}, random);
  for (const Simd level : levels()) {
    const Quantised result = quantised(level, RowType::float32, source, 300, random);
    for (size_t block = 0; block < 3; ++block) EXPECT_EQ(result.scale(block), 0.5f);
    const uint8_t codes[] = {0x7e, 0x7e, 0xfe, 0x7f, 0xff};
    for (size_t i = 0; i < 300; ++i) EXPECT_EQ(result.code(i), codes[i % 5]);
  }
}

TEST(E4m3, BlocksOfOnlyInfinitiesAndNansHaveScaleOne) {
  std::mt19937_64 random(1);
  const Row source = repeated({HUGE_VALF, NAN}, random);
  for (const Simd level : levels()) {
    const Quantised result = quantised(level, RowType::float32, source, 300, random);
    EXPECT_EQ(result.scale(2), 1);
    EXPECT_EQ(result.value(298), 448);
    EXPECT_TRUE(std::isnan(result.value(299)));
  }
}

TEST(E4m3, TinyBlocksKeepANormalScale) {
  std::mt19937_64 random(1);
  const Row source = repeated({0x1p-126f, -0x1p-130f, 0x1p-149f}, random);
  for (const Simd level : levels()) {
    const Quantised result = quantised(level, RowType::float32, source, 300, random);
    EXPECT_EQ(result.scale(0), FLT_MIN);
    EXPECT_EQ(result.value(0), 1);
    EXPECT_EQ(result.value(1), -0x1p-4);
    EXPECT_EQ(result.value(2), 0);
  }
}

/// Rows of random codes and scales, back in every type.
TEST(E4m3, DequantisesToTheDefinedBitsAtEveryLevel) {
  auto random = seeded_generator();
  for (int repeat = 0; repeat < 300; ++repeat) {
    const size_t elements = random() % 700;
    Quantised from(elements, random);
    for (size_t i = 0; i < elements; ++i) from.values.data()[i] = static_cast<std::byte>(random());
    const Kind kind = std::array{Kind::ordinary, Kind::wide}[random() % 2];
    from.scales.fill(RowType::float32, e4m3_scales(elements), kind, random);
    for (const RowType type : all_types) {
      for (const Simd level : levels()) {
        Row to(elements * element_bytes(type), random);
        const SimdLimit limit(level);
        dequantise_e4m3(from.values.data(), from.scales.data(), elements, type, to.data());
        ASSERT_TRUE(to.intact());
        for (size_t i = 0; i < elements; ++i) {
          const float product = static_cast<float>(from.value(i)) * from.scale(i / e4m3_block);
          ASSERT_TRUE(same(to.value(type, i), nearest(product, format_of(type))))
              << text_of(level) << ", element " << i;
        }
      }
    }
  }
}

TEST(E4m3, ThereAndBackIsCloseToWhatItWas) {
  auto random = seeded_generator();
  const size_t elements = 7168;
  Row source(elements * 2, random), back(elements * 2, random);
  source.fill(RowType::bfloat16, elements, Kind::ordinary, random);
  const Quantised there = quantised(best_simd(), RowType::bfloat16, source, elements, random);
  dequantise_e4m3(there.values.data(), there.scales.data(), elements, RowType::bfloat16, back.data());
  for (size_t i = 0; i < elements; ++i) {
    const double x = source.value(RowType::bfloat16, i);
    // Half a step: of 3 bits of mantissa, or of a subnormal; and another for bfloat16.
    const double most = std::max(std::abs(x) / 16, there.scale(i / e4m3_block) * 0x1p-10) + std::abs(x) / 256;
    ASSERT_LE(std::abs(back.value(RowType::bfloat16, i) - x), most) << x;
  }
}

}  // namespace
}  // namespace epccl::device::testing
