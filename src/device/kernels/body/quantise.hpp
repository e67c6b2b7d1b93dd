// Rows as float8 with a scale for each 128 elements (host/fp8.hpp), on their way to other places. Parts from 2 on come along as they are.
#pragma once

#include "device/kernels/body/move.hpp"
#include "device/kernels/body/octets.hpp"

namespace epccl::device::kernels {

/// Elements that a lane quantises at once, of one block: their float8 are a vector.
inline constexpr uint32_t piece = 16;
inline constexpr uint32_t piece_octets = piece / octet;
/// Pieces, and lanes, that have one scale.
inline constexpr uint32_t block_pieces = static_cast<uint32_t>(e4m3_block) / piece;
static_assert(block_pieces == 8, "largest_of_eight()");

/// Pieces that a lane has of a tile.
template <Element element>
inline constexpr uint32_t quantise_pieces = element == Element::float32 ? 1 : 2;
template <Element element>
constexpr uint32_t quantise_tile_elements = quantise_pieces<element>* warp_lanes* piece;
template <Element element>
constexpr uint32_t quantise_tiles(uint32_t elements) {
  return (elements + quantise_tile_elements<element> - 1) / quantise_tile_elements<element>;
}

inline constexpr uint32_t infinite_magnitude = 0x7f800000;

/// |x| as bits, which order as the numbers do; 0 for what is not finite.
EPCCL_DEVICE uint32_t finite_magnitude(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fffffff;
  return bits < infinite_magnitude ? bits : 0;
}

/// Division by one number of many, for float8. With the rounded inverse of the divisor, a quotient that is corrected once by what is
/// left over is the rounded one (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990),
/// unless something underflows on the way: for divisors that are not extreme that is so only where the quotient is less than 2^-11,
/// which is 0 as float8. Signs of zeros are lost.
class Divisor {
 public:
  EPCCL_DEVICE explicit Divisor(float divisor) : divisor_(divisor), inverse_(1 / divisor) {}

  EPCCL_DEVICE bool is_extreme() const { return !(divisor_ >= 0x1p-60F && divisor_ <= 0x1p100F); }
  /// Where it is not extreme, of a finite number.
  EPCCL_DEVICE float quotient_of_finite(float value) const {
    const float near = value * inverse_;
    return fused(fused(-near, divisor_, value), inverse_, near);
  }
  EPCCL_DEVICE float quotient(float value) const { return value / divisor_; }

 private:
  float divisor_, inverse_;
};

/// The scale of a block with this largest magnitude. The quotient as a Divisor finds it: it is the rounded one but for subnormal
/// quotients, which do not count.
EPCCL_DEVICE float scale_of(uint32_t amax_bits) {
  constexpr float inverse = 1 / e4m3_max;
  const float amax = std::bit_cast<float>(amax_bits), near = amax * inverse;
  const float scale = fused(fused(-near, e4m3_max, amax), inverse, near);
  if (scale >= 0x1p-126F) return scale;
  return amax > 0 ? 0x1p-126F : 1;
}

/// Four codes whose signs are those of the elements, in the highest bits of `signs`: the device's arithmetic loses those of NaNs.
EPCCL_DEVICE uint32_t codes_with_signs(const float (&quotients)[octet], uint32_t half, uint32_t signs) {
  const uint32_t first = 4 * half;
  const uint32_t codes = e4m3_pair(quotients[first], quotients[first + 1]) |
                         e4m3_pair(quotients[first + 2], quotients[first + 3]) << 16;
  return (codes & 0x7f7f7f7f) | (signs & 0x80808080);
}

template <Element element>
EPCCL_DEVICE Codes codes_of(const Octet<bytes_of(element)>& elements, const float (&quotients)[octet]) {
  const uint32_t low = codes_with_signs(quotients, 0, elements.highest_bytes(0)),
                 high = codes_with_signs(quotients, 1, elements.highest_bytes(1));
  return {uint64_t{high} << 32 | low};
}

/// What a lane has of a tile; `whole`: all pieces that exist are whole and aligned, in all places.
template <Element element, uint32_t pieces, bool whole>
class QuantiseLane {
 public:
  EPCCL_DEVICE void load(const std::byte* row, uint32_t first, uint32_t elements) {
    EPCCL_UNROLL
    for (uint32_t p = 0; p < pieces; ++p) {
      const uint32_t i = first + p * warp_lanes;
      if (i * piece >= elements) continue;
      EPCCL_UNROLL
      for (uint32_t o = 0; o < piece_octets; ++o) {
        if constexpr (whole)
          loaded_[p][o].load_whole(row, uint64_t{i} * piece_octets + o);
        else
          loaded_[p][o].load(row, uint64_t{i} * piece_octets + o, elements);
      }
    }
  }

  /// Of a piece, as finite_magnitude().
  EPCCL_DEVICE uint32_t largest(uint32_t p) {
    largest_[p] = largest_magnitude_in<element>(larger<element>(loaded_[p][0].template largest<element>(),
                                                                loaded_[p][1].template largest<element>()));
    if (largest_[p] < infinite_magnitude) return largest_[p];
    uint32_t finite = 0;
    EPCCL_UNROLL
    for (const Octet<bytes_of(element)>& elements : loaded_[p]) {
      float values[octet];
      elements.template decode_to<element>(values);
      EPCCL_UNROLL
      for (const float value : values) {
        const uint32_t magnitude = finite_magnitude(value);
        finite = magnitude > finite ? magnitude : finite;
      }
    }
    return finite;
  }

