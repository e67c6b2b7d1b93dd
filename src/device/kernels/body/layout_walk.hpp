// Through the entries of a routing table, a warp for each chunk of 32 tokens (layout_parameters.hpp).
#pragma once

#include "device/kernels/body/rows.hpp"
#include "device/kernels/layout_parameters.hpp"

namespace epccl::device::kernels {

EPCCL_DEVICE uint32_t bits_in(uint32_t mask) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__popc(mask));
#else
  return static_cast<uint32_t>(__builtin_popcount(mask));
#endif
}
EPCCL_DEVICE uint32_t lanes_below(uint32_t lane) {
  return (1U << lane) - 1;
}

/// The table of one source.
class Table {
 public:
  EPCCL_DEVICE Table(const LayoutParameters& parameters, uint32_t source)
      : parameters_(parameters),
        record_(parameters.records +
                (parameters.record_of == nullptr ? source : parameters.record_of[source]) *
                    parameters.record_bytes),
        wide_(parameters.wide_at == no_row
                  ? parameters.wide != 0
                  : *reinterpret_cast<const uint32_t*>(record_ + parameters.wide_at) != 0) {}

  EPCCL_DEVICE uint32_t tokens() const {
    const uint32_t most = parameters_.shape.max_tokens;
    if (parameters_.tokens_at == no_row) return most;
    const uint32_t tokens = *reinterpret_cast<const uint32_t*>(record_ + parameters_.tokens_at);
    return tokens < most ? tokens : most;
  }
  EPCCL_DEVICE int64_t id(uint64_t i) const {
    const std::byte* const table = record_ + parameters_.table_at;
    if (wide_) return reinterpret_cast<const int64_t*>(table)[i];
    return reinterpret_cast<const int32_t*>(table)[i];
  }
  EPCCL_DEVICE bool is_expert(int64_t id) const { return id >= 0 && id < int64_t{parameters_.shape.experts}; }

 private:
  const LayoutParameters& parameters_;
  const std::byte* record_;
  const bool wide_;
};

/// One entry of a table, as a lane sees it.
struct LaneEntry {
  static constexpr uint32_t nothing = UINT32_MAX;

  ExpertPlace place;
  uint32_t token = 0, position = 0;
  uint32_t listed = 0;  // it is in the table
  uint32_t used = 0;    // and an expert
  uint32_t wrong = 0;   // or neither that nor -1
  uint32_t first_on_rank = 0, first_on_node = 0;

  /// The i-th, which has this id.
  EPCCL_DEVICE void take(const LayoutParameters& parameters, const Table& table, int64_t id, uint64_t i) {
    const uint32_t k = parameters.shape.k;
    token = static_cast<uint32_t>(i / k);
    position = static_cast<uint32_t>(i % k);
    listed = 1;
    used = table.is_expert(id) ? 1 : 0;
    wrong = used == 0 && id != -1 ? 1 : 0;
    if (used != 0) place = parameters.experts[id];
  }

  /// Whether it is its token's first for its rank and its node, where these lanes have entries for the same. Most tokens lie in one
  /// warp as a whole; of the others, entries that lower warps had are read again.
  EPCCL_DEVICE void compare(const LayoutParameters& parameters, const Table& table, uint64_t i, uint32_t lane,
                            uint32_t rank_alike, uint32_t node_alike) {
    if (used == 0) return;
    const uint32_t here = position < lane ? position : lane;
    const uint32_t earlier = lanes_below(lane) & ~lanes_below(lane - here);
    first_on_rank = (rank_alike & earlier) == 0 ? 1 : 0;
    first_on_node = (node_alike & earlier) == 0 ? 1 : 0;
    for (uint64_t other = i - position; other < i - here; ++other) {
      const int64_t id = table.id(other);
      if (!table.is_expert(id)) continue;
      const ExpertPlace& there = parameters.experts[id];
      if (there.rank == place.rank) first_on_rank = 0;
      if (there.node == place.node) first_on_node = 0;
    }
  }
};

/// Of what an entry counts for, how much there was before.
struct LaneCounts {
  uint32_t expert = 0, rank_entries = 0, rank_tokens = 0, node_tokens = 0;
};

/// Where the entries of a warp lie among all of their table.
struct LanePositions {
  uint32_t of_expert = 0;   // among the expert's entries
  uint32_t rank_entry = 0;  // among the rank's entries
  uint32_t rank_token = 0;  // its token among those for the rank
  uint32_t node_token = 0;  // and for the node
};

/// Goes through the 32 tokens of a chunk, 32 entries at a time. `counts` has what there was before.
template <class Warp>
class ChunkWalk {
 public:
  EPCCL_DEVICE ChunkWalk(const Warp& warp, const LayoutParameters& parameters, const Table& table,
                         uint32_t chunk, uint32_t* counts)
      : warp_(warp),
        parameters_(parameters),
        table_(table),
        counts_(counts),
        first_(uint64_t{chunk} * chunk_tokens * parameters.shape.k) {
    const uint64_t past = uint64_t{chunk} * chunk_tokens + chunk_tokens, tokens = table.tokens();
    end_ = (past < tokens ? past : tokens) * parameters.shape.k;
  }

