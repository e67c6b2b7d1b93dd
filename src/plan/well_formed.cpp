#include "plan/well_formed.hpp"

#include <algorithm>

#include "plan/printer.hpp"
#include "plan/rows.hpp"

namespace epccl::plan {
namespace {

constexpr uint64_t limit = UINT64_MAX;

/// End of `rows` rows of `bytes`, `stride` apart, from `offset`; false when it does not fit 64 bits.
bool end_of(uint64_t offset, uint64_t bytes, uint32_t rows, uint64_t stride, uint64_t& end) {
  uint64_t span = 0;
  return !__builtin_mul_overflow(stride, static_cast<uint64_t>(rows - 1), &span) &&
         !__builtin_add_overflow(span, bytes, &span) && !__builtin_add_overflow(offset, span, &end);
}

class StepChecker {
 public:
  StepChecker(const Plan& plan, std::span<const uint64_t> inputs) : plan_(plan), inputs_(inputs) {}

  Status check(int rank, uint32_t index) {
    rank_ = rank;
    index_ = index;
    const RankPlan& own = plan_.ranks[static_cast<size_t>(rank)];
    const Step& step = own.steps[index];
    EPCCL_TRY(check_dependencies(own, step));
    EPCCL_TRY(check_count(own, step));
    EPCCL_TRY(check_left_out(step));
    if (step.rows == 0 && step.count != Step::no_count) return {};  // it touches nothing
    switch (step.kind) {
      case Kind::copy:
        return check_copy(step);
      case Kind::send:
      case Kind::recv:
        return check_message(step);
      case Kind::post:
        if (step.value == 0) return fail("posts value 0, which every counter has from the start");
        return check_slot(step);
      case Kind::wait:
        EPCCL_TRY(check_rank(step.peer, "waits for"));
        if (!local(step.peer)) return fail("waits for rank {}, which is on another node", step.peer);
        if (step.value == 0) return fail("waits for value 0, which every counter has from the start");
        return check_slot(step);
      case Kind::move_rows:
        return check_move(own, step);
      case Kind::reduce_rows:
        return check_reduce_rows(own, step);
      case Kind::reduce:
        return check_reduce(own, step);
    }
    return fail("has the unknown kind {}", static_cast<int>(step.kind));
  }

 private:
  template <typename... Args>
  Status fail(fmt::format_string<Args...> format, Args&&... args) const {
    return step_error(plan_, rank_, index_, fmt::format(format, std::forward<Args>(args)...));
  }

  bool local(int rank) const { return plan_.cluster.same_node(rank, rank_); }

  Status check_rank(int rank, const char* what) const {
    if (rank >= 0 && rank < plan_.cluster.ranks()) return {};
    return fail("{} rank {}, but there are {} ranks", what, rank, plan_.cluster.ranks());
  }

  Status check_slot(const Step& step) const {
    if (step.slot < max_slots) return {};
    return fail("uses slot {}, but there are {} slots", step.slot, max_slots);
  }

  Status check_dependencies(const RankPlan& own, const Step& step) const {
    const uint64_t end = static_cast<uint64_t>(step.first_dependency) + step.dependency_count;
    if (end > own.dependencies.size())
      return fail("has dependencies [{}, {}), but the rank lists only {}", step.first_dependency, end,
                  own.dependencies.size());
    for (const uint32_t dependency : own.dependencies_of(step))
      if (dependency >= index_) return fail("depends on step {}, which is not an earlier step", dependency);
    return {};
  }

  Status check_count(const RankPlan& own, const Step& step) const {
    if (step.count == Step::no_count) return {};
    if (own.tables == nullptr || step.count >= own.tables->counts.size())
      return fail("has as many rows as count {} says, but there are only {} counts", step.count,
                  own.tables == nullptr ? 0 : own.tables->counts.size());
    if (step.kind == Kind::copy) return fail("is a copy whose rows are counted by the tables");
    if (step.rows == own.tables->counts[step.count]) return {};
    return fail("has {} rows, but count {} of the tables is {}", step.rows, step.count,
                own.tables->counts[step.count]);
  }

  // Of such steps alone does the executor ask whether to leave them out.
  Status check_left_out(const Step& step) const {
    if (!step.unless_fetched) return {};
    const Location& to = step.destination;
    if (step.kind != Kind::move_rows || to.buffer != Buffer::output || to.rank == rank_)
      return fail("is left out where it is fetched, but moves no rows to the output of a peer");
    return check_place(to, "writes");
  }

