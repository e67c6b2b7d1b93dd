#include "plan/well_formed.hpp"

#include <algorithm>

#include "plan/printer.hpp"

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
        return check_slot(step);
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

  /// A region a step reads or writes: rank on this node, buffer known, bytes in range.
  Status check_region(const Location& at, uint64_t bytes, uint32_t rows, uint64_t stride,
                      const char* verb) const {
    EPCCL_TRY(check_rank(at.rank, verb));
    if (at.buffer > Buffer::scratch)
      return fail("{} the unknown buffer {}", verb, static_cast<int>(at.buffer));
    if (!local(at.rank))
      return fail("{} the {} of rank {}, which is on node {}, not on node {}", verb, to_string(at.buffer),
                  at.rank, plan_.cluster.node_of(at.rank), plan_.cluster.node_of(rank_));
    uint64_t end = 0;
    if (!end_of(at.offset, bytes, rows, stride, end)) return fail("{} bytes beyond 2^64", verb);
    const auto owner = static_cast<size_t>(at.rank);
    uint64_t size = limit;
    if (at.buffer == Buffer::scratch) size = plan_.ranks[owner].scratch_bytes;
    if (at.buffer == Buffer::input && !inputs_.empty()) size = inputs_[owner];
    if (end > size)
      return fail("{} bytes [{}, {}) of the {} of rank {}, which has {} bytes", verb, at.offset, end,
                  to_string(at.buffer), at.rank, size);
    return {};
  }

  Status check_destination(const Location& at) const {
    if (at.buffer != Buffer::input) return {};
    return fail("writes the input of rank {}, which is read-only", at.rank);
  }

  Status check_copy(const Step& step) const {
    if (step.bytes == 0 || step.rows == 0)
      return fail("copies nothing: {} rows of {} bytes", step.rows, step.bytes);
    EPCCL_TRY(check_destination(step.destination));
    EPCCL_TRY(check_region(step.source, step.bytes, step.rows, step.source_stride, "reads"));
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
    if (step.rows != 1) return fail("has {} rows; messages are contiguous", step.rows);
    if (is_send) return check_region(step.source, step.bytes, 1, 0, "reads");
    EPCCL_TRY(check_destination(step.destination));
    return check_region(step.destination, step.bytes, 1, 0, "writes");
  }

  const Plan& plan_;
  std::span<const uint64_t> inputs_;
  int rank_ = 0;
  uint32_t index_ = 0;
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

Result<std::vector<uint64_t>> input_sizes(const Plan& plan, std::span<const Transfer> expected) {
  const int ranks = plan.cluster.ranks();
  std::vector<uint64_t> sizes(static_cast<size_t>(ranks), 0);
  for (const Transfer& transfer : expected) {
    for (const int rank : {transfer.source_rank, transfer.destination_rank})
      if (rank < 0 || rank >= ranks)
        return error(Code::invalid_argument, "an expected transfer names rank {}, but there are {} ranks",
                     rank, ranks);
    uint64_t end = 0, destination_end = 0;
    if (!end_of(transfer.source_offset, transfer.bytes, 1, 0, end) ||
        !end_of(transfer.destination_offset, transfer.bytes, 1, 0, destination_end))
      return error(Code::invalid_argument,
                   "an expected transfer of {} bytes from rank {} to rank {} passes 2^64", transfer.bytes,
                   transfer.source_rank, transfer.destination_rank);
    uint64_t& size = sizes[static_cast<size_t>(transfer.source_rank)];
    if (transfer.bytes > 0) size = std::max(size, end);
  }
  return sizes;
}

}  // namespace epccl::plan
