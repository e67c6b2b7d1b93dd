// What a routing is made from, and what its lists consist of.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epccl::ep {

inline constexpr uint32_t max_topk = 64;
inline constexpr uint32_t max_tokens = 1U << 26;
/// Of one token. Times max_tokens and max_topk it is still a number of 64 bits.
inline constexpr uint64_t most_token_bytes = uint64_t{1} << 30;

/// A top-k table [tokens, k] of expert ids; -1: unused.
struct TopK {
  const void* data = nullptr;
  bool wide = true;  // int64, else int32
  uint32_t tokens = 0;
  uint32_t k = 0;

  size_t size() const { return size_t{tokens} * k; }
  int64_t at(size_t index) const {
    return wide ? static_cast<const int64_t*>(data)[index] : static_cast<const int32_t*>(data)[index];
  }
};

/// One use of an expert by a token, as its owner sees it: the expert's local id, the position in the token's top-k, and
/// whether it is the token's first on this rank.
struct Entry {
  uint32_t word = 0;
  static constexpr Entry of(uint32_t expert, uint32_t k, bool first) {
    return {expert << 7 | k << 1 | static_cast<uint32_t>(first)};
  }
  uint32_t expert() const { return word >> 7; }
  uint32_t k() const { return word >> 1 & 63; }
  bool first() const { return (word & 1) != 0; }
};

}  // namespace epccl::ep
