#include "plan/fewer_kernels.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "plan/added_dependencies.hpp"
#include "plan/reordered.hpp"

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

/// Copies of one queue that begin together.
struct Run {
  uint16_t queue = 0;
  std::vector<uint32_t> steps, waits;
};

/// Finds runs, in the order of their first steps.
class Runs {
 public:
  Runs(const RankPlan& plan, const Queues& queues)
      : plan_(plan), queues_(queues), open_(queues.count(), none), of_step_(plan.steps.size(), none) {
    for (uint32_t index = 0; index < plan.steps.size(); ++index) {
      const uint16_t queue = queues.of_step[index];
      if (queue == Queues::none) continue;
      if (plan.steps[index].kind == Kind::copy && queues.sum_of[index] == none)
        add(index, queue);
      else
        open_[queue] = none;
    }
  }

  /// The run that a step begins; null: none.
  const Run* begun_by(uint32_t index) const {
    const uint32_t run = of_step_[index];
    return run != none && runs_[run].steps.front() == index ? &runs_[run] : nullptr;
  }
  const Run* of(uint32_t index) const { return of_step_[index] == none ? nullptr : &runs_[of_step_[index]]; }

 private:
  bool waits_alone(uint32_t step) const {
    return plan_.steps[step].kind == Kind::wait && plan_.steps[step].dependency_count == 0;
  }
  void add(uint32_t index, uint16_t queue) {
    const auto after = plan_.dependencies_of(plan_.steps[index]);
    const uint32_t first = open_[queue] == none ? index : runs_[open_[queue]].steps.front();
    const bool joins = std::ranges::all_of(after, [&](uint32_t it) { return it < first || waits_alone(it); });
    if (open_[queue] == none || !joins) {
      open_[queue] = static_cast<uint32_t>(runs_.size());
      runs_.push_back({queue, {}, {}});
    }
    Run& run = runs_[open_[queue]];
    run.steps.push_back(index);
    for (const uint32_t it : after)
      if (waits_alone(it) && !contains(run.waits, it)) run.waits.push_back(it);
    of_step_[index] = open_[queue];
  }

  const RankPlan& plan_;
  const Queues& queues_;
  std::vector<uint32_t> open_;     // by queue: the run that goes on
  std::vector<uint32_t> of_step_;  // its run
  std::vector<Run> runs_;
};

/// Every copy waits for all that the others of its run wait for.
RankPlan with_common_waits(const RankPlan& plan, const Runs& runs) {
  return add_dependencies(plan, [&](uint32_t index) {
    const Run* run = runs.of(index);
    return run != nullptr ? run->waits : std::vector<uint32_t>();
  });
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
  const Runs runs(plan, queues);
  std::vector<uint32_t> order;
  std::vector<bool> placed(plan.steps.size(), false);
  const auto place = [&](uint32_t index) {
    if (placed[index]) return;
    placed[index] = true;
    order.push_back(index);
  };
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    if (const Run* run = runs.begun_by(index)) {
      for (const uint32_t wait : run->waits) place(wait);
      for (const uint32_t copy : run->steps) place(copy);
    }
    place(index);
  }
  return reordered(with_common_waits(plan, runs), order);
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
