// What dispatch and combine must give a rank, from the tables of all ranks and the rules in ep.h.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/src/moe/placement.hpp"
#include "perf/src/moe/routing.hpp"
#include "perf/src/moe/traffic.hpp"

namespace epccl::perf::moe {

/// A row that a rank receives. `k`: expert-major, which of the token's entries it is; otherwise 0.
struct ReceivedRow {
  uint64_t slot = 0;
  int source = 0;
  uint32_t token = 0;
  uint32_t k = 0;
  friend bool operator==(const ReceivedRow&, const ReceivedRow&) = default;
};

struct ReceivedRows {
  uint64_t slots = 0;  // rows of the output
  std::vector<ReceivedRow> rows;
};

/// `max_tokens`: the group's max_send_tokens_per_rank, where each source's rows begin in rank-major. `capacity`: rows of each expert in
/// expert-major, enough for all; 0: as many as it has.
ReceivedRows received_rows(const std::vector<TopkTable>& tables, const Placement& placement, int rank,
                           Layout layout, uint32_t max_tokens, uint32_t capacity = 0);

/// How many rows of a token come back to be added up.
uint32_t returned_rows(std::span<const int64_t> experts, const Placement& placement, Layout layout);

/// A token's weight for its entry k in the checks: small, so that sums are exact.
inline constexpr int largest_weight = 2;
int weight_of(int source, uint32_t token, uint32_t k);

}  // namespace epccl::perf::moe
