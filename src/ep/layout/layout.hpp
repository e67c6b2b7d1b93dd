// Where every token comes to lie, and who moves it: made on each rank from what all sources tell it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "algorithms/ep/token_streams.hpp"
#include "base/status.hpp"
#include "ep/layout/block_cutter.hpp"
#include "ep/routing/expert_map.hpp"
#include "ep/routing/layout_message.hpp"
#include "ep/routing/routing.hpp"
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
  // Static mode: all sizes come from maxima, tables have this many columns. 0: sizes follow the routing.
  uint32_t max_topk = 0;
  bool undefined_padding = false;  // what rows hold that only pad is nobody's business
};

/// Row numbers of all ranks of one node: what each rank can compute alike from the sources' counts.
class NodeSlots {
 public:
  NodeSlots(const topology::Cluster& cluster, const ExpertMap& experts, int node, const SlotRules& rules,
            std::span<const SourceLayout> sources);

  static constexpr uint32_t dropped = UINT32_MAX;

  /// The first row of the tokens of `source` for the rank at `local` (not expert-major).
  uint32_t first_row(int source, size_t local) const {
    return first_of_rank_[static_cast<size_t>(source) * total_.size() + local];
  }
  bool by_expert() const { return by_expert_; }
  uint32_t experts_at(size_t local) const { return expert_counts_[local]; }
  const SlotRules& rules() const { return rules_; }
  /// Rows of the output of the rank at `local`, padding included.
  uint32_t slots(size_t local) const { return total_[local]; }
  /// By node index: entries over all sources, dropped ones included; the expert's first row; rows it has, padding included.
  uint32_t entries(uint32_t node_index) const { return entries_of_[node_index]; }
  uint32_t zone_begin(uint32_t node_index) const { return zone_begin_[node_index]; }
  uint32_t zone_rows(uint32_t node_index) const { return zone_rows_[node_index]; }
  /// How many entries of an expert come from sources before `source`.
  uint32_t entries_before(int source, uint32_t node_index) const {
    return before_expert_[static_cast<size_t>(source) * entries_of_.size() + node_index];
  }

 private:
  void place_experts(const ExpertMap& experts, const std::vector<int>& members);

  const SlotRules rules_;
  const bool by_expert_;
  std::vector<uint32_t> first_of_rank_;  // [source][local]
  std::vector<uint32_t> before_expert_;  // [source][node index]
  std::vector<uint32_t> entries_of_, zone_begin_, zone_rows_, total_, expert_counts_;
};

/// Walks the entries of one source for one rank. use(row index among the source's tokens for the rank, slot, entry); `slot`
/// may be NodeSlots::dropped.
template <typename Use>
void for_each_entry(const NodeSlots& slots, int source, size_t local, uint32_t first_expert,
                    const RankRows& rows, Use use) {
  uint32_t row = UINT32_MAX;  // + 1 at the first entry
  if (!slots.by_expert()) {
    const uint32_t first = slots.first_row(source, local);
    for (const uint32_t word : rows.entries) {
      row += word & 1;
      use(row, first + row, Entry{word});
    }
    return;
  }
  std::vector<uint32_t> next;
  for (uint32_t expert = first_expert; expert < first_expert + slots.experts_at(local); ++expert)
    next.push_back(slots.entries_before(source, expert));
  const uint32_t capacity = slots.rules().capacity == 0 ? UINT32_MAX : slots.rules().capacity;
  for (const uint32_t word : rows.entries) {
    row += word & 1;
    const uint32_t expert = Entry{word}.expert(), index = next[expert]++;
    use(row, index < capacity ? slots.zone_begin(first_expert + expert) + index : NodeSlots::dropped,
        Entry{word});
  }
}

/// Where sizes come from: a plan for one exchange of maxima serves all others that have the same.
enum class Sizes : uint8_t { from_routing, from_maxima };

/// What one rank knows of a layout: all that its streams and sums follow from. From maxima: SlotRules::max_tokens tokens a rank,
/// max_topk entries a token.
struct LayoutView {
  const topology::Cluster& cluster;
  const ExpertMap& experts;
  int rank = 0;
  Strategy strategy = Strategy::dedup;
  const Routing& routing;  // its own
  const NodeSlots& slots;
  std::span<const SourceLayout> sources;
  Sizes sizes = Sizes::from_routing;

  int node() const { return cluster.node_of(rank); }
  const std::vector<int>& members() const { return cluster.members(node()); }
  bool fixed() const { return sizes == Sizes::from_maxima; }
  const SourceHeader& header(int source) const { return sources[static_cast<size_t>(source)].header; }
  BlockCutter cutter(int source) const {
    return {fixed() ? slots.rules().max_tokens : header(source).tokens,
            header(source).block_tokens[static_cast<size_t>(strategy)]};
  }

  /// A stream that this rank relays or fetches, or its own: whose rows, and what the ranks from `first_local` on get.
  struct Relayed {
    int source = 0;
    std::vector<RankRows> served;
    size_t first_local = 0;
    std::span<const uint32_t> tokens;  // of the rows, where not every token has one
    bool every_token = false;
  };
  Relayed incoming(int source) const;
  Relayed own() const;
  /// What this rank gets straight from `source`, of its node.
  Relayed fetched(int source) const;

  /// use(token, row) for each row of a stream of `source` that has one for each of `tokens`.
  template <typename Use>
  void for_each_row(int source, std::span<const uint32_t> tokens, Use use) const {
    if (!fixed()) {
      for (uint32_t row = 0; row < tokens.size(); ++row) use(tokens[row], row);
      return;
    }
    const BlockCutter cut = cutter(source);
    uint32_t row = 0;
    for (const uint32_t token : tokens) {
      row = std::max(row, cut.first_token(cut.block_of(token)));
      use(token, row++);
    }
  }
};

/// The streams of a dispatch, with their tables.
/// Error: a source's message contradicts itself.
Result<algorithms::TokenExchange> make_exchange(const LayoutView& layout);

/// Adds what a dispatch that fetches needs to the exchange of this layout.
void add_fetched(const LayoutView& layout, algorithms::TokenExchange& exchange);

/// Adds what a combine needs to the exchange of this layout.
void add_sums(const LayoutView& layout, algorithms::TokenExchange& exchange);

}  // namespace epccl::ep
