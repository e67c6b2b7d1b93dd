#include "reduction_oracle.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace epccl::device::testing {
namespace {

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 WideBits;

int bits_of(Element element) {
  return static_cast<int>(8 * bytes_of(element));
}

bool is_signed(Element element) {
  return element == Element::int8 || element == Element::int32 || element == Element::int64;
}

/// The value modulo 2^bits, as the type has it.
Wide wrapped(Element element, Wide value) {
  const Wide modulus = Wide{1} << bits_of(element);
  Wide rest = value % modulus;
  if (rest < 0) rest += modulus;
  return is_signed(element) && rest >= modulus / 2 ? rest - modulus : rest;
}

Wide product(Element element, Wide a, Wide b) {
  const WideBits bits = static_cast<WideBits>(a) * static_cast<WideBits>(b);
  return wrapped(element, static_cast<Wide>(bits % (WideBits{1} << 64)));
}

Wide integer_of(Element element, uint64_t bits) {
  return wrapped(element, Wide{bits});
}

uint64_t integer_result(const Reduction& reduction, const std::vector<Operand>& operands, bool final) {
  const Element element = reduction.element;
  Wide result = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    Wide next = integer_of(element, operands[i].bits);
    if (reduction.op == ReduceOp::premul_sum && operands[i].raw)
      next = product(element, next, integer_of(element, reduction.scalar_bits));
    if (i == 0)
      result = next;
    else if (reduction.op == ReduceOp::prod)
      result = product(element, result, next);
    else if (reduction.op == ReduceOp::max)
      result = next > result ? next : result;
    else if (reduction.op == ReduceOp::min)
      result = next < result ? next : result;
    else
      result = wrapped(element, result + next);
  }
  if (reduction.op == ReduceOp::avg && final) result /= reduction.ranks;
  const uint64_t mask = bits_of(element) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits_of(element)) - 1;
  return static_cast<uint64_t>(result) & mask;
}

double value_of(Element element, uint64_t bits) {
  if (element == Element::float64) return std::bit_cast<double>(bits);
  return decoded(static_cast<uint32_t>(bits), format_of(element));
}

/// The precision that is computed in. volatile: else a compiler may fuse a product with an addition.
double computed(Element element, double value) {
  if (element == Element::float64) return value;
  volatile float narrow = static_cast<float>(value);
  return narrow;
}

double larger(double a, double b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

/// In double: products and sums of two float32 are exact, or rounded once more without harm (a double has more than twice the
/// bits and two).
double float_result(const Reduction& reduction, const std::vector<Operand>& operands) {
  const Element element = reduction.element;
  double scale = 1;
  if (reduction.op == ReduceOp::premul_sum) scale = value_of(element, reduction.scalar_bits);
  if (reduction.op == ReduceOp::avg) scale = computed(element, 1.0 / reduction.ranks);
  double result = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    double next = value_of(element, operands[i].bits);
    if (scale != 1 && operands[i].raw) next = computed(element, next * scale);
    if (i == 0)
      result = next;
    else if (reduction.op == ReduceOp::prod)
      result = computed(element, result * next);
    else if (reduction.op == ReduceOp::max)
      result = larger(result, next);
    else if (reduction.op == ReduceOp::min)
      result = -larger(-result, -next);
    else
      result = computed(element, result + next);
  }
  return result;
}

uint64_t nan_of(Element element) {
  switch (element) {
    case Element::float16:
      return 0x7e00;
    case Element::bfloat16:
      return 0x7fc0;
    case Element::float32:
      return 0x7fc00000;
    case Element::float64:
      return 0x7ff8000000000000;
    default:
      return 0x7f;
  }
}

/// The bits of a value that the format has, found by trying.
uint64_t encoded(double value, const Format& format) {
  const int bits = 1 + format.exponent_bits + format.mantissa_bits;
  if (bits == 32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (bits - 1) : 0;
  // Magnitudes order as their bits do.
  uint64_t low = 0, high = (uint64_t{1} << (bits - 1)) - 1;
  while (low < high) {
    const uint64_t middle = (low + high + 1) / 2;
    const double there = decoded(static_cast<uint32_t>(middle), format);
    if (!std::isnan(there) && there <= std::abs(value))
      low = middle;
    else
      high = middle - 1;
  }
  return sign | low;
}

}  // namespace

const char* text_of(Element element) {
  constexpr const char* names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                   "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return names[static_cast<int>(element)];
}

const char* text_of(ReduceOp op) {
  constexpr const char* names[] = {"sum", "prod", "max", "min", "avg", "premul_sum"};
  return names[static_cast<int>(op)];
}

bool is_float(Element element) {
  return element >= Element::float16;
}

const Format& format_of(Element element) {
  switch (element) {
    case Element::float16:
      return float16_format;
    case Element::bfloat16:
      return bfloat16_format;
    case Element::float8e4m3:
      return e4m3_format;
    case Element::float8e5m2:
      return e5m2_format;
    default:
      return float32_format;
  }
}

uint64_t expected_bits(const Reduction& reduction, const std::vector<Operand>& operands, bool final) {
  const Element element = reduction.element;
  if (!is_float(element)) return integer_result(reduction, operands, final);
  double value = float_result(reduction, operands);
  if (std::isnan(value)) return nan_of(element);
  if (element == Element::float64) return std::bit_cast<uint64_t>(value);
  const Format& format = format_of(element);
  if (reduction.op == ReduceOp::max || reduction.op == ReduceOp::min) return encoded(value, format);
  value = nearest(value, format);
  if (bytes_of(element) == 1 && std::abs(value) > format.largest)
    value = std::copysign(format.largest, value);
  return encoded(value, format);
}

}  // namespace epccl::device::testing
