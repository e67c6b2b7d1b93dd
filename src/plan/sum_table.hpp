// Rows that are sums, during symbolic execution.
//
// A row that holds a sum is described like one that holds input: by an offset. These offsets number the bytes
// of all sums that the plan makes, one sum after the other with a gap between them, so that descriptions of
// sums are cut and joined like those of inputs, and those of two sums never join.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::plan {

class SumTable {
 public:
  using Term = RowSum::Term;

  /// Stands where a rank stands for bytes of its input.
  static constexpr int32_t rank = -2;

  struct Sum {
    uint64_t offset = 0, bytes = 0;
    std::span<const Term> terms;
  };

  /// Adds a row of `bytes` with this sum. Returns its offset; nothing when offsets do not suffice.
  std::optional<uint64_t> add(std::span<const Term> terms, uint64_t bytes);

  /// The sum that has the byte at `offset`.
  Sum find(uint64_t offset) const;

 private:
  struct Entry {
    uint64_t offset = 0, bytes = 0;
    size_t first_term = 0;
  };
  std::vector<Entry> sums_;  // by offset
  std::vector<Term> terms_;
};

}  // namespace epccl::plan
