// Makes the terms of sums row by row from lists that are sorted the other way round: by where the terms come from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::ep {

class SumBuilder {
 public:
  /// Appends to `tables` sums of `rows` rows.
  SumBuilder(plan::RowTables& tables, uint32_t rows);

  // First every term is counted, then, after begin(), all are added, in the order in which each sum has them.
  void count(std::span<const uint32_t> rows) {
    for (const uint32_t row : rows) ++next_[row];
  }
  void count(uint32_t row, uint32_t terms) { next_[row] += terms; }
  void begin();
  void add(uint32_t row, const plan::RowTerm& term) { tables_.terms[next_[row]++] = term; }
  /// Adds one that ends its rank's sum, unless another of the rank follows.
  void add_of_rank(uint32_t row, uint32_t source_row, uint16_t source, uint8_t weight) {
    const uint32_t at = next_[row]++;
    if (at > tables_.sum_begin[first_sum_ + row] && tables_.terms[at - 1].source == source)
      tables_.terms[at - 1].ends = plan::RowTerm::nothing;
    tables_.terms[at] = {source_row, source, weight, plan::RowTerm::rank_sum};
  }
  /// The last term so far of a row, if there is one, ends its node's sum.
  void end_node(uint32_t row) {
    if (next_[row] > tables_.sum_begin[first_sum_ + row])
      tables_.terms[next_[row] - 1].ends |= plan::RowTerm::node_sum;
  }

  uint32_t first_sum() const { return first_sum_; }

 private:
  plan::RowTables& tables_;
  const uint32_t first_sum_;
  std::vector<uint32_t> next_;  // counts, then where each row's next term goes
};

}  // namespace epccl::ep