  /// Where a step reads or writes: rank on this node, buffer known.
  Status check_place(const Location& at, const char* verb) const {
    EPCCL_TRY(check_rank(at.rank, verb));
    if (at.buffer > Buffer::scratch)
      return fail("{} the unknown buffer {}", verb, static_cast<int>(at.buffer));
    if (!local(at.rank))
      return fail("{} the {} of rank {}, which is on node {}, not on node {}", verb, to_string(at.buffer),
                  at.rank, plan_.cluster.node_of(at.rank), plan_.cluster.node_of(rank_));
    return {};
  }

  uint64_t size_of(const Location& at) const {
    const auto owner = static_cast<size_t>(at.rank);
    if (at.buffer == Buffer::scratch) return plan_.ranks[owner].scratch_bytes;
    return at.buffer == Buffer::input && !inputs_.empty() ? inputs_[owner] : limit;
  }

  /// A region a step reads or writes: place known, bytes in range.
  Status check_region(const Location& at, uint64_t bytes, uint32_t rows, uint64_t stride,
                      const char* verb) const {
    EPCCL_TRY(check_place(at, verb));
    uint64_t end = 0;
    if (!end_of(at.offset, bytes, rows, stride, end)) return fail("{} bytes beyond 2^64", verb);
    if (end > size_of(at))
      return fail("{} bytes [{}, {}) of the {} of rank {}, which has {} bytes", verb, at.offset, end,
                  to_string(at.buffer), at.rank, size_of(at));
    return {};
  }

  /// A peer's input may be read where it is offered only: of nothing else need there be a copy that peers can map.
  Status check_offered(const Location& at, uint64_t bytes, uint32_t rows, uint64_t stride) const {
    if (at.rank == rank_ || at.buffer != Buffer::input) return {};
    const Extent& offered = plan_.ranks[static_cast<size_t>(at.rank)].offered;
    const uint64_t end = at.offset + (rows - 1) * stride + bytes;
    if (offered.empty() || (at.offset >= offered.begin && end <= offered.end)) return {};
    return fail("reads bytes [{}, {}) of the input of rank {}, which offers [{}, {})", at.offset, end,
                at.rank, offered.begin, offered.end);
  }

  Status check_destination(const Location& at) const {
    if (at.buffer != Buffer::input) return {};
    return fail("writes the input of rank {}, which is read-only", at.rank);
  }

  Status check_copy(const Step& step) const {
    if (step.bytes == 0 && step.rows == 0) return {};  // fitted to a call that has nothing for it
    if (step.bytes == 0 || step.rows == 0)
      return fail("copies nothing: {} rows of {} bytes", step.rows, step.bytes);
    EPCCL_TRY(check_destination(step.destination));
    EPCCL_TRY(check_region(step.source, step.bytes, step.rows, step.source_stride, "reads"));
    EPCCL_TRY(check_offered(step.source, step.bytes, step.rows, step.source_stride));
    EPCCL_TRY(check_region(step.destination, step.bytes, step.rows, step.destination_stride, "writes"));
    if (step.rows > 1 && step.destination_stride < step.bytes)
      return fail("has rows that overlap in the destination: rows of {} bytes, {} bytes apart", step.bytes,
                  step.destination_stride);
    return {};
  }

  Status check_message(const Step& step) const {
    const bool is_send = step.kind == Kind::send;
    EPCCL_TRY(check_rank(step.peer, is_send ? "sends to" : "receives from"));
    if (local(step.peer))
      return fail("exchanges a message with rank {}, which is on the same node", step.peer);
    if (step.rows == 0) return fail("is a message of no rows");
    if (is_send) return check_region(step.source, step.bytes, step.rows, step.bytes, "reads");
    EPCCL_TRY(check_destination(step.destination));
    return check_region(step.destination, step.bytes, step.rows, step.bytes, "writes");
  }

  /// A row by its number, at a known place.
  Status check_row(const Location& at, uint32_t first_row, uint32_t row, uint64_t bytes,
                   const char* verb) const {
    if (row < first_row) return fail("{} row {} of a region that begins with row {}", verb, row, first_row);
    uint64_t begin = 0, end = 0;
    if (__builtin_mul_overflow(uint64_t{row - first_row}, bytes, &begin) ||
        __builtin_add_overflow(begin, at.offset, &begin) || __builtin_add_overflow(begin, bytes, &end))
      return fail("{} bytes beyond 2^64", verb);
    if (end > size_of(at))
      return fail("{} row {}, bytes [{}, {}) of the {} of rank {}, which has {} bytes", verb, row, begin, end,
                  to_string(at.buffer), at.rank, size_of(at));
    return {};
  }

