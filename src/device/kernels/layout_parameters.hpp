// What the kernels are given that make a layout from routing tables. Four of them run one after the other, with the same parameters:
//
//   count   each warp counts what 32 tokens of a table have for every expert, rank and node
//   scan    sums over the tokens before: where each of those warps begins, and the totals
//   place   sums over sources and experts: where each source's rows begin, at every rank
//   fill    every entry finds its row
//
// Nothing depends on which warp comes first: positions follow the order of tokens, and of the top-k within a token.
#pragma once

#include "device/kernels/parameters.hpp"

namespace epccl::device::kernels {

/// Experts are numbered node by node, rank by rank of a node by local position, and on a rank by id: their `index`.
struct ExpertPlace {
  uint32_t index = 0, rank = 0, node = 0;
};
struct RankPlace {
  uint32_t first = 0, count = 0;  // index of its first expert, and how many it has
  uint32_t peer = no_row;         // its number in targets; no_row: rows for it are not targets
};

/// Tokens that one warp looks after.
inline constexpr uint32_t chunk_tokens = 32;

struct LayoutShape {
  uint32_t sources = 0;     // tables: one a rank, in the order of ranks
  uint32_t max_tokens = 1;  // of a table; not 0
  uint32_t k = 0;           // entries a token
  uint32_t experts = 0, ranks = 0, nodes = 0;

  constexpr uint32_t chunks() const { return (max_tokens + chunk_tokens - 1) / chunk_tokens; }

  // What is counted has a number, its key.
  constexpr uint32_t expert_key(uint32_t index) const { return index; }  // entries
  constexpr uint32_t rank_tokens_key(uint32_t rank) const { return experts + rank; }
  constexpr uint32_t rank_entries_key(uint32_t rank) const { return experts + ranks + rank; }
  constexpr uint32_t node_tokens_key(uint32_t node) const { return experts + 2 * ranks + node; }
  constexpr uint32_t wrong_key() const { return experts + 2 * ranks + nodes; }
  constexpr uint32_t keys() const { return wrong_key() + 1; }

  /// Numbers that LayoutParameters::counts has room for.
  constexpr uint64_t count_words() const { return uint64_t{sources} * chunks() * keys(); }
  constexpr uint64_t total_words() const { return uint64_t{sources} * keys(); }
};

/// How rows are arranged, as ep::SlotRules.
struct RowRules {
  uint32_t by_expert =
      0;  // a row for each entry, by expert, source, token; else one for each token, by source, token
  uint32_t rank_major = 0;  // not by expert: a source's rows begin at source * max_tokens
  uint32_t alignment = 1;   // of an expert's first row, >= 1
  uint32_t capacity = 0;    // of an expert; 0: none
  uint32_t pad = 0;         // every expert has `capacity` rows
};

struct LayoutParameters {
  LayoutShape shape;
  RowRules rules;

  // Source s has a record at records + s * record_bytes: how many tokens it has, an uint32 at tokens_at (no_row: it has max_tokens);
  // and at table_at its table [tokens, k] of expert ids, int32, or int64 where `wide`. Ids that are not experts count as unused.
  const std::byte* records = nullptr;
  const uint32_t* record_of = nullptr;  // not null: source s has record record_of[s]
  uint64_t record_bytes = 0;
  uint32_t tokens_at = no_row;
  uint32_t table_at = 0;
  uint32_t wide = 0;
  uint32_t wide_at =
      no_row;  // not no_row: whether its ids are int64 each record says itself, an uint32 there
  const ExpertPlace* experts = nullptr;  // by id
  const RankPlace* ranks = nullptr;

  // count, scan
  uint32_t* counts = nullptr;  // [sources, chunks, keys]: used by these kernels only
  uint32_t* totals = nullptr;  // [sources, keys]: by source, how many entries, tokens, ... there are
  uint32_t* wrong =
      nullptr;  // [sources]: index in the table of the first entry that is neither an expert nor -1; no_row: none

  // place
  uint32_t* before = nullptr;     // [sources, experts]: an expert's entries from sources before
  uint32_t* first_row = nullptr;  // [sources, ranks]: not by expert, where the source's rows begin
  // [experts]: entries over all sources, dropped ones included; the expert's first row; its rows, padding included
  uint32_t* entries = nullptr;
  uint32_t* zone_begin = nullptr;
  uint32_t* zone_rows = nullptr;
  uint32_t* rows = nullptr;  // [ranks]: rows it receives, padding included