  /// use(lane, entry, positions) for each entry.
  template <class Use>
  EPCCL_DEVICE void go(Use use) {
    read_ids(first_);
    for (; first_ < end_; first_ += warp_lanes) {
      take();
      read_ids(first_ + warp_lanes);  // while these are worked on
      match();
      warp_.each([&](uint32_t lane) {
        if (entry_[lane].used != 0) before_[lane] = read_counts(entry_[lane].place);
        if (entry_[lane].listed != 0) use(lane, entry_[lane], positions(lane));
      });
      warp_.sync();
      warp_.each([&](uint32_t lane) { count(lane); });
      warp_.sync();
    }
  }

 private:
  template <class T>
  using PerLane = typename Warp::template PerLane<T>;

  EPCCL_DEVICE void read_ids(uint64_t first) {
    warp_.each([&](uint32_t lane) {
      if (first + lane < end_) id_[lane] = table_.id(first + lane);
    });
  }
  EPCCL_DEVICE void take() {
    warp_.each([&](uint32_t lane) {
      entry_[lane] = {};
      if (first_ + lane < end_) entry_[lane].take(parameters_, table_, id_[lane], first_ + lane);
    });
  }

  template <class Number>
  EPCCL_DEVICE void find_alike(Number number, PerLane<uint32_t>& alike) {
    PerLane<uint32_t> key;
    warp_.each([&](uint32_t lane) {
      key[lane] = entry_[lane].used != 0 ? number(entry_[lane].place) : LaneEntry::nothing;
    });
    warp_.lanes_alike(key, alike);
  }
  EPCCL_DEVICE void match() {
    find_alike([](const ExpertPlace& place) { return place.index; }, expert_alike_);
    find_alike([](const ExpertPlace& place) { return place.rank; }, rank_alike_);
    find_alike([](const ExpertPlace& place) { return place.node; }, node_alike_);
    warp_.each([&](uint32_t lane) {
      entry_[lane].compare(parameters_, table_, first_ + lane, lane, rank_alike_[lane], node_alike_[lane]);
    });
    PerLane<uint32_t> flag;
    warp_.each([&](uint32_t lane) { flag[lane] = entry_[lane].first_on_rank; });
    firsts_on_rank_ = warp_.lanes_with(flag);
    warp_.each([&](uint32_t lane) { flag[lane] = entry_[lane].first_on_node; });
    firsts_on_node_ = warp_.lanes_with(flag);
  }

  EPCCL_DEVICE LaneCounts read_counts(const ExpertPlace& place) const {
    const LayoutShape& shape = parameters_.shape;
    return {counts_[shape.expert_key(place.index)], counts_[shape.rank_entries_key(place.rank)],
            counts_[shape.rank_tokens_key(place.rank)], counts_[shape.node_tokens_key(place.node)]};
  }
  /// A token's later entries have the row of its first.
  EPCCL_DEVICE LanePositions positions(uint32_t lane) const {
    if (entry_[lane].used == 0) return {};
    const uint32_t below = lanes_below(lane), through = below | 1U << lane;
    const LaneCounts& before = before_[lane];
    return {before.expert + bits_in(expert_alike_[lane] & below),
            before.rank_entries + bits_in(rank_alike_[lane] & below),
            before.rank_tokens + bits_in(rank_alike_[lane] & firsts_on_rank_ & through) - 1,
            before.node_tokens + bits_in(node_alike_[lane] & firsts_on_node_ & through) - 1};
  }
  /// The lowest lane of those alike counts for all.
  EPCCL_DEVICE void count(uint32_t lane) {
    if (entry_[lane].used == 0) return;
    const LayoutShape& shape = parameters_.shape;
    const ExpertPlace& place = entry_[lane].place;
    const LaneCounts& before = before_[lane];
    const uint32_t below = lanes_below(lane);
    if ((expert_alike_[lane] & below) == 0)
      counts_[shape.expert_key(place.index)] = before.expert + bits_in(expert_alike_[lane]);
    if ((rank_alike_[lane] & below) == 0) {
      counts_[shape.rank_entries_key(place.rank)] = before.rank_entries + bits_in(rank_alike_[lane]);
      counts_[shape.rank_tokens_key(place.rank)] =
          before.rank_tokens + bits_in(rank_alike_[lane] & firsts_on_rank_);
    }
    if ((node_alike_[lane] & below) == 0)
      counts_[shape.node_tokens_key(place.node)] =
          before.node_tokens + bits_in(node_alike_[lane] & firsts_on_node_);
  }

  const Warp& warp_;
  const LayoutParameters& parameters_;
  const Table& table_;
  uint32_t* const counts_;
  uint64_t first_, end_ = 0;
  PerLane<int64_t> id_{};
  PerLane<LaneEntry> entry_{};
  PerLane<LaneCounts> before_{};
  PerLane<uint32_t> expert_alike_{}, rank_alike_{}, node_alike_{};
  uint32_t firsts_on_rank_ = 0, firsts_on_node_ = 0;
};

}  // namespace epccl::device::kernels
