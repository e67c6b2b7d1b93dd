#include "perf/src/moe/token_data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/host/fp16.hpp"
#include "device/host/fp8.hpp"
#include "perf/src/check.hpp"
#include "perf/src/random.hpp"

namespace epccl::perf::moe {
namespace {

uint64_t seed_of(const TokenId& id) {
  return mix(static_cast<uint64_t>(id.source), id.token, id.exchange);
}

/// use(element, value) for a row of values from -largest to largest; four of them take one number.
template <typename Use>
void for_each_value(uint64_t seed, size_t hidden, int largest, Use use) {
  Random random(seed);
  const auto range = static_cast<uint64_t>(2 * largest + 1);
  for (size_t first = 0; first < hidden; first += 4) {
    const uint64_t number = random.next();
    const size_t end = std::min(first + 4, hidden);
    for (size_t i = first; i < end; ++i) {
      const uint64_t part = number >> (16 * (i - first)) & 0xffff;
      use(i, static_cast<int>(part * range >> 16) - largest);
    }
  }
}

// A quantisable token is one whose blocks have 448, FP8's largest number, times a power of two: that is the
// scale. The other elements are integers that FP8 has, times the same.
constexpr int largest_fp8_integer = 16;

/// use(element, value in FP8, scale)
template <typename Use>
void for_each_quantisable(const TokenId& id, size_t hidden, Use use) {
  const uint64_t seed = seed_of(id);
  float scale = 1;
  for_each_value(seed, hidden, largest_fp8_integer, [&](size_t i, int value) {
    const bool first = i % scale_block == 0;
    if (first) scale = std::ldexp(1.0F, static_cast<int>(mix(seed, i, 1) % 5) - 2);
    const float limit = value < 0 ? -device::e4m3_max : device::e4m3_max;
    use(i, first ? limit : static_cast<float>(value), scale);
  });
}

}  // namespace

int largest_exact_value(const DataType& type, uint32_t terms) {
  // Beyond these not every integer is a number of the datatype. Of float32, fewer are enough.
  const uint32_t limit = type.id == epcclBfloat16 ? 256 : type.id == epcclFloat16 ? 2048 : 65536;
  return static_cast<int>(std::max(limit / std::max(terms, 1U), 1U));
}

void TokenData::encode(size_t element, float value, std::byte* row) const {
  if (type_.id == epcclFloat32) {
    std::memcpy(row + element * sizeof value, &value, sizeof value);
    return;
  }
  const uint16_t bits = type_.id == epcclBfloat16 ? device::bfloat16_of(value) : device::float16_of(value);
  std::memcpy(row + element * sizeof bits, &bits, sizeof bits);
}

void TokenData::write(const TokenId& id, int factor, std::byte* row) const {
  for_each_value(seed_of(id), hidden_, largest_,
                 [&](size_t i, int value) { encode(i, static_cast<float>(value * factor), row); });
}

void TokenData::write_quantisable(const TokenId& id, std::byte* row) const {
  for_each_quantisable(id, hidden_,
                       [&](size_t i, float value, float scale) { encode(i, value * scale, row); });
}

void TokenData::write_quantised(const TokenId& id, std::byte* values, float* scales) const {
  for_each_quantisable(id, hidden_, [&](size_t i, float value, float scale) {
    values[i] = std::byte{device::e4m3_of(value)};
    scales[i / scale_block] = scale;
  });
}

RowCheck compare_rows(std::span<const std::byte> expected, const std::byte* found, size_t element_bytes) {
  RowCheck check;
  if (std::memcmp(expected.data(), found, expected.size()) == 0) return check;
  for (size_t at = 0; at < expected.size(); at += element_bytes) {
    if (std::memcmp(expected.data() + at, found + at, element_bytes) == 0) continue;
    if (check.wrong++ > 0) continue;
    check.first = at / element_bytes;
    check.expected = hexadecimal(expected.data() + at, element_bytes);
    check.found = hexadecimal(found + at, element_bytes);
  }
  return check;
}

}  // namespace epccl::perf::moe
