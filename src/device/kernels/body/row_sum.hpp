// Weighted sums of rows, in the documented order (host/row_sum.hpp). A lane keeps some octets of a row in registers while all terms
// are added.
#pragma once

#include <utility>

#include "device/kernels/body/octets.hpp"
#include "device/kernels/body/rows.hpp"

namespace epccl::device::kernels {

/// Of a row, by the octets that a lane adds up.
constexpr uint32_t sum_tiles(uint32_t elements, uint32_t octets) {
  const uint32_t of_tile = octets * warp_lanes * octet;
  return (elements + of_tile - 1) / of_tile;
}

/// The columns of some octets.
template <Element element, uint32_t octets>
class ColumnSums {
 public:
  /// To octet o. (Times 1 is every number as it was.)
  EPCCL_DEVICE void add(uint32_t o, const float (&values)[octet], float weight) {
    EPCCL_UNROLL
    for (uint32_t k = 0; k < octet; ++k) rank_[o][k] += weight * values[k];
  }
  EPCCL_DEVICE void end(uint32_t ends) {
    if ((ends & Term::rank_sum) != 0) carry(node_, rank_);
    if ((ends & Term::node_sum) != 0) carry(total_, node_);
  }
  EPCCL_DEVICE const float (&total(uint32_t o) const)[octet] { return total_[o]; }

 private:
  /// into += round(from), from = 0.
  EPCCL_DEVICE static void carry(float (&into)[octets][octet], float (&from)[octets][octet]) {
    EPCCL_UNROLL
    for (uint32_t o = 0; o < octets; ++o) {
      EPCCL_UNROLL
      for (uint32_t k = 0; k < octet; k += 2) round_pair<element>(from[o][k], from[o][k + 1]);
      EPCCL_UNROLL
      for (uint32_t k = 0; k < octet; ++k) {
        into[o][k] += from[o][k];
        from[o][k] = 0;
      }
    }
  }

  float rank_[octets][octet] = {}, node_[octets][octet] = {}, total_[octets][octet] = {};
};

/// An octet of a row that is added as it is; `whole`: all are whole and aligned.
template <Element element, bool whole>
struct PlainOperand {
  static constexpr uint32_t octets = element == Element::float32 ? 1 : 2, at_once = whole ? 4 : 1;
  struct Row {
    const std::byte* values;
  };
  Octet<bytes_of(element)> loaded;

  EPCCL_DEVICE static Row row(const SumParameters::Source& source, uint32_t number) {
    return {source.rows + number * source.stride};
  }
  EPCCL_DEVICE void load(const Row& row, uint64_t i, uint32_t elements) {
    if constexpr (whole)
      loaded.load_whole(row.values, i);
    else
      loaded.load(row.values, i, elements);
  }
  EPCCL_DEVICE void values(float (&out)[octet]) const { loaded.template decode_to<element>(out); }
};

/// Of a row of float8.
template <Element element, bool whole>
struct QuantisedOperand {
  static constexpr uint32_t octets = 2, at_once = whole ? 4 : 1;
  struct Row {
    const std::byte *values, *scales;
  };
  Codes codes;
  float scale = 0;

