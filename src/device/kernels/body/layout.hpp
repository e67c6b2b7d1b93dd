// From routing tables to rows (layout_parameters.hpp).
#pragma once

#include "device/kernels/body/layout_walk.hpp"

namespace epccl::device::kernels {

EPCCL_DEVICE void put_number(void* numbers, uint32_t wide, uint64_t i, int64_t value) {
  if (wide != 0)
    static_cast<int64_t*>(numbers)[i] = value;
  else
    static_cast<int32_t*>(numbers)[i] = static_cast<int32_t>(value);
}

EPCCL_DEVICE uint32_t* counts_of(const LayoutParameters& parameters, uint32_t source, uint32_t chunk) {
  return parameters.counts + (uint64_t{source} * parameters.shape.chunks() + chunk) * parameters.shape.keys();
}

/// All rows belong to nothing yet, and no entry has a weight anywhere: fill passes over those of tokens that the table does not have.
template <class Warp>
EPCCL_DEVICE void clear_results(const Warp& warp, const LayoutParameters& parameters) {
  if (parameters.home_counts != nullptr)
    for_each_number(warp, uint64_t{parameters.shape.max_tokens} * parameters.shape.k,
                    [&](uint64_t i) { parameters.home_counts[i] = 0; });
  for_each_number(warp, parameters.most_rows, [&](uint64_t row) {
    if (parameters.row_entries != nullptr) parameters.row_entries[row] = no_row;
    if (parameters.row_counts != nullptr) parameters.row_counts[row] = 0;
  });
  if (parameters.row_topk == nullptr && parameters.given_counts == nullptr) return;
  for_each_number(warp, uint64_t{parameters.most_rows} * parameters.shape.k, [&](uint64_t i) {
    if (parameters.row_topk != nullptr) put_number(parameters.row_topk, parameters.topk_wide, i, -1);
    if (parameters.given_counts != nullptr) parameters.given_counts[i] = 0;
  });
}

template <class Warp>
EPCCL_DEVICE void count_body(const Warp& warp, const LayoutParameters& parameters) {
  const LayoutShape& shape = parameters.shape;
  clear_results(warp, parameters);
  for (Tiles tiles(warp.index(), warp.count(), shape.chunks()); tiles.row() < shape.sources; tiles.next()) {
    const auto source = static_cast<uint32_t>(tiles.row());
    uint32_t* const counts = counts_of(parameters, source, tiles.tile());
    warp.each([&](uint32_t lane) {
      for (uint32_t key = lane; key < shape.keys(); key += warp_lanes) counts[key] = 0;
    });
    warp.sync();
    // The first is the one whose index has the largest complement.
    typename Warp::template PerLane<uint32_t> wrong;
    warp.each([&](uint32_t lane) { wrong[lane] = 0; });
    const Table table(parameters, source);
    ChunkWalk<Warp>(warp, parameters, table, tiles.tile(), counts)
        .go([&](uint32_t lane, const LaneEntry& entry, const LanePositions&) {
          const uint32_t inverse = ~(entry.token * shape.k + entry.position);
          if (entry.wrong != 0 && inverse > wrong[lane]) wrong[lane] = inverse;
        });
    const uint32_t found = warp.largest(wrong);
    warp.each([&](uint32_t lane) {
      if (lane == 0) counts[shape.wrong_key()] = found;
    });
  }
}

/// One key of one source, over all its chunks.
template <class Warp>
EPCCL_DEVICE void scan_key(const Warp& warp, const LayoutParameters& parameters, uint32_t source,
                           uint32_t key) {
  const LayoutShape& shape = parameters.shape;
  typename Warp::template PerLane<uint32_t> value;
  uint32_t total = 0, most = 0;
  for (uint32_t first = 0; first < shape.chunks(); first += warp_lanes) {
    warp.each([&](uint32_t lane) {
      value[lane] = first + lane < shape.chunks() ? counts_of(parameters, source, first + lane)[key] : 0;
    });
    const uint32_t largest = warp.largest(value);
    most = largest > most ? largest : most;
    const uint32_t these = warp.before(value);
    warp.each([&](uint32_t lane) {
      if (first + lane < shape.chunks())
        counts_of(parameters, source, first + lane)[key] = total + value[lane];
    });
    total += these;
  }
  warp.each([&](uint32_t lane) {
    if (lane != 0) return;
    parameters.totals[uint64_t{source} * shape.keys() + key] = key == shape.wrong_key() ? most : total;
    if (key == shape.wrong_key()) parameters.wrong[source] = ~most;
  });
}

template <class Warp>
EPCCL_DEVICE void scan_body(const Warp& warp, const LayoutParameters& parameters) {
  const LayoutShape& shape = parameters.shape;
  for (Tiles tiles(warp.index(), warp.count(), shape.keys()); tiles.row() < shape.sources; tiles.next())
    scan_key(warp, parameters, static_cast<uint32_t>(tiles.row()), tiles.tile());
}

/// Where the rows of each source begin at a rank, where rows are tokens.
template <class Warp>
EPCCL_DEVICE void place_tokens(const Warp& warp, const LayoutParameters& parameters, uint32_t rank) {
  const LayoutShape& shape = parameters.shape;
  const bool fixed = parameters.rules.rank_major != 0;
  typename Warp::template PerLane<uint32_t> tokens;
  uint32_t rows = 0;
  for (uint32_t first = 0; first < shape.sources; first += warp_lanes) {
    warp.each([&](uint32_t lane) {
      const uint64_t source = uint64_t{first} + lane;
      tokens[lane] =
          source < shape.sources ? parameters.totals[source * shape.keys() + shape.rank_tokens_key(rank)] : 0;
    });
    const uint32_t these = warp.before(tokens);
    warp.each([&](uint32_t lane) {
      const uint32_t source = first + lane;
      if (source < shape.sources)
        parameters.first_row[uint64_t{source} * shape.ranks + rank] =
            fixed ? source * shape.max_tokens : rows + tokens[lane];
    });
    rows += these;
  }
  if (parameters.rules.by_expert != 0) return;
  warp.each([&](uint32_t lane) {
    if (lane == 0) parameters.rows[rank] = fixed ? shape.sources * shape.max_tokens : rows;
  });
}

/// Rows of an expert with so many entries.
EPCCL_DEVICE uint32_t rows_of_expert(const RowRules& rules, uint32_t entries) {
  uint32_t rows = entries;
  if (rules.capacity > 0 && (rules.pad != 0 || entries > rules.capacity)) rows = rules.capacity;
  return (rows + rules.alignment - 1) / rules.alignment * rules.alignment;
}

template <class Warp>
EPCCL_DEVICE void place_experts(const Warp& warp, const LayoutParameters& parameters, uint32_t rank) {
  const LayoutShape& shape = parameters.shape;
  const RowRules& rules = parameters.rules;
  const uint32_t begin = parameters.ranks[rank].first, end = begin + parameters.ranks[rank].count;
  typename Warp::template PerLane<uint32_t> zone;
  uint32_t rows = 0;
  for (uint32_t first = begin; first < end; first += warp_lanes) {
    warp.each([&](uint32_t lane) {
      const uint32_t expert = first + lane;
      zone[lane] = 0;
      if (expert >= end) return;
      uint32_t entries = 0;
      for (uint64_t source = 0; source < shape.sources; ++source) {
        parameters.before[source * shape.experts + expert] = entries;
        entries += parameters.totals[source * shape.keys() + shape.expert_key(expert)];
      }
      parameters.entries[expert] = entries;
      zone[lane] = rules.by_expert != 0 ? rows_of_expert(rules, entries) : entries;
      parameters.zone_rows[expert] = zone[lane];
    });
    const uint32_t these = warp.before(zone);
    warp.each([&](uint32_t lane) {
      if (first + lane < end)
        parameters.zone_begin[first + lane] = rules.by_expert != 0 ? rows + zone[lane] : 0;
    });
    rows += these;
  }
  if (rules.by_expert == 0) return;
  warp.each([&](uint32_t lane) {
    if (lane == 0) parameters.rows[rank] = rows;
  });
}

template <class Warp>
EPCCL_DEVICE void place_body(const Warp& warp, const LayoutParameters& parameters) {
  for (uint32_t rank = warp.index(); rank < parameters.shape.ranks; rank += warp.count()) {
    place_tokens(warp, parameters, rank);
    place_experts(warp, parameters, rank);
  }
}

/// Of ep::Entry's word: local id << 7 | position << 1 | whether it is its token's first on the rank.
EPCCL_DEVICE uint32_t entry_word(uint32_t local, uint32_t position, uint32_t first) {
  return local << 7 | position << 1 | first;
}
EPCCL_DEVICE uint32_t position_of(uint32_t word) {
  return word >> 1 & 63;
}

/// What becomes of one entry.
class EntryFill {
 public:
  EPCCL_DEVICE EntryFill(const LayoutParameters& parameters, uint32_t source)
      : parameters_(parameters), source_(source) {}

