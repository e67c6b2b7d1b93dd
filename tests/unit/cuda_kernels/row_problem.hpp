// Random arrays of rows for the kernels that move and add them.
#pragma once

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "../device/numbers.hpp"
#include "buffer.hpp"
#include "device/host/row_type.hpp"
#include "device/kernels/launch.hpp"

namespace epccl::device::kernels::testing {

/// Rows with anything between them, which must stay as it is.
class Rows {
 public:
  /// `aligned`: rows begin at 16-byte boundaries.
  Rows(uint32_t rows, uint64_t bytes, bool aligned, std::mt19937_64& random)
      : rows_(rows),
        row_bytes_(bytes),
        stride_(aligned ? (bytes + 15) / 16 * 16 + random() % 2 * 16 : bytes + random() % 20),
        buffer_(rows == 0 ? 0 : (rows - 1) * stride_ + bytes, aligned ? 0 : random() % 16) {
    buffer_.fill(random);
    expected_.assign(buffer_.bytes().begin(), buffer_.bytes().end());
  }

  uint32_t rows() const { return rows_; }
  RowArray array() { return {buffer_.data(), stride_}; }
  std::byte* row(uint32_t r) { return buffer_.data() + r * stride_; }

  /// A row as it has to become.
  std::byte* expected(uint32_t r) { return expected_.data() + r * stride_; }
  bool as_expected() const { return std::ranges::equal(buffer_.bytes(), expected_) && buffer_.intact(); }

  /// Makes its rows numbers; `row_bytes` must be elements of the type.
  void fill(RowType type, device::testing::Kind kind, std::mt19937_64& random) {
    const uint64_t size = element_bytes(type);
    for (uint32_t r = 0; r < rows_; ++r)
      for (uint64_t i = 0; i * size < row_bytes_; ++i) {
        const uint32_t bits = random_element(device::testing::format_of(type), kind, random);
        std::memcpy(row(r) + i * size, &bits, size);
      }
    zero_some(size, random);
    expected_.assign(buffer_.bytes().begin(), buffer_.bytes().end());
  }

  /// Now and then a few elements become infinities or NaNs.
  void spoil(RowType type, std::mt19937_64& random) {
    const uint64_t size = element_bytes(type), elements = row_bytes_ / size;
    const device::testing::Format& format = device::testing::format_of(type);
    const uint32_t infinity = ((1U << format.exponent_bits) - 1) << format.mantissa_bits;
    for (uint32_t r = 0; r < rows_; ++r)
      for (uint64_t count = random() % 2 * (random() % 8); count > 0; --count) {
        const uint32_t bits = infinity | static_cast<uint32_t>(random() % 2);
        std::memcpy(row(r) + random() % elements * size, &bits, size);
      }
    expected_.assign(buffer_.bytes().begin(), buffer_.bytes().end());
  }

 private:
  /// Now and then whole blocks have nothing but zeros.
  void zero_some(uint64_t size, std::mt19937_64& random) {
    for (uint32_t r = 0; r < rows_; ++r)
      if (random() % 3 == 0) {
        const uint64_t elements = row_bytes_ / size, first = random() % elements;
        std::memset(row(r) + first * size, 0, std::min<uint64_t>(elements - first, 300) * size);
      }
  }

  uint32_t rows_;
  uint64_t row_bytes_, stride_;
  Buffer buffer_;
  std::vector<std::byte> expected_;
};

/// How many elements a row has: often some whole tiles of a kernel and a few elements more or less.
inline uint32_t random_elements(std::mt19937_64& random) {
  const auto some = static_cast<uint32_t>(random() % 40);
  if (random() % 4 == 0) return 1 + some;
  const uint32_t whole = 128 * (1 + static_cast<uint32_t>(random() % 20));
  return random() % 2 == 0 ? whole : whole - 20 + some;
}

/// Rows in any order, each at most once, some left out; empty: no list.
inline std::vector<uint32_t> random_list(uint32_t count, uint32_t of, uint32_t first,
                                         std::mt19937_64& random) {
  if (random() % 4 == 0) return {};
  std::vector<uint32_t> all(of);
  for (uint32_t i = 0; i < of; ++i) all[i] = first + i;
  std::ranges::shuffle(all, random);
  all.resize(count);
  for (uint32_t& row : all)
    if (random() % 8 == 0) row = no_row;
  return all;
}

inline RowList list_of(const std::vector<uint32_t>& list, uint32_t first) {
  return {list.empty() ? nullptr : list.data(), list.empty() ? 0 : first};
}
inline uint32_t row_in(const std::vector<uint32_t>& list, uint32_t first, uint32_t i) {
  if (list.empty()) return i;
  return list[i] == no_row ? no_row : list[i] - first;
}

inline RowType random_type(std::mt19937_64& random) {
  return device::testing::all_types[random() % 3];
}
inline device::testing::Kind random_kind(std::mt19937_64& random) {
  using device::testing::Kind;
  return std::array{Kind::ordinary, Kind::wide, Kind::any_bits}[random() % 3];
}
inline Grid random_grid(std::mt19937_64& random) {
  return {1 + static_cast<uint32_t>(random() % 4)};
}

}  // namespace epccl::device::kernels::testing
