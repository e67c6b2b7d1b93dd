// Rows as float8 with a scale for each 128 elements (host/fp8.hpp), on their way to other places. Parts from 2 on come along as they are.
#pragma once

#include "device/cuda/kernels/body/move.hpp"
#include "device/cuda/kernels/body/octets.hpp"

namespace epccl::device::cuda {

/// Octets that a lane has of a tile.
template <Element element>
inline constexpr uint32_t quantise_octets = element == Element::float32 ? 2 : 4;
template <Element element>
constexpr uint32_t quantise_tile_elements = quantise_octets<element>* warp_lanes* octet;
template <Element element>
constexpr uint32_t quantise_tiles(uint32_t elements) {
  return (elements + quantise_tile_elements<element> - 1) / quantise_tile_elements<element>;
}

/// |x| as bits, which order as the numbers do; 0 for what is not finite.
EPCCL_DEVICE uint32_t finite_magnitude(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fffffff;
  return bits < 0x7f800000 ? bits : 0;
}

EPCCL_DEVICE float scale_of(uint32_t amax_bits) {
  const float amax = std::bit_cast<float>(amax_bits), scale = amax / e4m3_max;
  if (scale >= 0x1p-126F) return scale;
  return amax > 0 ? 0x1p-126F : 1;
}

/// Division by one number of many, for float8. With the rounded inverse of the divisor, a quotient that is corrected once by what is
/// left over is the rounded one (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990),
/// unless something underflows on the way: for divisors that are not extreme that is so only where the quotient is less than 2^-11,
/// which is 0 as float8. Signs of zeros are lost.
class Divisor {
 public:
  EPCCL_DEVICE explicit Divisor(float divisor)
      : divisor_(divisor), inverse_(1 / divisor), extreme_(!(divisor >= 0x1p-60F && divisor <= 0x1p100F)) {}

  EPCCL_DEVICE float quotient(float value) const {
    if (extreme_) return value / divisor_;
    const float near = value * inverse_;
    const float corrected = fused(fused(-near, divisor_, value), inverse_, near);
    return std::bit_cast<uint32_t>(near) << 1 == 0xff000000 ? near : corrected;  // of an infinity
  }

 private:
  float divisor_, inverse_;
  bool extreme_;
};

/// Signs are the elements', of NaNs too, which the device's arithmetic loses.
template <Element element>
EPCCL_DEVICE Codes quantise(const Octet<bytes_of(element)>& elements, float scale) {
  constexpr uint32_t sign_bit = bytes_of(element) * 8 - 1;
  const Divisor divisor(scale);
  float values[octet];
  elements.template decode_to<element>(values);
  uint32_t words[2] = {};
  EPCCL_UNROLL
  for (uint32_t k = 0; k < octet; k += 2) {
    const uint32_t pair = e4m3_pair(divisor.quotient(values[k]), divisor.quotient(values[k + 1]));
    const uint32_t signs = elements.bits(k) >> sign_bit << 7 | elements.bits(k + 1) >> sign_bit << 15;
    words[k / 4] |= ((pair & 0x7f7f) | signs) << k % 4 * 8;
  }
  Codes codes;
  codes.bits = uint64_t{words[1]} << 32 | words[0];
  return codes;
}

/// Some octets of a lane; `whole`: all that exist are whole and aligned.
template <Element element, uint32_t octets, bool whole>
struct QuantiseLane {
  Octet<bytes_of(element)> loaded[octets];

