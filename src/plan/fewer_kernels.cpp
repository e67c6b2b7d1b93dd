#include "plan/fewer_kernels.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "plan/reordered.hpp"
#include "plan/step_runs.hpp"

namespace epccl::plan {
namespace {

constexpr uint32_t none = Builder::none;

/// Whether bytes are the same ones, or, where input and output are one memory, could be.
bool may_be_same_memory(const Location& a, const Location& b) {
  return a.rank == b.rank &&
         (a.buffer == b.buffer || (a.buffer != Buffer::scratch && b.buffer != Buffer::scratch));
}

bool contains(std::span<const uint32_t> steps, uint32_t step) {
  return std::ranges::find(steps, step) != steps.end();
}

uint32_t sum_that_can_write(const RankPlan& plan, const Step& copy) {
  if (copy.kind != Kind::copy) return none;
  for (const uint32_t dependency : plan.dependencies_of(copy))
    if (sum_can_write(plan, dependency, copy)) return dependency;
  return none;
}

/// Copies of one queue that can begin together.
StepRuns find_copies(const RankPlan& plan, const Queues& queues) {
  StepRuns runs(plan, StepRuns::Shared::lone_waits);
  std::vector<uint32_t> open(queues.count(), none);  // by queue: the run that goes on
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    const uint16_t queue = queues.of_step[index];
    if (queue == Queues::none) continue;
    uint32_t& run = open[queue];
    if (plan.steps[index].kind == Kind::copy && queues.sum_of[index] == none)
      run = runs.add(index, run != none && runs.can_join(index, run) ? run : none);
    else
      run = none;
  }
  return runs;
}

}  // namespace

bool sum_can_write(const RankPlan& plan, uint32_t sum, const Step& copy) {
  const Step& made = plan.steps[sum];
  if (made.kind != Kind::reduce || copy.kind != Kind::copy || copy.rows != 1 || copy.bytes != made.bytes)
    return false;
  if (copy.source != made.destination || copy.destination.rank == plan.rank) return false;
  const auto before = plan.dependencies_of(made);
  for (const uint32_t dependency : plan.dependencies_of(copy))
    if (dependency != sum && !contains(before, dependency)) return false;
  for (uint16_t i = 0; i < made.source_count; ++i) {
    const Location& read = plan.row_sources[made.first_source + i].at;
    if (may_be_same_memory(read, copy.destination) && read.offset != copy.destination.offset) return false;
  }
  return true;
}

RankPlan results_behind_sums(const RankPlan& plan) {
  std::vector<std::vector<uint32_t>> behind(plan.steps.size());
  std::vector<bool> moved(plan.steps.size(), false);
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    const uint32_t sum = sum_that_can_write(plan, plan.steps[index]);
    if (sum == none || behind[sum].size() == most_results_of_a_sum) continue;
    behind[sum].push_back(index);
    moved[index] = true;
  }
  std::vector<uint32_t> order;
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    if (moved[index]) continue;
    order.push_back(index);
    order.insert(order.end(), behind[index].begin(), behind[index].end());
  }
  return reordered(plan, order);
}

RankPlan copies_together(const RankPlan& plan, const Queues& queues) {
  const StepRuns runs = find_copies(plan, queues);
  return runs.reordered_by(runs.order());
}

Result<QueuedPlan> queued_plan(const RankPlan& plan, const topology::Cluster& cluster, int width,
                               Signals signals, Makers makers) {
  if (makers == Makers::engines) {
    EPCCL_ASSIGN(Queues queues, assign_queues(plan, cluster, width, signals));
    return QueuedPlan{plan, std::move(queues)};
  }
  const bool by_cores = makers == Makers::cores;
  QueuedPlan made{results_behind_sums(plan), {}};
  const auto assign = [&] {
    return assign_queues(made.plan, cluster, by_cores ? 1 : width, signals, Results::everywhere);
  };
  EPCCL_ASSIGN(made.queues, assign());
  if (!by_cores) return made;
  made.plan = copies_together(made.plan, made.queues);
  EPCCL_ASSIGN(made.queues, assign());
  return made;
}

}  // namespace epccl::plan
