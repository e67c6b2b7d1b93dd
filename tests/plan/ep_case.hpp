// An expert-parallel exchange as a test states it, and all ranks' views of it, made in one process.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "algorithms/ep/token_streams.hpp"
#include "ep/layout/layout.hpp"
#include "plan/plan.hpp"
#include "topology/cluster.hpp"

namespace epccl::tests {

/// Who routes what where. topk[rank] is [tokens of the rank, k].
struct EpCase {
  topology::Cluster cluster;
  uint32_t experts = 0;
  std::vector<int> expert_to_rank;
  uint32_t k = 0;
  std::vector<std::vector<int64_t>> topk;
  ep::SlotRules rules;
  uint64_t chunk_bytes = 128 << 10;
  uint64_t scratch_bytes = 8 << 20;

  uint32_t tokens(int rank) const {
    return k == 0 ? 0 : static_cast<uint32_t>(topk[static_cast<size_t>(rank)].size() / k);
  }
  std::string text() const;
};

inline constexpr uint64_t ep_row = 10;  // bytes of a row

/// Random tokens per rank (some none), k, experts, map, and entries (some unused).
EpCase random_case(const topology::Cluster& cluster, ep::SlotLayout layout, std::mt19937_64& random);

/// The same but for the tables: each rank has up to max_tokens tokens with other entries.
EpCase other_routing(const EpCase& like, std::mt19937_64& random);

/// What every rank knows after the layout exchange, as the library does it: messages made, delivered and read.
struct EpViews {
  std::vector<ep::SourceMessages> messages;            // that sources refer to
  std::vector<std::vector<ep::SourceLayout>> sources;  // [rank]
  std::vector<ep::Routing> routings;
  std::vector<ep::NodeSlots> slots;  // [rank]
  std::vector<ep::SourceHeader> headers;
};
EpViews exchange_layouts(const EpCase& what, const ep::ExpertMap& experts);
/// The same in static mode: blocks are cut by the maxima.
EpViews exchange_static_layouts(const EpCase& what, const ep::ExpertMap& experts);

ep::ExpertMap experts_of(const EpCase& what);

/// The oracle: where entry (source, token, position) lies in its expert's rank's output. Knows nothing of the library's
/// tables. `dropped` where it is beyond the capacity, or unused.
class EpOracle {
 public:
  static constexpr uint32_t dropped = UINT32_MAX;
  explicit EpOracle(const EpCase& what);

  int owner(int64_t expert) const { return owner_[static_cast<size_t>(expert)]; }
  uint32_t slot(int source, uint32_t token, uint32_t position) const {
    return slot_[static_cast<size_t>(source)][token * case_.k + position];
  }
  uint32_t rows(int rank) const { return rows_[static_cast<size_t>(rank)]; }
  /// Tokens of `source` with an expert on `node`; on `rank`.
  uint64_t tokens_for_node(int source, int node) const;
  uint64_t tokens_for_rank(int source, int rank) const;

  /// What a dispatch must do, and what a combine must.
  std::vector<plan::Transfer> dispatch() const;
  std::vector<plan::RowSum> combine() const;

 private:
  void place_by_token();
  void place_by_expert();
  std::vector<plan::RowSum::Term> terms(int source, uint32_t token) const;

  const EpCase& case_;
  std::vector<int> owner_;
  std::vector<std::vector<uint32_t>> slot_;
  std::vector<uint32_t> rows_;
};

}  // namespace epccl::tests