  /// Octet v is the i-th of the row. Returns its largest magnitude.
  EPCCL_DEVICE uint32_t load(const std::byte* row, uint64_t i, uint32_t v, uint32_t elements) {
    if (!whole)
      loaded[v].load(row, i, elements);
    else if (i * octet < elements)
      loaded[v].load_whole(row, i);
    float values[octet];
    loaded[v].template decode_to<element>(values);
    uint32_t largest = 0;
    EPCCL_UNROLL
    for (const float value : values) {
      const uint32_t magnitude = finite_magnitude(value);
      largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
  }

  /// To all its places.
  EPCCL_DEVICE void spread(const SpreadParameters& parameters, uint64_t row, uint64_t i, uint32_t v,
                           uint32_t amax) const {
    if (i * octet >= parameters.elements) return;
    const float scale = scale_of(amax);
    const Codes codes = quantise<element>(loaded[v], scale);
    for (uint32_t place = 0; place < parameters.width; ++place) {
      const Target target = target_of(parameters, row, place);
      std::byte* const values = place_of(parameters.parts[0], target);
      if (values == nullptr) continue;
      codes.store(values, i, parameters.elements);
      if (i % block_lanes == 0)
        store_scale(place_of(parameters.parts[1], target) + i / block_lanes * sizeof(float), scale);
    }
  }
};

/// As many octets for each lane, from `first` on.
template <Element element, uint32_t octets, bool whole, class Warp>
EPCCL_DEVICE void quantise_octets_of(const Warp& warp, const SpreadParameters& parameters, uint64_t row,
                                     const std::byte* source, uint64_t first) {
  typename Warp::template PerLane<QuantiseLane<element, octets, whole>> kept;
  typename Warp::template PerLane<uint32_t> largest[octets];
  warp.each([&](uint32_t lane) {
    EPCCL_UNROLL
    for (uint32_t v = 0; v < octets; ++v)
      largest[v][lane] = kept[lane].load(source, first + v * warp_lanes + lane, v, parameters.elements);
  });
  EPCCL_UNROLL
  for (uint32_t v = 0; v < octets; ++v) warp.largest_of_half(largest[v]);
  warp.each([&](uint32_t lane) {
    EPCCL_UNROLL
    for (uint32_t v = 0; v < octets; ++v)
      kept[lane].spread(parameters, row, first + v * warp_lanes + lane, v, largest[v][lane]);
  });
}

template <Element element, class Warp>
EPCCL_DEVICE void quantise_tile(const Warp& warp, const SpreadParameters& parameters, uint64_t row,
                                uint32_t tile) {
  const uint32_t from = row_of(parameters.sources, row);
  if (from == no_row) return;
  constexpr uint32_t octets = quantise_octets<element>;
  const std::byte* const source = at(parameters.parts[0].source, from);
  const uint64_t first = uint64_t{tile} * octets * warp_lanes;
  if (parameters.aligned != 0)
    return quantise_octets_of<element, octets, true>(warp, parameters, row, source, first);
  for (uint32_t v = 0; v < octets; ++v)
    quantise_octets_of<element, 1, false>(warp, parameters, row, source, first + v * warp_lanes);
}

template <Element element, class Warp>
EPCCL_DEVICE void quantise_body(const Warp& warp, const SpreadParameters& parameters) {
  const uint32_t rows = rows_of(parameters.rows), own = quantise_tiles<element>(parameters.elements);
  const uint32_t tiles_of_row = own + tiles_of_parts(parameters, 2);
  for (Tiles tiles(warp.index(), warp.count(), tiles_of_row); tiles.row() < rows; tiles.next()) {
    if (tiles.tile() < own)
      quantise_tile<element>(warp, parameters, tiles.row(), tiles.tile());
    else
      spread_tile(warp, parameters, tiles.row(), tiles.tile() - own, 2);
  }
}

// --- and back ---

inline constexpr uint32_t dequantise_octets = 4;
inline constexpr uint32_t dequantise_tile_elements = dequantise_octets * warp_lanes * octet;
constexpr uint32_t dequantise_tiles(uint32_t elements) {
  return (elements + dequantise_tile_elements - 1) / dequantise_tile_elements;
}

/// A lane's octets of a tile.
template <Element element>
EPCCL_DEVICE void dequantise_octets_of(std::byte* to, const std::byte* values, const std::byte* scales,
                                       uint32_t elements, uint64_t first) {
  Codes codes[dequantise_octets];
  float scale[dequantise_octets];
  EPCCL_UNROLL
  for (uint32_t v = 0; v < dequantise_octets; ++v) {
    const uint64_t i = first + v * warp_lanes;
    codes[v].load(values, i, elements);
    scale[v] = i * octet < elements ? load_scale(scales + i / block_lanes * sizeof(float)) : 0;
  }
  EPCCL_UNROLL
  for (uint32_t v = 0; v < dequantise_octets; ++v) {
    float made[octet];
    dequantise<element>(codes[v], scale[v], made);
    Octet<bytes_of(element)> result;
    result.template encode_from<element>(made);
    result.store(to, first + v * warp_lanes, elements);
  }
}

template <Element element, class Warp>
EPCCL_DEVICE void dequantise_body(const Warp& warp, const MoveParameters& parameters) {
  const uint32_t rows = rows_of(parameters.rows), own = dequantise_tiles(parameters.elements);
  const uint32_t tiles_of_row = own + tiles_of_parts(parameters, 2);
  for (Tiles tiles(warp.index(), warp.count(), tiles_of_row); tiles.row() < rows; tiles.next()) {
    const uint32_t tile = tiles.tile();
    if (tile >= own) {
      move_tile(warp, parameters, tiles.row(), tile - own, 2);
      continue;
    }
    const uint32_t from = row_of(parameters.sources, tiles.row());
    const uint32_t to = row_of(parameters.destinations, tiles.row());
    if (from == no_row || to == no_row) continue;
    warp.each([&](uint32_t lane) {
      dequantise_octets_of<element>(at(parameters.parts[0].destination, to),
                                    at(parameters.parts[0].source, from),
                                    at(parameters.parts[1].source, from), parameters.elements,
                                    uint64_t{tile} * dequantise_octets * warp_lanes + lane);
    });
  }
}

}  // namespace epccl::device::cuda
