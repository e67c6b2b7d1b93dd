// Number formats by their definitions, slowly and in double: what the kernels are compared with. Random rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "device/host/row_type.hpp"
#include "device/host/simd.hpp"

namespace epccl::device::testing {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool infinities;  // the largest exponent means infinity and NaN; else only all ones is NaN
  double largest;
};
inline constexpr Format float32_format = {8, 23, true, 0x1.fffffep127};
inline constexpr Format bfloat16_format = {8, 7, true, 0x1.fep127};
inline constexpr Format float16_format = {5, 10, true, 65504};
inline constexpr Format e4m3_format = {4, 3, false, 448};
inline constexpr Format e5m2_format = {5, 2, true, 57344};
const Format& format_of(RowType type);

/// What these bits mean.
double decoded(uint32_t bits, const Format& format);
/// The nearest number of the format, ties to even; beyond the largest by half a step or more, infinity.
double nearest(double value, const Format& format);
/// Equal, zeros by their sign too; any NaN equals any.
bool same(double a, double b);

/// EPCCL_TEST_SEED repeats a run; a failing test prints its own.
std::mt19937_64 seeded_generator();

/// Every level this machine has, the portable one first.
std::vector<Simd> levels();
std::string text_of(Simd level);
inline constexpr RowType all_types[] = {RowType::float32, RowType::bfloat16, RowType::float16};

/// What a random row is made of.
enum class Kind : uint8_t {
  ordinary,  // near 1 in size, zeros among them
  wide,      // any finite number
  any_bits,  // infinities and NaNs too
  tiny,      // subnormals, and what is as small
};
uint32_t random_element(const Format& format, Kind kind, std::mt19937_64& random);

/// A row at some address, mostly not aligned, with nothing behind it that may be read.
class Row {
 public:
  Row(size_t bytes, std::mt19937_64& random);
  std::byte* data() { return bytes_.data() + before_; }
  const std::byte* data() const { return bytes_.data() + before_; }
  uint32_t bits(RowType type, size_t element) const;
  double value(RowType type, size_t element) const { return decoded(bits(type, element), format_of(type)); }
  void set(RowType type, size_t element, uint32_t bits);
  void fill(RowType type, size_t elements, Kind kind, std::mt19937_64& random);
  /// Whether nothing was written before the row.
  bool intact() const;

 private:
  std::vector<std::byte> bytes_;
  size_t before_;
};

}  // namespace epccl::device::testing