  EPCCL_DEVICE static Row row(const SumParameters::Source& source, uint32_t number) {
    return {source.rows + number * source.stride, source.scales + number * source.scale_stride};
  }
  EPCCL_DEVICE void load(const Row& row, uint64_t i, uint32_t elements) {
    const std::byte* const of_block = row.scales + i / block_octets * sizeof(float);
    if constexpr (whole) {
      codes.bits = load_aligned<uint64_t>(row.values + i * octet);
      scale = std::bit_cast<float>(load_aligned<uint32_t>(of_block));
    } else {
      codes.load(row.values, i, elements);
      scale = load_float(of_block);
    }
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

/// How a row is added.
struct Adding {
  float weight;
  uint32_t ends;
};

/// A tile of a sum. Each lane looks up one term, for all lanes; then all add the rows, some of which are read ahead.
template <Element element, class Operand, class Warp>
class TileSum {
 public:
  EPCCL_DEVICE TileSum(const Warp& warp, const SumParameters& parameters, uint32_t tile)
      : warp_(warp), parameters_(parameters), first_(uint64_t{tile} * octets * warp_lanes) {}

  EPCCL_DEVICE void add(TermRange terms) {
    for (uint32_t first = terms.begin; first < terms.end; first += warp_lanes) {
      const uint32_t left = terms.end - first, count = left < warp_lanes ? left : warp_lanes;
      // The last one stands in for those that are not there: it is read again, but not added.
      warp_.each([&](uint32_t lane) { look_up(lane, first + (lane < count ? lane : count - 1)); });
      for (uint32_t t = 0; t < count; t += at_once) add_some(t, count);
    }
  }
  EPCCL_DEVICE void store(std::byte* destination) {
    warp_.each([&](uint32_t lane) {
      EPCCL_UNROLL
      for (uint32_t o = 0; o < octets; ++o) {
        const uint64_t i = first_ + o * warp_lanes + lane;
        if (i * octet >= parameters_.elements) continue;
        Octet<bytes_of(element)> result;
        result.template encode_from<element>(sums_[lane].total(o));
        result.store(destination, i, parameters_.elements);
      }
    });
  }

 private:
  static constexpr uint32_t octets = Operand::octets, at_once = Operand::at_once;
  using Row = typename Operand::Row;
  template <class T>
  using PerLane = typename Warp::template PerLane<T>;
  struct Loaded {
    Operand operand[at_once][octets];
  };

  EPCCL_DEVICE void look_up(uint32_t lane, uint32_t index) {
    const Term term = load_eight(parameters_.terms + index);
    rows_[lane] = Operand::row(parameters_.sources[term.source], term.row);
    addings_[lane] = {weight_of(parameters_, term), term.ends};
  }

  /// Lanes beyond the row's end read its last octet.
  EPCCL_DEVICE uint64_t existing(uint64_t i) const {
    const uint64_t last = (parameters_.elements - 1) / octet;
    return i < last ? i : last;
  }

  /// Terms from t on, of `count` that were looked up.
  EPCCL_DEVICE void add_some(uint32_t t, uint32_t count) {
    PerLane<Loaded> loaded;
    EPCCL_UNROLL
    for (uint32_t a = 0; a < at_once; ++a) {
      const Row row = warp_.of_lane(rows_, t + a);
      warp_.each([&](uint32_t lane) {
        EPCCL_UNROLL
        for (uint32_t o = 0; o < octets; ++o)
          loaded[lane].operand[a][o].load(row, existing(first_ + o * warp_lanes + lane),
                                          parameters_.elements);
      });
    }
    Adding addings[at_once];
    EPCCL_UNROLL
    for (uint32_t a = 0; a < at_once; ++a) addings[a] = warp_.of_lane(addings_, t + a);
    warp_.each([&](uint32_t lane) {
      EPCCL_UNROLL
      for (uint32_t a = 0; a < at_once; ++a) {
        if (a > 0 && t + a >= count) return;
        EPCCL_UNROLL
        for (uint32_t o = 0; o < octets; ++o) {
          float values[octet];
          loaded[lane].operand[a][o].values(values);
          sums_[lane].add(o, values, addings[a].weight);
        }
        sums_[lane].end(addings[a].ends);
      }
    });
  }

  const Warp& warp_;
  const SumParameters& parameters_;
  const uint64_t first_;  // octet
  PerLane<Row> rows_{};
  PerLane<Adding> addings_{};
  PerLane<ColumnSums<element, octets>> sums_{};
};

template <Element element, template <Element, bool> class Operand, class Warp>
EPCCL_DEVICE void sum_body(const Warp& warp, const SumParameters& parameters) {
  const uint32_t rows = rows_of(parameters.rows),
                 tiles_of_row = sum_tiles(parameters.elements, Operand<element, true>::octets);
  for (Tiles tiles(warp.index(), warp.count(), tiles_of_row); tiles.row() < rows; tiles.next()) {
    const uint32_t to = row_of(parameters.destinations, tiles.row());
    if (to == no_row) continue;
    const auto make = [&](auto sum) {
      sum.add(terms_of(parameters, tiles.row()));
      sum.store(at(parameters.destination, to));
    };
    if (parameters.aligned != 0)
      make(TileSum<element, Operand<element, true>, Warp>(warp, parameters, tiles.tile()));
    else
      make(TileSum<element, Operand<element, false>, Warp>(warp, parameters, tiles.tile()));
  }
}

/// Sums of one float32 each, as sum_body() makes them: a lane for each.
template <class Warp>
EPCCL_DEVICE void sum_numbers_body(const Warp& warp, const SumParameters& parameters) {
  for_each_number(warp, rows_of(parameters.rows), [&](uint64_t i) {
    const uint32_t to = row_of(parameters.destinations, i);
    if (to == no_row) return;
    const TermRange terms = terms_of(parameters, i);
    float rank = 0, node = 0, total = 0;
    for (uint32_t t = terms.begin; t < terms.end; ++t) {
      const Term term = load_eight(parameters.terms + t);
      const SumParameters::Source& source = parameters.sources[term.source];
      rank += weight_of(parameters, term) * load_float(source.rows + term.row * source.stride);
      if ((term.ends & Term::rank_sum) != 0) node += std::exchange(rank, 0.0F);
      if ((term.ends & Term::node_sum) != 0) total += std::exchange(node, 0.0F);
    }
    store_float(at(parameters.destination, to), plain_nan(total));
  });
}

}  // namespace epccl::device::kernels
