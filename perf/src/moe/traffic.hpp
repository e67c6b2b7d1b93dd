// What a routing sends over which link: counted from the tables, to be compared with what the library says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epccl/ep.h"
#include "perf/src/moe/placement.hpp"
#include "perf/src/moe/routing.hpp"
#include "perf/src/pattern.hpp"

namespace epccl::perf::moe {

enum class Layout : uint8_t { flat, expert_major, rank_major };
const char* to_string(Layout layout);

/// "flat", "gather", "dedup", "auto".
const char* to_string(epcclEpStrategy_t strategy);

/// How often a token goes to a rank: once for each of its experts there, or once.
enum class Copies : uint8_t { expert, rank };
/// Of the rows that a rank has in this layout.
inline Copies copies_of(Layout layout) {
  return layout == Layout::expert_major ? Copies::expert : Copies::rank;
}

/// at(s, d): copies of s's tokens that d needs.
CountMatrix token_copies(const std::vector<TopkTable>& tables, const Placement& placement, Copies copies);

/// at(s, r): rows that s sends to rank r of another node in a dispatch. Not for auto.
CountMatrix network_rows(const std::vector<TopkTable>& tables, const Placement& placement,
                         epcclEpStrategy_t strategy);

/// Rows by the link they take, as epcclEpStats_t counts them, over all ranks.
struct LinkRows {
  uint64_t local = 0, node = 0, network = 0;
};
LinkRows link_rows(const std::vector<TopkTable>& tables, const Placement& placement,
                   epcclEpStrategy_t strategy, Layout layout);

/// What the rank that receives most receives, over the mean; 1 where nothing is received.
double imbalance(const CountMatrix& copies);

/// Entries of all tables: one for each (token, expert).
uint64_t total_entries(const std::vector<TopkTable>& tables);

}  // namespace epccl::perf::moe