  EPCCL_DEVICE void operator()(uint32_t, const LaneEntry& entry, const LanePositions& at) const {
    const uint32_t row = entry.used != 0 ? row_of(entry, at) : no_row;
    if (source_ == parameters_.rank) send(entry, at, row);
    if (parameters_.relays != nullptr && parameters_.relays[source_] != no_row) relay(entry, row);
    if (entry.used != 0 && entry.place.rank == parameters_.rank && row != no_row) receive(entry, row);
  }

 private:
  EPCCL_DEVICE uint32_t row_of(const LaneEntry& entry, const LanePositions& at) const {
    const LayoutShape& shape = parameters_.shape;
    if (parameters_.rules.by_expert == 0)
      return parameters_.first_row[uint64_t{source_} * shape.ranks + entry.place.rank] + at.rank_token;
    const uint32_t expert = entry.place.index;
    const uint32_t index = parameters_.before[uint64_t{source_} * shape.experts + expert] + at.of_expert;
    if (parameters_.rules.capacity > 0 && index >= parameters_.rules.capacity) return no_row;
    return parameters_.zone_begin[expert] + index;
  }
  EPCCL_DEVICE uint32_t word(const LaneEntry& entry) const {
    return entry_word(local(entry), entry.position, entry.first_on_rank);
  }
  EPCCL_DEVICE uint32_t local(const LaneEntry& entry) const {
    return entry.place.index - parameters_.ranks[entry.place.rank].first;
  }

