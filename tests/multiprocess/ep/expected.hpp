// What dispatch and combine must give: worked out from the problem alone, entry by entry. Shares nothing with the library.
#pragma once

#include <cstdint>
#include <vector>

#include "numbers.hpp"
#include "problem.hpp"

namespace epccl::tests {

class Expected {
 public:
  explicit Expected(const Problem& problem);

  static constexpr uint32_t none = UINT32_MAX;

  /// Row of entry (source, token, position) at its expert's rank; none where it is unused or dropped.
  uint32_t slot(int source, uint32_t token, uint32_t position) const {
    return slot_[static_cast<size_t>(source)][size_t{token} * problem_.k + position];
  }
  uint32_t rows(int rank) const { return rows_[static_cast<size_t>(rank)]; }
  uint32_t offset(uint32_t expert) const { return offset_[expert]; }
  uint32_t kept(uint32_t expert) const { return kept_[expert]; }
  uint32_t dropped(uint32_t expert) const { return dropped_[expert]; }

  /// The row's token, -1 where there is none (padding, fixed slots that are not used).
  struct Origin {
    int source = -1;
    uint32_t token = 0;
  };
  const std::vector<Origin>& origins(int rank) const { return origins_[static_cast<size_t>(rank)]; }

  /// What an expert (by_expert) or a rank makes of an element: a number of the datatype.
  float processed(int64_t expert, float value) const;
  /// Element h of what comes back for a token, from rows of processed tokens.
  float combined(int source, uint32_t token, uint32_t h, bool weighted) const;
  /// Rows that a source sends to other nodes.
  uint64_t network_rows(int source, epcclEpStrategy_t strategy) const;

 private:
  void place_by_token();
  void place_by_expert();

  const Problem& problem_;
  std::vector<std::vector<uint32_t>> slot_;
  std::vector<uint32_t> rows_, offset_, kept_, dropped_;
  std::vector<std::vector<Origin>> origins_;
};

}  // namespace epccl::tests
