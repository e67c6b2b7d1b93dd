// Eight elements at a time: what a lane quantises, dequantises or adds up at once. A row's octets follow each other from its begin on;
// the last may have fewer elements.
#pragma once

#include "device/kernels/body/numbers.hpp"

namespace epccl::device::kernels {

inline constexpr uint32_t octet = 8;
/// Octets that have one scale.
inline constexpr uint32_t block_octets = static_cast<uint32_t>(e4m3_block) / octet;

/// The bytes of 8 elements of `size` bytes, 2 or 4.
template <uint32_t size>
struct Octet {
  static constexpr uint32_t vectors = octet * size / vector_bytes;
  Vector vector[vectors];

  EPCCL_DEVICE void load_whole(const std::byte* row, uint64_t i) {
    EPCCL_UNROLL
    for (uint32_t v = 0; v < vectors; ++v)
      vector[v] = load_aligned<Vector>(row + (i * vectors + v) * vector_bytes);
  }
  /// The i-th of `row`, of which `elements` exist; the rest are 0.
  EPCCL_DEVICE void load(const std::byte* row, uint64_t i, uint32_t elements) {
    const Bytes bytes{row, uint64_t{elements} * size};
    EPCCL_UNROLL
    for (uint32_t v = 0; v < vectors; ++v) {
      const uint64_t offset = (i * vectors + v) * vector_bytes;
      const uint64_t left = offset < bytes.count ? bytes.count - offset : 0;
      vector[v] = bytes.load(static_cast<int64_t>(offset), part(left));
    }
  }
  EPCCL_DEVICE void store(std::byte* row, uint64_t i, uint32_t elements) const {
    const uint64_t bytes = uint64_t{elements} * size;
    EPCCL_UNROLL
    for (uint32_t v = 0; v < vectors; ++v) {
      const uint64_t offset = (i * vectors + v) * vector_bytes;
      const uint64_t left = offset < bytes ? bytes - offset : 0;
      if (left >= vector_bytes && misalignment(row + offset) == 0)
        store_aligned(row + offset, vector[v]);
      else
        store_bytes(reinterpret_cast<uintptr_t>(row + offset), vector[v], part(left));
    }
  }

  template <Element element>
  EPCCL_DEVICE void decode_to(float (&values)[octet]) const {
    EPCCL_UNROLL
    for (uint32_t i = 0; i < octet; i += 2) {
      if constexpr (size == 2) {
        widen_pair<element>(vector[0].word[i / 2], values[i], values[i + 1]);
      } else {
        values[i] = widened<element>(bits(i));
        values[i + 1] = widened<element>(bits(i + 1));
      }
    }
  }
  template <Element element>
  EPCCL_DEVICE void encode_from(const float (&values)[octet]) {
    if constexpr (size == 2) {
      vector[0] = encode<element>(values);
    } else {
      EPCCL_UNROLL
      for (uint32_t i = 0; i < octet; ++i)
        vector[i / in_vector].word[i % in_vector] = result_bits<element>(values[i]);
    }
  }
  /// As larger().
  template <Element element>
  EPCCL_DEVICE uint32_t largest() const {
    uint32_t of_vector[vectors];
    EPCCL_UNROLL
    for (uint32_t v = 0; v < vectors; ++v) {
      const uint32_t(&word)[4] = vector[v].word;
      of_vector[v] = larger<element>(larger<element>(word[0], word[1]), larger<element>(word[2], word[3]));
    }
    return vectors == 1 ? of_vector[0] : larger<element>(of_vector[0], of_vector[vectors - 1]);
  }
  EPCCL_DEVICE uint32_t bits(uint32_t i) const { return bits_at<size>(vector[i / in_vector], i % in_vector); }
  /// The highest bytes, with the signs, of four elements from 4 * half on.
  EPCCL_DEVICE uint32_t highest_bytes(uint32_t half) const {
    if constexpr (size == 2) {
      const Vector& all = vector[0];
      return picked_bytes(all.word[2 * half], all.word[2 * half + 1], 0x7531);
    } else {
      const Vector& four = vector[half];
      return picked_bytes(picked_bytes(four.word[0], four.word[1], 0x73),
                          picked_bytes(four.word[2], four.word[3], 0x73), 0x5410);
    }
  }

 private:
  static constexpr uint32_t in_vector = vector_bytes / size;

  EPCCL_DEVICE static Part part(uint64_t left) {
    return {0, left < vector_bytes ? static_cast<uint32_t>(left) : vector_bytes};
  }
};

/// Eight float8.
struct Codes {
  uint64_t bits = 0;

  EPCCL_DEVICE void load(const std::byte* row, uint64_t i, uint32_t elements) {
    const std::byte* from = row + i * octet;
    const uint32_t count = left(i, elements);
    bits = 0;
    if (count == octet && misalignment(from, octet) == 0) {
      bits = load_aligned<uint64_t>(from);
      return;
    }
    EPCCL_UNROLL
    for (uint32_t k = 0; k < octet; ++k)
      if (k < count) bits |= static_cast<uint64_t>(from[k]) << 8 * k;
  }
  EPCCL_DEVICE void store(std::byte* row, uint64_t i, uint32_t elements) const {
    std::byte* to = row + i * octet;
    const uint32_t count = left(i, elements);
    if (count == octet && misalignment(to, octet) == 0) return store_aligned(to, bits);
    EPCCL_UNROLL
    for (uint32_t k = 0; k < octet; ++k)
      if (k < count) to[k] = static_cast<std::byte>(bits >> 8 * k);
  }
  EPCCL_DEVICE uint32_t pair(uint32_t k) const { return static_cast<uint32_t>(bits >> 8 * k) & 0xffff; }

 private:
  EPCCL_DEVICE static uint32_t left(uint64_t i, uint32_t elements) {
    const uint64_t at = i * octet;
    if (at >= elements) return 0;
    return elements - at < octet ? static_cast<uint32_t>(elements - at) : octet;
  }
};

/// A float32 at any address: a scale, a weight.
EPCCL_DEVICE float load_float(const std::byte* from) {
  if (misalignment(from, 4) == 0) return std::bit_cast<float>(load_aligned<uint32_t>(from));
  uint32_t bits = 0;
  EPCCL_UNROLL
  for (uint32_t k = 0; k < 4; ++k) bits |= static_cast<uint32_t>(from[k]) << 8 * k;
  return std::bit_cast<float>(bits);
}

EPCCL_DEVICE void store_float(std::byte* to, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (misalignment(to, 4) == 0) return store_aligned(to, bits);
  EPCCL_UNROLL
  for (uint32_t k = 0; k < 4; ++k) to[k] = static_cast<std::byte>(bits >> 8 * k);
}

/// The numbers that `codes` stand for: dequantise_e4m3(), before they are rounded.
EPCCL_DEVICE void multiply_out(const Codes& codes, float scale, float (&values)[octet]) {
  EPCCL_UNROLL
  for (uint32_t k = 0; k < octet; k += 2) {
    widen_e4m3_pair(codes.pair(k), values[k], values[k + 1]);
    values[k] *= scale;
    values[k + 1] *= scale;
  }
}

/// The same as elements that were stored.
template <Element element>
EPCCL_DEVICE void dequantise(const Codes& codes, float scale, float (&values)[octet]) {
  multiply_out(codes, scale, values);
  EPCCL_UNROLL
  for (uint32_t k = 0; k < octet; k += 2) round_pair<element>(values[k], values[k + 1]);
}

}  // namespace epccl::device::kernels