  EPCCL_DEVICE void send(const LaneEntry& entry, const LanePositions& at, uint32_t row) const {
    const LayoutShape& shape = parameters_.shape;
    const uint64_t i = uint64_t{entry.token} * shape.k + entry.position;
    if (parameters_.targets != nullptr) parameters_.targets[i] = target(entry, row);
    if (parameters_.homes != nullptr) set_home(entry, i, row);
    if (parameters_.dropped != nullptr) parameters_.dropped[i] = entry.used != 0 && row == no_row ? 1 : 0;
    if (entry.used == 0) return;
    if (parameters_.rank_entries != nullptr)
      parameters_.rank_entries[uint64_t{entry.place.rank} * shape.max_tokens * shape.k + at.rank_entry] =
          word(entry);
    if (parameters_.rank_tokens != nullptr && entry.first_on_rank != 0)
      parameters_.rank_tokens[uint64_t{entry.place.rank} * shape.max_tokens + at.rank_token] = entry.token;
    if (parameters_.node_tokens != nullptr && entry.first_on_node != 0)
      parameters_.node_tokens[uint64_t{entry.place.node} * shape.max_tokens + at.node_token] = entry.token;
  }
  EPCCL_DEVICE Target target(const LaneEntry& entry, uint32_t row) const {
    const bool has_row = parameters_.rules.by_expert != 0 || entry.first_on_rank != 0;
    if (entry.used == 0 || row == no_row || !has_row) return {};
    const uint32_t peer = parameters_.ranks[entry.place.rank].peer;
    if (peer == no_row) return {};
    return {row, peer};
  }