  /// One side of a step that names rows.
  Status check_rows(const RankPlan& own, const Step& step, const Location& at, uint32_t first_row,
                    uint32_t list, const char* verb) const {
    if (list == Step::no_list) return check_region(at, step.bytes, step.rows, step.bytes, verb);
    EPCCL_TRY(check_place(at, verb));
    const uint64_t end = uint64_t{list} + step.rows;
    if (own.tables == nullptr) return fail("{} listed rows, but the rank has no tables", verb);
    if (end > own.tables->rows.size())
      return fail("{} the rows listed at [{}, {}), but the tables list only {}", verb, list, end,
                  own.tables->rows.size());
    for (uint32_t i = 0; i < step.rows; ++i)
      EPCCL_TRY(check_row(at, first_row, own.tables->rows[list + i], step.bytes, verb));
    return {};
  }

  Status check_destination_rows(const RankPlan& own, const Step& step) {
    EPCCL_TRY(check_destination(step.destination));
    const uint32_t list = step.destination_list;
    EPCCL_TRY(check_rows(own, step, step.destination, step.destination_first_row, list, "writes"));
    if (list == Step::no_list) return {};
    const auto rows = std::span(own.tables->rows).subspan(list, step.rows);
    sorted_.assign(rows.begin(), rows.end());
    std::ranges::sort(sorted_);
    const auto twice = std::ranges::adjacent_find(sorted_);
    return twice == sorted_.end() ? Status() : fail("writes row {} twice", *twice);
  }

  Status check_move(const RankPlan& own, const Step& step) {
    if (step.bytes == 0 || step.rows == 0)
      return fail("moves nothing: {} rows of {} bytes", step.rows, step.bytes);
    EPCCL_TRY(check_rows(own, step, step.source, step.source_first_row, step.source_list, "reads"));
    return check_destination_rows(own, step);
  }

  Status check_sources(const RankPlan& own, const Step& step) const {
    const uint64_t end = uint64_t{step.first_source} + step.source_count;
    if (end <= own.row_sources.size()) return {};
    return fail("reads the sources [{}, {}), but the rank lists only {}", step.first_source, end,
                own.row_sources.size());
  }

  Status check_reduce(const RankPlan& own, const Step& step) const {
    if (step.bytes == 0 || step.rows != 1 || step.source_count == 0)
      return fail("reduces nothing, or rows: {} rows of {} bytes, {} sources", step.rows, step.bytes,
                  step.source_count);
    if (step.raw_count > step.source_count)
      return fail("has {} raw sources among {}", step.raw_count, step.source_count);
    EPCCL_TRY(check_sources(own, step));
    for (const RowSource& source : sources_of(own, step)) {
      EPCCL_TRY(check_region(source.at, step.bytes, 1, 0, "reads"));
      EPCCL_TRY(check_offered(source.at, step.bytes, 1, 0));
    }
    if (step.destination.rank != own.rank)
      return fail("makes a reduction in memory of rank {}", step.destination.rank);
    EPCCL_TRY(check_destination(step.destination));
    return check_region(step.destination, step.bytes, 1, 0, "writes");
  }

  Status check_reduce_rows(const RankPlan& own, const Step& step) {
    if (step.bytes == 0 || step.rows == 0)
      return fail("reduces nothing: {} rows of {} bytes", step.rows, step.bytes);
    if (own.tables == nullptr) return fail("makes sums, but the rank has no tables");
    EPCCL_TRY(check_destination_rows(own, step));
    EPCCL_TRY(check_sources(own, step));
    for (const RowSource& source : sources_of(own, step)) EPCCL_TRY(check_place(source.at, "reads"));
    const uint64_t sums = std::max<uint64_t>(own.tables->sum_begin.size(), 1) - 1;
    const uint64_t sum_end = uint64_t{step.first_sum} + step.rows;
    if (sum_end > sums)
      return fail("makes the sums [{}, {}), but the tables have only {}", step.first_sum, sum_end, sums);
    for (uint32_t i = 0; i < step.rows; ++i) EPCCL_TRY(check_sum(own, step, step.first_sum + i));
    return {};
  }

