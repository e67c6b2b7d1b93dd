// move_rows and reduce_rows in symbolic execution.
#include <algorithm>

#include "plan/data_flow.hpp"
#include "plan/printer.hpp"

namespace epccl::plan {

Status DataFlow::write_rows(const StepRows& rows, uint32_t count, std::span<const Fragment> data) {
  Supply supply(data);
  return for_each_run(rows, count, [&](const Location& at, uint32_t length) {
    return write_range(at, rows.bytes * length, supply);
  });
}

Status DataFlow::move_rows(const RankPlan& plan, const Step& step) {
  EPCCL_TRY(for_each_run(source_rows(plan, step), step.rows, [&](const Location& at, uint32_t length) {
    return read_range(at, step.bytes * length);
  }));
  return write_rows(destination_rows(plan, step), step.rows, data_);
}

Status DataFlow::reduce_rows(const RankPlan& plan, const Step& step) {
  made_.clear();
  for (uint32_t i = 0; i < step.rows; ++i) {
    const uint32_t sum = step.first_sum + i;
    sum_.clear();
    for (const RowTerm& term : terms_of(*plan.tables, sum, 1)) EPCCL_TRY(read_term(plan, step, sum, term));
    const auto offset = sums_.add(sum_, step.bytes);
    if (!offset) return failure(current_, "makes more bytes of sums than the verifier can tell apart");
    made_.push_back({step.bytes, *offset, SumTable::rank});
  }
  return write_rows(destination_rows(plan, step), step.rows, made_);
}

/// Appends what a source row holds to the sum that is being made.
Status DataFlow::read_term(const RankPlan& plan, const Step& step, uint32_t sum, const RowTerm& term) {
  const Location row = row_of(plan, step, term);
  data_.clear();
  EPCCL_TRY(read_range(row, step.bytes));
  const Fragment& held = data_.front();
  const auto wrong = [&](const std::string& why) {
    return failure(current_,
                   fmt::format("sum {} reads row {} of source {} (bytes [{}, {}) of the {} of rank {}), {}",
                               sum, term.row, term.source, row.offset, row.offset + step.bytes,
                               to_string(row.buffer), row.rank, why));
  };
  if (data_.size() > 1)
    return wrong(
        fmt::format("which is no row: it begins with {}, then come {}", describe(held), describe(data_[1])));
  if (held.rank != SumTable::rank) {
    sum_.push_back({held.rank, held.offset, term.weight, term.ends});
    return {};
  }
  const SumTable::Sum part = sums_.find(held.offset);
  if (part.bytes != step.bytes)
    return wrong(fmt::format("which is not the whole row of a sum: it holds {}", describe(held)));
  if (term.weight != RowTerm::unweighted)
    return wrong(fmt::format("which is a sum already, with weight {}; sums are not weighted", term.weight));
  if ((term.ends & RowTerm::rank_sum) == 0)
    return wrong("which is a sum already, and does not end a rank there");
  // To add zero changes nothing, but to round does: what ends here ends with the term before.
  if (part.terms.empty()) {
    if (!sum_.empty()) sum_.back().ends |= term.ends;
    return {};
  }
  const auto ranks = std::ranges::count_if(
      part.terms, [](const RowSum::Term& it) { return (it.ends & RowTerm::rank_sum) != 0; });
  if (ranks > 1 && (term.ends & RowTerm::node_sum) == 0)
    return wrong(fmt::format("which is a sum over {} ranks already, and does not end a node there", ranks));
  // Adding up the nodes is not rounded in between: the sum of two nodes, rounded, is not what a total goes on
  // from.
  const auto nodes = std::ranges::count_if(
      part.terms, [](const RowSum::Term& it) { return (it.ends & RowTerm::node_sum) != 0; });
  if (nodes > 1)
    return wrong(
        fmt::format("which is a sum over {} nodes already; only that of one can be added to others", nodes));
  sum_.insert(sum_.end(), part.terms.begin(), part.terms.end());
  sum_.back().ends = term.ends;
  return {};
}

}  // namespace epccl::plan
