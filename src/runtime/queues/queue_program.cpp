#include "runtime/queues/queue_program.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <tuple>

#include "plan/copy_lists.hpp"
#include "runtime/executor/counter_values.hpp"
#include "runtime/executor/kept_bytes.hpp"

namespace epccl::runtime {
namespace {

using plan::Kind;
using plan::Queues;
using Operation = QueueOperation;

class Programmer {
 public:
  Programmer(const plan::RankPlan& plan, const topology::Cluster& cluster, Queues queues, bool ranks_have_met)
      : plan_(plan),
        cluster_(cluster),
        ranks_have_met_(ranks_have_met),
        queues_(std::move(queues)),
        begins_list_(plan::begins_of_lists(plan, queues_)),
        waited_(queues_.count()),
        joined_(queues_.count(), std::vector<int64_t>(queues_.count(), -1)),
        after_(plan.steps.size()),
        operation_of_(plan.steps.size()),
        used_(plan.steps.size(), false) {}

  QueueProgram make() && {
    for (uint32_t index = 0; index < plan_.steps.size(); ++index) {
      const uint16_t queue = queues_.of_step[index];
      if (queue == Queues::none) continue;
      if (plan_.steps[index].kind == Kind::wait) used_[index] = true;
      if (is_left_out(plan_.steps[index])) continue;
      if (queues_.sum_of[index] != plan::Builder::none) {
        ++operations_[operation_of_[queues_.sum_of[index]]].also;
        continue;
      }
      wait_for_dependencies(index, queue);
      operation_of_[index] = operations_.size();
      operations_.push_back({Operation::Kind::step, queue, index, 0, begins_list_[index]});
    }
    return finish();
  }

 private:
  /// What it would say the meeting has said.
  bool is_left_out(const plan::Step& step) const { return ranks_have_met_ && step.at_entry; }

  void wait_for_dependencies(uint32_t index, uint16_t queue) {
    // The last first: who has waited for it has waited for what comes before it in its queue.
    for (const uint32_t asked : std::views::reverse(plan_.dependencies_of(plan_.steps[index]))) {
      const uint32_t sum = queues_.sum_of[asked], dependency = sum != plan::Builder::none ? sum : asked;
      const uint16_t other = queues_.of_step[dependency];
      if (other == Queues::none || is_left_out(plan_.steps[dependency])) {
        // A wait starts when what it depends on is over, so whoever waits for it waits for that, too.
        wait_for_dependencies(dependency, queue);
        wait(dependency, queue);
      } else if (other != queue) {
        join(dependency, other, queue);
      }
    }
  }

  void wait(uint32_t index, uint16_t queue) {
    used_[index] = true;
    const plan::Step& step = plan_.steps[index];
    if (is_left_out(step)) return;
    uint32_t& known = waited_[queue][{step.peer, step.slot}];
    if (known >= step.value) return;
    known = step.value;
    operations_.push_back({Operation::Kind::wait, queue, index});
  }

  // What came before the dependency in its queue is over as well.
  void join(uint32_t dependency, uint16_t other, uint16_t queue) {
    int64_t& known = joined_[queue][other];
    if (known >= dependency) return;
    known = dependency;
    if (after_[dependency] == 0) after_[dependency] = ++events_;
    operations_.push_back({Operation::Kind::join, queue, after_[dependency] - 1});
  }

  // Events are recorded right behind their steps, once it is known which steps have one.
  QueueProgram finish() {
    QueueProgram program;
    program.steps = plan_.steps;
    program.row_sources = plan_.row_sources;
    program.queues = std::move(queues_.lane);
    program.events = events_;
    program.uses = find_uses(plan_, cluster_);
    for (const Operation& operation : operations_) {
      program.operations.push_back(operation);
      if (operation.kind == Operation::Kind::step && after_[operation.index] != 0)
        program.operations.push_back({Operation::Kind::record, operation.queue, after_[operation.index] - 1});
    }
    program.of_queue.resize(program.queues.size());
    for (uint32_t index = 0; index < program.operations.size(); ++index)
      program.of_queue[program.operations[index].queue].push_back(index);
    for (size_t index = 0; index < program.queues.size(); ++index)
      if (const auto queue = static_cast<uint16_t>(index);
          !program.of_queue[index].empty() && !is_waited_for(queue))
        program.ends.push_back(queue);
    program.last_waits = last_waits();
    return program;
  }

