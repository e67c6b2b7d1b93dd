#include "numbers.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace epccl::tests {
namespace {

struct Format {
  int digits;  // of the significand
  int least;   // exponent of the smallest normal number
  int exponent_bits;
};

Format format_of(epcclDataType_t type) {
  if (type == epcclBfloat16) return {8, -126, 8};
  if (type == epcclFloat16) return {11, -14, 5};
  return {24, -126, 8};  // float32
}

}  // namespace

size_t bytes_of(epcclDataType_t type) {
  if (type == epcclInt64) return 8;
  if (type == epcclFloat32 || type == epcclInt32) return 4;
  return type == epcclFloat8e4m3 || type == epcclUint8 ? 1 : 2;
}

float rounded(epcclDataType_t type, float value) {
  const Format format = format_of(type);
  if (value == 0 || type == epcclFloat32) return value;
  const int exponent = std::max(std::ilogb(value), format.least);
  const double unit = std::ldexp(1.0, exponent - format.digits + 1);
  return static_cast<float>(std::nearbyint(value / unit) * unit);
}

float Numbers::at(size_t index) const {
  if (type_ == epcclFloat32) {
    float value = 0;
    std::memcpy(&value, bytes_.data() + index * 4, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes_.data() + index * 2, 2);
  const Format format = format_of(type_);
  const int fraction_bits = format.digits - 1;
  const int exponent = bits >> fraction_bits & ((1 << format.exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, format.least - fraction_bits)
                                         : std::ldexp(fraction + (1 << fraction_bits),
                                                      exponent + format.least - 1 - fraction_bits);
  return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
}

void Numbers::set(size_t index, float value) {
  if (type_ == epcclFloat32) {
    std::memcpy(bytes_.data() + index * 4, &value, 4);
    return;
  }
  const Format format = format_of(type_);
  const int fraction_bits = format.digits - 1;
  uint16_t bits = std::signbit(value) ? 0x8000 : 0;
  if (value != 0) {
    const int exponent = std::max(std::ilogb(value), format.least);
    const auto significand = static_cast<int>(std::ldexp(std::fabs(value), fraction_bits - exponent));
    // A normal number's leading one adds one to the exponent field.
    bits = static_cast<uint16_t>(bits | (((exponent - format.least) << fraction_bits) + significand));
  }
  std::memcpy(bytes_.data() + index * 2, &bits, 2);
}

}  // namespace epccl::tests
