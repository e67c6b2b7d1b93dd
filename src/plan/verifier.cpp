#include "plan/verifier.hpp"

#include <algorithm>

#include "plan/data_flow.hpp"
#include "plan/step_graph.hpp"
#include "plan/well_formed.hpp"

namespace epccl::plan {

Status verify(const Plan& plan, std::span<const Transfer> expected, VerifyReport* report) {
  return verify(plan, expected, {}, {}, report);
}

Status verify(const Plan& plan, std::span<const Transfer> expected, std::span<const RowSum> sums,
              std::span<const uint64_t> inputs, VerifyReport* report) {
  EPCCL_ASSIGN(const std::vector<uint64_t> read, input_sizes(plan, expected, sums));
  EPCCL_TRY(well_formed(plan, inputs.empty() ? read : inputs));
  EPCCL_ASSIGN(const StepGraph graph, StepGraph::build(plan));
  if (report != nullptr) {
    *report = {};
    report->steps = graph.size();
    for (const RankPlan& rank : plan.ranks) report->dependencies += rank.dependencies.size();
    report->links = count_link_bytes(plan);
  }
  EPCCL_ASSIGN(const StepOrder order, order_steps(graph));
  if (report != nullptr && graph.size() > 0) report->depth = std::ranges::max(order.depth) + 1;
  DataFlow flow(graph, order);
  EPCCL_TRY(flow.run());
  EPCCL_TRY(flow.check_outputs(expected, sums));
  return flow.check_ends();
}

namespace {

/// Both buffers become parts of one, which the data flow calls output.
class OneMemory {
 public:
  explicit OneMemory(std::span<const InPlace> buffers) : buffers_(buffers) {}

  Plan moved(Plan plan) const {
    for (RankPlan& rank : plan.ranks) {
      for (Step& step : rank.steps) {
        move(step.source);
        move(step.destination);
      }
      for (RowSource& source : rank.row_sources) move(source.at);
    }
    return plan;
  }
  std::vector<Transfer> moved(std::span<const Transfer> expected) const {
    std::vector<Transfer> result(expected.begin(), expected.end());
    for (Transfer& it : result) it.destination_offset += of(it.destination_rank).output;
    return result;
  }
  std::vector<RowSum> moved(std::span<const RowSum> sums) const {
    std::vector<RowSum> result(sums.begin(), sums.end());
    for (RowSum& it : result) it.destination_offset += of(it.destination_rank).output;
    return result;
  }

 private:
  const InPlace& of(int rank) const { return buffers_[static_cast<size_t>(rank)]; }
  void move(Location& at) const {
    if (at.rank < 0 || at.buffer == Buffer::scratch) return;
    at.offset += at.buffer == Buffer::input ? of(at.rank).input : of(at.rank).output;
    at.buffer = Buffer::output;
  }

  std::span<const InPlace> buffers_;
};

}  // namespace

Status verify_in_place(const Plan& plan, std::span<const Transfer> expected, std::span<const RowSum> sums,
                       std::span<const InPlace> buffers) {
  if (buffers.size() != static_cast<size_t>(plan.cluster.ranks()))
    return error(Code::invalid_argument, "buffers of {} ranks for a plan of {}", buffers.size(),
                 plan.cluster.ranks());
  EPCCL_ASSIGN(const std::vector<uint64_t> inputs, input_sizes(plan, expected, sums));
  EPCCL_TRY(well_formed(plan, inputs));
  const OneMemory memory(buffers);
  const Plan moved = memory.moved(plan);
  EPCCL_ASSIGN(const StepGraph graph, StepGraph::build(moved));
  EPCCL_ASSIGN(const StepOrder order, order_steps(graph));
  DataFlow flow(graph, order);
  for (size_t rank = 0; rank < buffers.size(); ++rank)
    flow.begin_in_place(static_cast<int>(rank), buffers[rank].input, inputs[rank]);
  EPCCL_TRY(flow.run());
  EPCCL_TRY(flow.check_outputs(memory.moved(expected), memory.moved(sums)));
  return flow.check_ends();
}

}  // namespace epccl::plan