  /// Of each counter the one for the highest value: they only grow.
  std::vector<uint32_t> last_waits() const {
    std::map<std::tuple<int32_t, uint16_t>, uint32_t> highest;
    for (uint32_t index = 0; index < plan_.steps.size(); ++index) {
      const plan::Step& step = plan_.steps[index];
      if (step.kind != Kind::wait || used_[index] || is_left_out(step)) continue;
      const auto [known, is_new] = highest.try_emplace({step.peer, step.slot}, index);
      if (!is_new && plan_.steps[known->second].value < step.value) known->second = index;
    }
    std::vector<uint32_t> waits;
    for (const auto& [counter, index] : highest) waits.push_back(index);
    return waits;
  }

  /// By another queue, to the end.
  bool is_waited_for(uint16_t queue) const {
    int64_t last = -1;
    for (const Operation& operation : operations_)
      if (operation.queue == queue)
        last = operation.kind == Operation::Kind::step ? operation.index : INT64_MAX;
    return std::ranges::any_of(joined_, [&](const auto& known) { return known[queue] >= last; });
  }

  const plan::RankPlan& plan_;
  const topology::Cluster& cluster_;
  const bool ranks_have_met_;
  Queues queues_;
  std::vector<bool> begins_list_;  // by step
  std::vector<Operation> operations_;
  std::vector<std::map<std::tuple<int32_t, uint16_t>, uint32_t>> waited_;  // by queue: counter, value
  std::vector<std::vector<int64_t>>
      joined_;                        // by queue and other queue: the last step that it is known to be past
  std::vector<uint32_t> after_;       // by step: 1 + its event; 0: none
  std::vector<size_t> operation_of_;  // by step
  std::vector<bool> used_;
  uint32_t events_ = 0;
};

}  // namespace

size_t QueueProgram::bytes() const {
  size_t all = kept_bytes(steps, row_sources, operations, of_queue, queues, ends, last_waits, uses);
  for (const std::vector<uint32_t>& each : of_queue) all += kept_bytes(each);
  return all;
}

std::vector<BufferUses> find_uses(const plan::RankPlan& plan, const topology::Cluster& cluster) {
  std::vector<BufferUses> uses(static_cast<size_t>(cluster.local_size(cluster.node_of(plan.rank))));
  const auto use = [&](const plan::Location& at) {
    uses[static_cast<size_t>(cluster.local_of(at.rank))][static_cast<size_t>(at.buffer)] = true;
  };
  for (const plan::Step& step : plan.steps) {
    const bool moves = step.kind == Kind::copy || step.kind == Kind::move_rows;
    if (moves) use(step.source);
    if (moves || step.kind == Kind::reduce || step.kind == Kind::reduce_rows) use(step.destination);
  }
  for (const plan::RowSource& source : plan.row_sources) use(source.at);
  return uses;
}

Result<QueueProgram> make_queue_program(const plan::RankPlan& plan, const topology::Cluster& cluster,
                                        int width, plan::Signals signals, plan::Makers makers) {
  EPCCL_TRY(check_values(plan));
  EPCCL_ASSIGN(plan::QueuedPlan queued, plan::queued_plan(plan, cluster, width, signals, makers));
  const bool ranks_have_met = signals == plan::Signals::spread;
  QueueProgram program = Programmer(queued.plan, cluster, std::move(queued.queues), ranks_have_met).make();
  program.by_cores = makers == plan::Makers::cores;
  return program;
}

}  // namespace epccl::runtime
