// Where the rows lie that a step names. All of it expects well-formed steps: nothing is checked here.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "plan/plan.hpp"

namespace epccl::plan {

/// The rows of one side of a move_rows or reduce_rows step.
struct StepRows {
  Location at;
  uint64_t bytes = 0;              // of a row
  uint32_t first_row = 0;          // the row at `at`, where rows are listed
  const uint32_t* list = nullptr;  // null: consecutive rows from `at` on

  Location operator[](uint32_t i) const {
    const uint64_t distance = list == nullptr ? i : list[i] - first_row;
    return {at.rank, at.buffer, at.offset + distance * bytes};
  }
};

inline const uint32_t* row_list(const RankPlan& plan, uint32_t list) {
  return list == Step::no_list ? nullptr : plan.tables->rows.data() + list;
}

inline StepRows source_rows(const RankPlan& plan, const Step& step) {
  return {step.source, step.bytes, step.source_first_row, row_list(plan, step.source_list)};
}

inline StepRows destination_rows(const RankPlan& plan, const Step& step) {
  return {step.destination, step.bytes, step.destination_first_row, row_list(plan, step.destination_list)};
}

/// The terms of `count` sums that follow each other.
inline std::span<const RowTerm> terms_of(const RowTables& tables, uint32_t first_sum, uint32_t count) {
  const uint32_t begin = tables.sum_begin[first_sum];
  return {tables.terms.data() + begin, tables.sum_begin[uint64_t{first_sum} + count] - begin};
}

/// The terms of all sums of a reduce_rows step.
inline std::span<const RowTerm> terms_of(const RankPlan& plan, const Step& step) {
  return terms_of(*plan.tables, step.first_sum, step.rows);
}

inline std::span<const RowSource> sources_of(const RankPlan& plan, const Step& step) {
  return std::span(plan.row_sources).subspan(step.first_source, step.source_count);
}

/// The row that a term of a reduce_rows step reads.
inline Location row_of(const RankPlan& plan, const Step& step, const RowTerm& term) {
  const RowSource& source = sources_of(plan, step)[term.source];
  return {source.at.rank, source.at.buffer,
          source.at.offset + uint64_t{term.row - source.first_row} * step.bytes};
}

/// Calls `visit(Location, number of rows)` for each run of rows that lie one behind the other, until one
/// fails.
template <typename Visit>
Status for_each_run(const StepRows& rows, uint32_t count, Visit visit) {
  if (rows.list == nullptr) return visit(rows.at, count);
  for (uint32_t i = 0; i < count;) {
    uint32_t length = 1;
    while (i + length < count && rows.list[i + length] == uint64_t{rows.list[i]} + length) ++length;
    EPCCL_TRY(visit(rows[i], length));
    i += length;
  }
  return {};
}

}  // namespace epccl::plan