  EPCCL_DEVICE void quantise(uint32_t p, uint32_t amax) {
    scale_[p] = scale_of(amax);
    const Divisor divisor(scale_[p]);
    if (largest_[p] < infinite_magnitude && !divisor.is_extreme())
      divide(p, [&](float value) { return divisor.quotient_of_finite(value); });
    else
      divide(p, [&](float value) { return divisor.quotient(value); });
  }

  EPCCL_DEVICE void store(std::byte* values, std::byte* scales, uint32_t first, uint32_t elements) const {
    EPCCL_UNROLL
    for (uint32_t p = 0; p < pieces; ++p) {
      const uint32_t i = first + p * warp_lanes;
      if (i * piece >= elements) continue;
      store_piece(values, i, codes_[p], elements);
      if (i % block_pieces != 0) continue;
      std::byte* const scale = scales + uint64_t{i / block_pieces} * sizeof(float);
      if constexpr (whole)
        store_aligned(scale, std::bit_cast<uint32_t>(scale_[p]));
      else
        store_float(scale, scale_[p]);
    }
  }

 private:
  template <class Quotient>
  EPCCL_DEVICE void divide(uint32_t p, Quotient quotient) {
    EPCCL_UNROLL
    for (uint32_t o = 0; o < piece_octets; ++o) {
      float values[octet];
      loaded_[p][o].template decode_to<element>(values);
      EPCCL_UNROLL
      for (float& value : values) value = quotient(value);
      codes_[p][o] = codes_of<element>(loaded_[p][o], values);
    }
  }
  EPCCL_DEVICE static void store_piece(std::byte* values, uint32_t i, const Codes (&codes)[piece_octets],
                                       uint32_t elements) {
    if constexpr (whole) {
      const uint64_t low = codes[0].bits, high = codes[1].bits;
      store_aligned(values + uint64_t{i} * piece,
                    Vector{{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                            static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)}});
    } else {
      EPCCL_UNROLL
      for (uint32_t o = 0; o < piece_octets; ++o)
        codes[o].store(values, uint64_t{i} * piece_octets + o, elements);
    }
  }

  Octet<bytes_of(element)> loaded_[pieces][piece_octets];
  Codes codes_[pieces][piece_octets];
  uint32_t largest_[pieces] = {};  // magnitude, of what is not finite too
  float scale_[pieces] = {};
};

/// As many pieces for each lane, from `first` on, to all places of the row.
template <Element element, uint32_t pieces, bool whole, class Warp>
EPCCL_DEVICE void quantise_pieces_of(const Warp& warp, const SpreadParameters& parameters, uint64_t row,
                                     const std::byte* source, uint32_t first) {
  typename Warp::template PerLane<QuantiseLane<element, pieces, whole>> kept;
  typename Warp::template PerLane<uint32_t> largest[pieces];
  warp.each([&](uint32_t lane) {
    kept[lane].load(source, first + lane, parameters.elements);
    EPCCL_UNROLL
    for (uint32_t p = 0; p < pieces; ++p) largest[p][lane] = kept[lane].largest(p);
  });
  EPCCL_UNROLL
  for (uint32_t p = 0; p < pieces; ++p) warp.largest_of_eight(largest[p]);
  warp.each([&](uint32_t lane) {
    EPCCL_UNROLL
    for (uint32_t p = 0; p < pieces; ++p) kept[lane].quantise(p, largest[p][lane]);
    for (uint32_t place = 0; place < parameters.width; ++place) {
      const Target target = target_of(parameters, row, place);
      if (target.row == no_row) continue;
      kept[lane].store(place_of(parameters.parts[0], target), place_of(parameters.parts[1], target),
                       first + lane, parameters.elements);
    }
  });
}

template <Element element, class Warp>
EPCCL_DEVICE void quantise_tile(const Warp& warp, const SpreadParameters& parameters, uint64_t row,
                                uint32_t tile) {
  const uint32_t from = row_of(parameters.sources, row);
  if (from == no_row) return;
  constexpr uint32_t pieces = quantise_pieces<element>;
  const std::byte* const source = at(parameters.parts[0].source, from);
  const uint32_t first = tile * pieces * warp_lanes;
  if (parameters.aligned != 0)
    return quantise_pieces_of<element, pieces, true>(warp, parameters, row, source, first);
  for (uint32_t p = 0; p < pieces; ++p)
    quantise_pieces_of<element, 1, false>(warp, parameters, row, source, first + p * warp_lanes);
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
    scale[v] = i * octet < elements ? load_float(scales + i / block_octets * sizeof(float)) : 0;
  }
  EPCCL_UNROLL
  for (uint32_t v = 0; v < dequantise_octets; ++v) {
    float made[octet];
    multiply_out(codes[v], scale[v], made);
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

}  // namespace epccl::device::kernels
