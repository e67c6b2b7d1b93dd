// Where every token comes to lie, and who moves it: made on each rank from what all sources tell it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "algorithms/ep/token_streams.hpp"
#include "base/status.hpp"
#include "ep/expert_map.hpp"
#include "ep/layout_message.hpp"
#include "ep/routing.hpp"
#include "topology/cluster.hpp"

namespace epccl::ep {

enum class SlotLayout : uint8_t { expert_major = 1, rank_major = 2, flat = 3 };
const char* to_string(SlotLayout layout);

/// How the rows of an output are arranged.
///   flat          one row a token, by source rank, then token
///   rank_major    as flat, but each source's rows begin at source * max_tokens
///   expert_major  one row an entry, by expert, then source rank, then token; each expert's rows begin at a multiple of
///                 `alignment`. With a capacity, entries beyond it are dropped, and `pad` gives every expert that many rows.
struct SlotRules {
  SlotLayout layout = SlotLayout::flat;
  uint32_t max_tokens = 0;
  uint32_t alignment = 1;
  uint32_t capacity = 0;  // 0: none
  bool pad = false;
};

/// Row numbers of all ranks of one node: what each rank can compute alike from the sources' counts.
class NodeSlots {
 public:
  NodeSlots(const topology::Cluster& cluster, const ExpertMap& experts, int node, const SlotRules& rules,
            std::span<const SourceLayout> sources);

  static constexpr uint32_t dropped = UINT32_MAX;

  /// Next row numbers of one source; rows are to be walked in order.
  class Walk {
   public:
    Walk(const NodeSlots& slots, int source);
    /// use(local, slot, entry) for each entry of a row; `slot` may be `dropped`. Entries of one rank that share a slot follow
    /// each other.
    template <typename Use>
    void row(std::span<const uint32_t> entries, Use use) {
      size_t last_local = SIZE_MAX;
      for (const uint32_t word : entries) {
        const Entry entry{word};
        const size_t local = slots_.owner_[entry.node_index()];
        if (!slots_.by_expert_) {
          if (local != last_local) ++next_of_rank_[local];
          use(local, next_of_rank_[local] - 1, entry);
        } else {
          const uint32_t index = next_of_expert_[entry.node_index()]++;
          const bool fits = slots_.rules_.capacity == 0 || index < slots_.rules_.capacity;
          use(local, fits ? slots_.zone_begin_[entry.node_index()] + index : dropped, entry);
        }
        last_local = local;
      }
    }

   private:
    const NodeSlots& slots_;
    std::vector<uint32_t> next_of_rank_, next_of_expert_;
  };

  bool by_expert() const { return by_expert_; }
  /// Rows of the output of the rank at `local`, padding included.
  uint32_t slots(size_t local) const { return total_[local]; }
  /// By node index: entries over all sources, dropped ones included; the expert's first row; rows it has, padding included.
  uint32_t entries(uint32_t node_index) const { return entries_of_[node_index]; }
  uint32_t zone_begin(uint32_t node_index) const { return zone_begin_[node_index]; }
  uint32_t zone_rows(uint32_t node_index) const { return zone_rows_[node_index]; }
  /// How many entries of an expert come from sources before `source`.
  uint32_t entries_before(int source, uint32_t node_index) const {
    return before_expert_[static_cast<size_t>(source) * owner_.size() + node_index];
  }

 private:
  void place_experts(const ExpertMap& experts, const std::vector<int>& members);

  const SlotRules rules_;
  const bool by_expert_;
  std::vector<uint16_t> owner_;
  std::vector<uint32_t> first_of_rank_;   // [source][local]
  std::vector<uint32_t> before_expert_;   // [source][node index]
  std::vector<uint32_t> entries_of_, zone_begin_, zone_rows_, total_;
};

/// All that `rank` needs to run dispatches and combines: streams and tables for `strategy`. `routing` is its own.
algorithms::TokenExchange make_exchange(const topology::Cluster& cluster, const ExpertMap& experts, int rank,
                                        Strategy strategy, const Routing& routing, const NodeSlots& slots,
                                        std::span<const SourceLayout> sources);

}  // namespace epccl::ep
