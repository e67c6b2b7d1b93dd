// The tokens that are sent: small integers that depend on source, token, element and exchange, so that every
// sum of a combine is exact in the datatype, and a token from elsewhere or from earlier does not pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perf/src/datatype.hpp"

namespace epccl::perf::moe {

/// Elements of FP8 that share a scale.
inline constexpr size_t scale_block = 128;
constexpr size_t scales_of(size_t hidden) {
  return (hidden + scale_block - 1) / scale_block;
}

/// Which token of which exchange. `exchange` counts the exchanges with fresh data of a whole run.
struct TokenId {
  int source = 0;
  uint32_t token = 0;
  uint64_t exchange = 0;
};

/// The largest value whose sums of up to `terms` are exact.
int largest_exact_value(const DataType& type, uint32_t terms);

class TokenData {
 public:
  /// Elements from -largest to largest.
  TokenData(const DataType& type, uint32_t hidden, int largest)
      : type_(type), hidden_(hidden), largest_(largest) {}

  const DataType& type() const { return type_; }
  size_t hidden() const { return hidden_; }
  size_t row_bytes() const { return hidden_ * type_.bytes; }

  /// The token's elements, each times `factor`.
  void write(const TokenId& id, int factor, std::byte* row) const;

  /// A token that quantisation to FP8 does not change ...
  void write_quantisable(const TokenId& id, std::byte* row) const;
  /// ... and what becomes of it.
  void write_quantised(const TokenId& id, std::byte* values, float* scales) const;

 private:
  void encode(size_t element, float value, std::byte* row) const;

  DataType type_;
  size_t hidden_;
  int largest_;
};

/// What is wrong with a row: how many elements, and the first of them.
struct RowCheck {
  uint64_t wrong = 0;
  uint64_t first = 0;
  std::string expected, found;  // hexadecimal
};
RowCheck compare_rows(std::span<const std::byte> expected, const std::byte* found, size_t element_bytes);

}  // namespace epccl::perf::moe