  // fill, for source and receiver `rank`. Each may be null: not wanted. Nothing is written beyond the sizes given here.
  uint32_t rank = 0;
  Target* targets =
      nullptr;  // [max_tokens, k]: where each entry's row goes; by token, the row is its first entry's for a rank
  uint8_t* dropped = nullptr;  // [max_tokens, k]: 1 where an expert has no room for the entry
  // [max_tokens, k]: where the weight of each entry is at the peer that has its expert, as a sum of one float: there row r has its
  // weights from r * k on, or by expert one weight a row; and 1, or 0 where there is none, as in the lines of tokens that
  // the table does not have: `count` makes all of them 0.
  Term* homes = nullptr;
  uint32_t* home_counts = nullptr;
  // What each rank and node gets from `rank`, ascending; there are as many as totals say. An entry is ep::Entry's word.
  uint32_t* rank_tokens = nullptr;   // [ranks, max_tokens]
  uint32_t* rank_entries = nullptr;  // [ranks, max_tokens * k]
  uint32_t* node_tokens = nullptr;   // [nodes, max_tokens]
  // Of the rows that `rank` receives. What belongs to no entry stays as it was: fill it with ones before, row_counts with zeros; or
  // say for how many rows there is room, then `count` does so.
  uint32_t most_rows = 0;
  uint32_t* row_entries = nullptr;  // [rows]: by expert, the row's entry
  void* row_topk =
      nullptr;  // [rows, k]: local expert ids, at their places in the top-k; int32, or int64 where topk_wide
  uint32_t topk_wide = 0;
  // [rows]: by expert, the row itself, weighted, and 1; 0 where it only pads.
  Term* row_terms = nullptr;
  uint32_t* row_counts = nullptr;
  // [rows, k]: which of the weights that the caller gives back for the row is each of its k, as a sum of one float; and 1, or 0 where
  // there is none. With most_rows.
  Term* given = nullptr;
  uint32_t* given_counts = nullptr;
  // Of sources whose rows this rank hands on in its node: which of the tables below is theirs; no_row: it is another rank that does.
  const uint32_t* relays = nullptr;  // [sources]; null: not wanted
  Target* relayed =
      nullptr;  // [tables, max_tokens, k]: as targets; peer: no_row where this rank does not hand the entry on
  uint32_t relays_for_itself = 0;  // it hands on what goes to itself, not what goes to any rank of its node
};

/// The first entry of a table that is neither an expert nor -1, for the host: in memory that both write. The GPU writes where nothing is
/// found yet, and `found` last; the host clears it when it has read the rest.
struct WrongEntry {
  uint64_t found = 0;
  uint64_t at = 0;  // index in the table
  int64_t id = 0;
};

/// What callers ask of a layout, from what `place` and `scan` made of it.
struct CountersParameters {
  /// int32, or int64 where `wide`; null: not asked for.
  struct Numbers {
    void* data = nullptr;
    uint32_t wide = 0;
  };
  Numbers expert_counters, expert_offsets, dropped_counters;  // [experts of the rank]
  Numbers source_counters;                                    // [sources]: tokens for the rank
  Numbers total;                                              // [1]: rows of the rank
  LayoutShape shape;
  uint32_t rank = 0, first_expert = 0, expert_count = 0;
  uint32_t capacity = 0;  // of an expert; 0: none
  // As in LayoutParameters.
  const uint32_t* totals = nullptr;
  const uint32_t* entries = nullptr;
  const uint32_t* zone_begin = nullptr;
  const uint32_t* rows = nullptr;
  // What is wrong with the sources' tables; null: nobody asks.
  WrongEntry* wrong_entries = nullptr;  // [sources]
  const uint32_t* wrong = nullptr;
  const std::byte* records = nullptr;
  uint64_t record_bytes = 0;
  uint32_t table_at = 0, wide_at = 0;
};

/// Local expert ids of a receiver's rows, at their places in the top-k, as callers get them; -1: elsewhere.
struct TopkParameters {
  RowCount rows;
  uint32_t k = 0;
  const uint32_t* row_entries = nullptr;  // by expert; else row_topk; the other is null
  const int32_t* row_topk = nullptr;
  void* topk = nullptr;  // [rows, k]; int32, or int64 where `wide`
  uint32_t wide = 0;
};

/// From targets to the terms of sums (SumParameters with width = `width`): by peer, then place in the top-k; each rank's and the
/// node's sums end where ep::add_sums() would end them.
struct TermsParameters {
  const Target* targets = nullptr;  // [rows, width]
  RowCount rows;
  uint32_t width = 0;
  uint32_t by_expert = 0;  // weights are places in the top-k; else terms have none
  Term* terms = nullptr;   // [rows, width]
  uint32_t* counts = nullptr;
};

/// A receiver's weights as callers get them, from those that came with the rows: all k of a token.
struct WeightsParameters {
  const float* brought = nullptr;  // [rows, k]
  RowCount rows;
  uint32_t k = 0;
  // By expert: row_entries, and a weight for each row; 0 where there is no entry. Else row_topk, and k weights for each row; 0 where
  // the expert is elsewhere. The other is null.
  const uint32_t* row_entries = nullptr;
  const void* row_topk = nullptr;
  uint32_t topk_wide = 0;
  float* weights = nullptr;
};

static_assert(sizeof(LayoutParameters) <= most_parameter_bytes);

}  // namespace epccl::device::kernels
