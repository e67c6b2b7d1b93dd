#include "perf/src/number_format.hpp"

#include <cmath>
#include <limits>

namespace epccl::perf {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  bool infinities;  // else only all ones is special, and is NaN

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

Format format_of(const DataType& type) {
  switch (type.id) {
    case epcclFloat16:
      return {5, 10, true};
    case epcclFloat64:
      return {11, 52, true};
    case epcclBfloat16:
      return {8, 7, true};
    case epcclFloat8e4m3:
      return {4, 3, false};
    case epcclFloat8e5m2:
      return {5, 2, true};
    default:
      return {8, 23, true};
  }
}

}  // namespace

bool is_float(const DataType& type) {
  return type.id >= epcclFloat16;
}

int precision_of(const DataType& type) {
  return format_of(type).mantissa_bits + 1;
}

uint64_t encoded(const DataType& type, double value) {
  const Format format = format_of(type);
  const uint64_t sign = uint64_t{std::signbit(value)} << (format.exponent_bits + format.mantissa_bits);
  if (value == 0) return sign;
  int exponent = 0;
  const double half_to_one = std::frexp(std::abs(value), &exponent);
  const auto mantissa = static_cast<uint64_t>(std::ldexp(2 * half_to_one - 1, format.mantissa_bits));
  return sign | static_cast<uint64_t>(exponent - 1 + format.bias()) << format.mantissa_bits | mantissa;
}

double decoded(const DataType& type, uint64_t bits) {
  const Format format = format_of(type);
  const int width = format.exponent_bits + format.mantissa_bits;
  const uint64_t magnitude = bits & ((uint64_t{1} << width) - 1);
  const uint64_t mantissa = magnitude & ((uint64_t{1} << format.mantissa_bits) - 1);
  const auto exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const int all_ones = (1 << format.exponent_bits) - 1;
  const double sign = (bits >> width & 1) != 0 ? -1 : 1;
  if (exponent == all_ones && format.infinities)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (!format.infinities && magnitude == (uint64_t{1} << width) - 1) return std::nan("");
  const uint64_t leading = exponent == 0 ? 0 : uint64_t{1} << format.mantissa_bits;
  const int scale = (exponent == 0 ? 1 : exponent) - format.bias() - format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(leading | mantissa), scale);
}

uint64_t truncated(const DataType& type, uint64_t bits) {
  return type.bytes == 8 ? bits : bits & ((uint64_t{1} << (8 * type.bytes)) - 1);
}

bool is_signed(const DataType& type) {
  return type.id == epcclInt8 || type.id == epcclInt32 || type.id == epcclInt64;
}

int64_t signed_value(const DataType& type, uint64_t bits) {
  const int spare = 64 - 8 * static_cast<int>(type.bytes);
  return static_cast<int64_t>(bits << spare) >> spare;
}

}  // namespace epccl::perf
