// What the host computes does not depend on what the calling thread does with subnormals, and how it rounds.
#include "device/host/ieee_floats.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cfloat>
#include <cstring>
#include <vector>

#include "device/host/fp8.hpp"
#include "device/host/row_sum.hpp"
#include "reduction_oracle.hpp"

namespace epccl::device::testing {
namespace {

/// While one exists, this thread rounds upwards and, where that can be asked for here, takes subnormals for zero.
class OddFloats {
 public:
  OddFloats() {
    std::fegetenv(&found_);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  }
  OddFloats(const OddFloats&) = delete;
  OddFloats& operator=(const OddFloats&) = delete;
  ~OddFloats() {
    std::fesetenv(&found_);
  }

 private:
  std::fenv_t found_{};
};

/// A subnormal or what is as small; integers are of any size.
uint64_t tiny(Element element, std::mt19937_64& random) {
  if (!is_float(element)) return random();
  if (element == Element::float64) return random() & 0x801fffffffffffff;
  const Format& format = format_of(element);
  const int all = format.exponent_bits + format.mantissa_bits;
  return (random() & 1) << all | (random() & ((uint64_t{2} << format.mantissa_bits) - 1));
}

constexpr size_t elements = 300;

std::vector<std::byte> tiny_buffer(Element element, std::mt19937_64& random) {
  std::vector<std::byte> buffer(elements * bytes_of(element));
  for (size_t i = 0; i < elements; ++i) {
    const uint64_t bits = tiny(element, random);
    std::memcpy(buffer.data() + i * bytes_of(element), &bits, bytes_of(element));
  }
  return buffer;
}

uint64_t bits_at(const std::vector<std::byte>& buffer, Element element, size_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, buffer.data() + i * bytes_of(element), bytes_of(element));
  return bits;
}

void expect_defined(const Reduction& reduction, const std::vector<std::vector<std::byte>>& buffers) {
  std::vector<ReduceSource> sources;
  for (const auto& buffer : buffers) sources.push_back({buffer.data(), true});
  for (const Simd level : levels()) {
    const SimdLimit limit(level);
    std::vector<std::byte> result(elements * bytes_of(reduction.element));
    {
      const OddFloats odd;
      reduce(reduction, sources, true, result.data(), elements);
    }
    for (size_t i = 0; i < elements; ++i) {
      std::vector<Operand> operands;
      for (const auto& buffer : buffers) operands.push_back({bits_at(buffer, reduction.element, i), true});
      ASSERT_EQ(bits_at(result, reduction.element, i), expected_bits(reduction, operands, true))
          << text_of(level) << ", " << text_of(reduction.element) << " " << text_of(reduction.op);
    }
  }
}

TEST(IeeeFloats, ReductionsAreTheDefinitionInAThreadThatFlushesSubnormals) {
  auto random = seeded_generator();
  for (const Element element : all_elements) {
    const std::vector buffers = {tiny_buffer(element, random), tiny_buffer(element, random),
                                 tiny_buffer(element, random)};
    // A scalar of 1.5, or of what these bits are as an integer.
    const uint64_t scalar = element == Element::float64      ? std::bit_cast<uint64_t>(1.5)
                            : element == Element::float16    ? 0x3e00
                            : element == Element::bfloat16   ? 0x3fc0
                            : element == Element::float8e4m3 ? 0x3c
                            : element == Element::float8e5m2 ? 0x3e
                                                             : std::bit_cast<uint32_t>(1.5F);
    for (const ReduceOp op : all_ops)
      ASSERT_NO_FATAL_FAILURE(expect_defined({element, op, scalar, 3}, buffers));
  }
}

TEST(IeeeFloats, SumsOfRowsAreTheDefinitionInAThreadThatFlushesSubnormals) {
  auto random = seeded_generator();
  for (const RowType type : all_types) {
    Row first(elements * element_bytes(type), random), second = first, result = first;
    for (Row* row : {&first, &second})
      for (size_t i = 0; i < elements; ++i)
        row->set(type, i, random_element(format_of(type), Kind::tiny, random));
    const SumTerm terms[] = {{first.data(), 1, false, false, false}, {second.data(), 0.7F, true, true, true}};
    for (const Simd level : levels()) {
      const SimdLimit limit(level);
      {
        const OddFloats odd;
        sum_row(type, result.data(), terms, elements);
      }
      for (size_t i = 0; i < elements; ++i) {
        volatile float product = 0.7F * static_cast<float>(second.value(type, i));
        const float sum = static_cast<float>(first.value(type, i)) + product;
        ASSERT_EQ(result.value(type, i), nearest(sum, format_of(type))) << text_of(level);
      }
    }
  }
}

TEST(IeeeFloats, RowsAreQuantisedAsDefinedInAThreadThatFlushesSubnormals) {
  auto random = seeded_generator();
  Row source(elements * sizeof(float), random);
  for (size_t i = 0; i < elements; ++i)
    source.set(RowType::float32, i, random_element(float32_format, Kind::tiny, random));
  for (const Simd level : levels()) {
    const SimdLimit limit(level);
    Row values(elements, random), scales(e4m3_scales(elements) * sizeof(float), random);
    {
      const OddFloats odd;
      quantise_e4m3(RowType::float32, source.data(), elements, values.data(), scales.data());
    }
    for (size_t i = 0; i < elements; ++i) {
      ASSERT_EQ(scales.value(RowType::float32, i / e4m3_block), FLT_MIN) << text_of(level);
      const float x = static_cast<float>(source.value(RowType::float32, i));
      ASSERT_EQ(static_cast<uint8_t>(values.data()[i]), e4m3_of(x / FLT_MIN)) << text_of(level);
    }
  }
}

TEST(IeeeFloats, RowsAreDequantisedAsDefinedInAThreadThatFlushesSubnormals) {
  auto random = seeded_generator();
  Row values(elements, random), scales(e4m3_scales(elements) * sizeof(float), random);
  for (size_t i = 0; i < elements; ++i)
    values.data()[i] = static_cast<std::byte>(random_element(e4m3_format, Kind::ordinary, random));
  for (size_t i = 0; i < e4m3_scales(elements); ++i)
    scales.set(RowType::float32, i, random_element(float32_format, Kind::tiny, random));
  for (const RowType type : all_types) {
    for (const Simd level : levels()) {
      const SimdLimit limit(level);
      Row result(elements * element_bytes(type), random);
      {
        const OddFloats odd;
        dequantise_e4m3(values.data(), scales.data(), elements, type, result.data());
      }
      for (size_t i = 0; i < elements; ++i) {
        const float scale = static_cast<float>(scales.value(RowType::float32, i / e4m3_block));
        const float product = float_of_e4m3(static_cast<uint8_t>(values.data()[i])) * scale;
        ASSERT_EQ(result.value(type, i), nearest(product, format_of(type))) << text_of(level);
      }
    }
  }
}

/// 1 where it is rounded to nearest.
float rounded_one() {
  volatile float one = 1, little = 0x1p-30F;
  return one + little;
}
/// Not 0 where subnormals are kept.
float smaller_than_normal() {
  volatile float smallest = FLT_MIN, half = 0.5F;
  return smallest * half;
}

TEST(IeeeFloats, GivesTheThreadBackWhatItFound) {
  float rounded_inside = 0, small_inside = 0, rounded_after = 0, small_after = 0;
  {
    const OddFloats odd;
    {
      const IeeeFloats floats;
      rounded_inside = rounded_one();
      small_inside = smaller_than_normal();
    }
    rounded_after = rounded_one();
    small_after = smaller_than_normal();
  }
  EXPECT_EQ(rounded_inside, 1);
  EXPECT_EQ(small_inside, 0x1p-127F);
  EXPECT_GT(rounded_after, 1);
#if defined(__x86_64__)
  EXPECT_EQ(small_after, 0);
#else
  EXPECT_EQ(small_after, 0x1p-127F);
#endif
}

}  // namespace
}  // namespace epccl::device::testing