  Status check_sum(const RankPlan& own, const Step& step, uint32_t sum) const {
    const RowTables& tables = *own.tables;
    const uint64_t begin = tables.sum_begin[sum], end = tables.sum_begin[uint64_t{sum} + 1];
    if (begin > end || end > tables.terms.size())
      return fail("makes sum {} of the terms [{}, {}), but the tables have only {}", sum, begin, end,
                  tables.terms.size());
    for (uint64_t i = begin; i < end; ++i) {
      const RowTerm& term = tables.terms[i];
      if (term.source >= step.source_count)
        return fail("makes sum {}, whose term {} reads source {}, but there are {} sources", sum, i - begin,
                    term.source, step.source_count);
      if (term.ends > (RowTerm::rank_sum | RowTerm::node_sum))
        return fail("makes sum {}, whose term {} ends the unknown {}", sum, i - begin, term.ends);
      if (term.ends == RowTerm::node_sum)
        return fail("makes sum {}, whose term {} ends a node, but not its rank", sum, i - begin);
      const RowSource& source = sources_of(own, step)[term.source];
      EPCCL_TRY(check_row(source.at, source.first_row, term.row, step.bytes, "reads"));
    }
    if (begin < end && tables.terms[end - 1].ends != (RowTerm::rank_sum | RowTerm::node_sum))
      return fail("makes sum {}, whose last term does not end its rank and its node", sum);
    return {};
  }

  const Plan& plan_;
  std::span<const uint64_t> inputs_;
  int rank_ = 0;
  uint32_t index_ = 0;
  std::vector<uint32_t> sorted_;
};

}  // namespace

Status step_error(const Plan& plan, int rank, uint32_t index, const std::string& what) {
  const Step& step = plan.ranks[static_cast<size_t>(rank)].steps[index];
  return error(Code::internal_error, "plan {}: rank {} step {} ({}): {}", plan.algorithm, rank, index,
               to_text(step), what);
}

Status well_formed(const Plan& plan, std::span<const uint64_t> input_sizes) {
  if (plan.ranks.size() != static_cast<size_t>(plan.cluster.ranks()))
    return error(Code::internal_error, "plan {}: {} rank plans for a cluster of {} ranks", plan.algorithm,
                 plan.ranks.size(), plan.cluster.ranks());
  uint64_t steps = 0;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    if (plan.ranks[rank].rank != static_cast<int>(rank))
      return error(Code::internal_error, "plan {}: the plan at position {} is that of rank {}",
                   plan.algorithm, rank, plan.ranks[rank].rank);
    steps += plan.ranks[rank].steps.size();
  }
  // The readers number all steps of all ranks with 32 bits and keep two values for marks.
  if (steps >= UINT32_MAX - 2)
    return error(Code::internal_error, "plan {}: {} steps are too many", plan.algorithm, steps);
  StepChecker checker(plan, input_sizes);
  for (const RankPlan& rank : plan.ranks)
    for (uint32_t index = 0; index < rank.steps.size(); ++index) EPCCL_TRY(checker.check(rank.rank, index));
  return {};
}

Status well_formed(const Plan& plan) {
  return well_formed(plan, {});
}

Result<std::vector<uint64_t>> input_sizes(const Plan& plan, std::span<const Transfer> expected,
                                          std::span<const RowSum> sums) {
  const int ranks = plan.cluster.ranks();
  std::vector<uint64_t> sizes(static_cast<size_t>(ranks), 0);
  const auto end_in = [&](const char* what, int rank, uint64_t offset, uint64_t bytes) -> Result<uint64_t> {
    if (rank < 0 || rank >= ranks)
      return error(Code::invalid_argument, "an expected {} names rank {}, but there are {} ranks", what, rank,
                   ranks);
    uint64_t end = 0;
    if (end_of(offset, bytes, 1, 0, end)) return end;
    return error(Code::invalid_argument, "an expected {} of {} bytes, from byte {} of rank {}, passes 2^64",
                 what, bytes, offset, rank);
  };
  const auto grow = [&](int rank, uint64_t end, uint64_t bytes) {
    uint64_t& size = sizes[static_cast<size_t>(rank)];
    if (bytes > 0) size = std::max(size, end);
  };
  for (const Transfer& it : expected) {
    EPCCL_ASSIGN(const uint64_t end, end_in("transfer", it.source_rank, it.source_offset, it.bytes));
    EPCCL_TRY(end_in("transfer", it.destination_rank, it.destination_offset, it.bytes).status());
    grow(it.source_rank, end, it.bytes);
  }
  for (const RowSum& sum : sums) {
    EPCCL_TRY(end_in("sum", sum.destination_rank, sum.destination_offset, sum.bytes).status());
    for (const RowSum::Term& term : sum.terms) {
      EPCCL_ASSIGN(const uint64_t end, end_in("sum", term.rank, term.offset, sum.bytes));
      grow(term.rank, end, sum.bytes);
    }
  }
  return sizes;
}

}  // namespace epccl::plan
