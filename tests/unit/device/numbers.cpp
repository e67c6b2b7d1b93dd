#include "numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace epccl::device::testing {
namespace {

constexpr std::byte guard{0xa5};

int bias_of(const Format& format) {
  return (1 << (format.exponent_bits - 1)) - 1;
}

}  // namespace

const Format& format_of(RowType type) {
  if (type == RowType::float32) return float32_format;
  return type == RowType::bfloat16 ? bfloat16_format : float16_format;
}

double decoded(uint32_t bits, const Format& format) {
  const int all = format.exponent_bits + format.mantissa_bits;
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = (bits >> all & 1) != 0 ? -1.0 : 1.0;
  const uint32_t ones = (1u << all) - 1;
  if (!format.infinities && (bits & ones) == ones) return std::numeric_limits<double>::quiet_NaN();
  if (format.infinities && exponent == (1 << format.exponent_bits) - 1) {
    if (mantissa != 0) return std::numeric_limits<double>::quiet_NaN();
    return sign * std::numeric_limits<double>::infinity();
  }
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias_of(format));
  return sign * std::ldexp(1 + fraction, exponent - bias_of(format));
}

double nearest(double value, const Format& format) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), 1 - bias_of(format));
  const double step = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double rounded = std::nearbyint(value / step) * step;
  if (std::abs(rounded) > format.largest)
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  return std::copysign(rounded, value);
}

bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

std::mt19937_64 seeded_generator() {
  const char* given = std::getenv("EPCCL_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  fmt::print("EPCCL_TEST_SEED={}\n", seed);
  return std::mt19937_64(seed);
}

std::vector<Simd> levels() {
  std::vector<Simd> all = {Simd::portable};
  if (best_simd() >= Simd::avx2) all.push_back(Simd::avx2);
  if (best_simd() >= Simd::avx512) all.push_back(Simd::avx512);
  return all;
}

std::string text_of(Simd level) {
  if (level == Simd::portable) return "portable";
  return level == Simd::avx2 ? "avx2" : "avx512";
}

uint32_t random_element(const Format& format, Kind kind, std::mt19937_64& random) {
  const uint32_t exponents = 1u << format.exponent_bits;
  const uint32_t sign = static_cast<uint32_t>(random() & 1) << (format.exponent_bits + format.mantissa_bits);
  const uint32_t mantissa = static_cast<uint32_t>(random()) & ((1u << format.mantissa_bits) - 1);
  const auto with_exponent = [&](uint64_t exponent) {
    return sign | static_cast<uint32_t>(exponent) << format.mantissa_bits | mantissa;
  };
  if (kind == Kind::any_bits) return with_exponent(random() % exponents);
  if (kind == Kind::wide) return with_exponent(random() % (exponents - 1));
  if (kind == Kind::tiny) return with_exponent(random() % 2);
  if (random() % 16 == 0) return sign;
  return with_exponent(static_cast<uint32_t>(bias_of(format)) - 4 + random() % 9);
}

Row::Row(size_t bytes, std::mt19937_64& random) : before_(1 + random() % 64) {
  bytes_.assign(before_ + bytes, guard);
}

uint32_t Row::bits(RowType type, size_t element) const {
  const size_t size = element_bytes(type);
  uint32_t result = 0;
  std::memcpy(&result, data() + element * size, size);
  return result;
}

void Row::set(RowType type, size_t element, uint32_t bits) {
  const size_t size = element_bytes(type);
  std::memcpy(data() + element * size, &bits, size);
}

void Row::fill(RowType type, size_t elements, Kind kind, std::mt19937_64& random) {
  for (size_t i = 0; i < elements; ++i) set(type, i, random_element(format_of(type), kind, random));
}

bool Row::intact() const {
  return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(before_),
                     [](std::byte b) { return b == guard; });
}

}  // namespace epccl::device::testing