  static constexpr uint8_t alone = Term::rank_sum | Term::node_sum;

  EPCCL_DEVICE void set_home(const LaneEntry& entry, uint64_t i, uint32_t row) const {
    const uint32_t peer =
        entry.used != 0 && row != no_row ? parameters_.ranks[entry.place.rank].peer : no_row;
    parameters_.home_counts[i] = peer != no_row ? 1 : 0;
    if (peer == no_row) return;
    Term home;
    home.row = parameters_.rules.by_expert != 0 ? row : row * parameters_.shape.k + entry.position;
    home.source = static_cast<uint16_t>(peer);
    home.ends = alone;
    parameters_.homes[i] = home;
  }

  EPCCL_DEVICE void relay(const LaneEntry& entry, uint32_t row) const {
    const LayoutShape& shape = parameters_.shape;
    Target there{no_row, no_row};
    if (entry.used != 0 && (parameters_.relays_for_itself == 0 || entry.place.rank == parameters_.rank))
      there.peer = parameters_.ranks[entry.place.rank].peer;
    if (there.peer != no_row && (parameters_.rules.by_expert != 0 || entry.first_on_rank != 0))
      there.row = row;
    const uint64_t table = parameters_.relays[source_];
    parameters_.relayed[(table * shape.max_tokens + entry.token) * shape.k + entry.position] = there;
  }

  /// The weight is alone in its row by expert, else among the k of the row's token.
  EPCCL_DEVICE void give_back(const LaneEntry& entry, uint32_t row) const {
    const uint64_t i = uint64_t{row} * parameters_.shape.k + entry.position;
    Term own;
    own.row = parameters_.rules.by_expert != 0 ? row : static_cast<uint32_t>(i);
    own.ends = alone;
    parameters_.given[i] = own;
    parameters_.given_counts[i] = 1;
  }

  EPCCL_DEVICE void receive(const LaneEntry& entry, uint32_t row) const {
    if (parameters_.most_rows > 0 && row >= parameters_.most_rows) return;
    if (parameters_.given != nullptr) give_back(entry, row);
    if (parameters_.rules.by_expert != 0) {
      if (parameters_.row_entries != nullptr) parameters_.row_entries[row] = word(entry);
      if (parameters_.row_terms != nullptr) {
        Term itself;
        itself.row = row;
        itself.weight = static_cast<uint8_t>(entry.position);
        itself.ends = alone;
        parameters_.row_terms[row] = itself;
        parameters_.row_counts[row] = 1;
      }
    }
    if (parameters_.row_topk == nullptr) return;
    const uint64_t i = uint64_t{row} * parameters_.shape.k + entry.position;
    put_number(parameters_.row_topk, parameters_.topk_wide, i, local(entry));
  }

  const LayoutParameters& parameters_;
  const uint32_t source_;
};

/// Others' entries matter only to who receives them, or hands them on.
EPCCL_DEVICE bool needs_others(const LayoutParameters& parameters) {
  return parameters.row_entries != nullptr || parameters.row_topk != nullptr || parameters.relays != nullptr;
}

template <class Warp>
EPCCL_DEVICE void fill_body(const Warp& warp, const LayoutParameters& parameters) {
  const LayoutShape& shape = parameters.shape;
  const bool receives = needs_others(parameters);
  const uint32_t first = receives ? 0 : parameters.rank, count = receives ? shape.sources : 1;
  for (Tiles tiles(warp.index(), warp.count(), shape.chunks()); tiles.row() < count; tiles.next()) {
    const uint32_t source = first + static_cast<uint32_t>(tiles.row());
    const Table table(parameters, source);
    ChunkWalk<Warp>(warp, parameters, table, tiles.tile(), counts_of(parameters, source, tiles.tile()))
        .go(EntryFill(parameters, source));
  }
}

}  // namespace epccl::device::kernels
