// Weighted sums of rows, in the documented order (host/row_sum.hpp). A lane keeps eight columns of a row in registers while all terms
// are added.
#pragma once

#include "device/cuda/kernels/body/octets.hpp"
#include "device/cuda/kernels/body/rows.hpp"

namespace epccl::device::cuda {

inline constexpr uint32_t sum_tile_elements = warp_lanes * octet;
constexpr uint32_t sum_tiles(uint32_t elements) {
  return (elements + sum_tile_elements - 1) / sum_tile_elements;
}

/// Eight columns.
template <Element element>
class ColumnSums {
 public:
  /// (Times 1 is every number as it was.)
  EPCCL_DEVICE void add(const float (&values)[octet], float weight, uint8_t ends) {
    EPCCL_UNROLL
    for (uint32_t k = 0; k < octet; ++k) rank_[k] += weight * values[k];
    if ((ends & Term::rank_sum) != 0) carry(node_, rank_);
    if ((ends & Term::node_sum) != 0) carry(total_, node_);
  }
  EPCCL_DEVICE const float (&total() const)[octet] { return total_; }

 private:
  /// into += round(from), from = 0.
  EPCCL_DEVICE static void carry(float (&into)[octet], float (&from)[octet]) {
    EPCCL_UNROLL
    for (uint32_t k = 0; k < octet; k += 2) round_pair<element>(from[k], from[k + 1]);
    EPCCL_UNROLL
    for (uint32_t k = 0; k < octet; ++k) {
      into[k] += from[k];
      from[k] = 0;
    }
  }

  float rank_[octet] = {}, node_[octet] = {}, total_[octet] = {};
};

/// An octet of a row that is added as it is; `whole`: all are whole and aligned.
template <Element element, bool whole>
struct PlainOperand {
  static constexpr uint32_t at_once = whole ? 4 : 1;
  Octet<bytes_of(element)> loaded;

  EPCCL_DEVICE void load(const SumParameters& parameters, const Term& term, uint64_t i) {
    const SumParameters::Source& source = parameters.sources[term.source];
    const std::byte* const row = source.rows + term.row * source.stride;
    if constexpr (whole)
      loaded.load_whole(row, i);
    else
      loaded.load(row, i, parameters.elements);
  }
  EPCCL_DEVICE void values(float (&out)[octet]) const { loaded.template decode_to<element>(out); }
};

/// Of a row of float8.
template <Element element, bool whole>
struct QuantisedOperand {
  static constexpr uint32_t at_once = whole ? 4 : 1;
  Codes codes;
  float scale = 0;

  EPCCL_DEVICE void load(const SumParameters& parameters, const Term& term, uint64_t i) {
    const SumParameters::Source& source = parameters.sources[term.source];
    const std::byte* const row = source.rows + term.row * source.stride;
    if constexpr (whole)
      codes.bits = load_aligned<uint64_t>(row + i * octet);
    else
      codes.load(row, i, parameters.elements);
    scale = load_scale(source.scales + term.row * source.scale_stride + i / block_lanes * sizeof(float));
  }
  EPCCL_DEVICE void values(float (&out)[octet]) const { dequantise<element>(codes, scale, out); }
};

/// Where the terms of a sum are.
struct TermRange {
  uint32_t begin, end;
};
EPCCL_DEVICE TermRange terms_of(const SumParameters& parameters, uint64_t sum) {
  if (parameters.begin != nullptr) return {parameters.begin[sum], parameters.begin[sum + 1]};
  const auto begin = static_cast<uint32_t>(sum * parameters.width);
  return {begin, begin + parameters.counts[sum]};
}

EPCCL_DEVICE float weight_of(const SumParameters& parameters, const Term& term) {
  const float* const weights = parameters.sources[term.source].weights;
  if (weights == nullptr || term.weight == Term::unweighted) return 1;
  return weights[uint64_t{term.row} * parameters.weights_per_row + term.weight];
}

/// The i-th octet of a sum. Some rows are read ahead.
template <Element element, class Operand>
EPCCL_DEVICE void sum_octet(const SumParameters& parameters, TermRange terms, std::byte* destination,
                            uint64_t i) {
  constexpr uint32_t at_once = Operand::at_once;
  ColumnSums<element> sums;
  for (uint32_t first = terms.begin; first < terms.end; first += at_once) {
    Operand operands[at_once];
    float weight[at_once] = {};
    uint8_t ends[at_once] = {};
    EPCCL_UNROLL
    for (uint32_t t = 0; t < at_once; ++t) {
      if (first + t >= terms.end) continue;
      const Term term = parameters.terms[first + t];
      operands[t].load(parameters, term, i);
      weight[t] = weight_of(parameters, term);
      ends[t] = term.ends;
    }
    EPCCL_UNROLL
    for (uint32_t t = 0; t < at_once; ++t) {
      if (first + t >= terms.end) continue;
      float values[octet];
      operands[t].values(values);
      sums.add(values, weight[t], ends[t]);
    }
  }
  Octet<bytes_of(element)> result;
  result.template encode_from<element>(sums.total());
  result.store(destination, i, parameters.elements);
}

template <Element element, template <Element, bool> class Operand, class Warp>
EPCCL_DEVICE void sum_body(const Warp& warp, const SumParameters& parameters) {
  const uint32_t rows = rows_of(parameters.rows), tiles_of_row = sum_tiles(parameters.elements);
  for (Tiles tiles(warp.index(), warp.count(), tiles_of_row); tiles.row() < rows; tiles.next()) {
    const uint32_t to = row_of(parameters.destinations, tiles.row());
    if (to == no_row) continue;
    std::byte* const destination = at(parameters.destination, to);
    const TermRange terms = terms_of(parameters, tiles.row());
    warp.each([&](uint32_t lane) {
      const uint64_t i = uint64_t{tiles.tile()} * warp_lanes + lane;
      if (i * octet >= parameters.elements) return;
      if (parameters.aligned != 0)
        sum_octet<element, Operand<element, true>>(parameters, terms, destination, i);
      else
        sum_octet<element, Operand<element, false>>(parameters, terms, destination, i);
    });
  }
}

}  // namespace epccl::device::cuda
