// Depth-first search for a topological order, with the cycle as the error.
#include <algorithm>

#include "plan/printer.hpp"
#include "plan/step_graph.hpp"
#include "plan/well_formed.hpp"

namespace epccl::plan {
namespace {

class DepthFirst {
 public:
  explicit DepthFirst(const StepGraph& graph) : graph_(graph) {
    order_.ids.reserve(graph.size());
    order_.depth.assign(graph.size(), unseen);
  }

  Result<StepOrder> run() {
    for (uint32_t id = 0; id < graph_.size(); ++id)
      if (order_.depth[id] == unseen) EPCCL_TRY(visit(id));
    return std::move(order_);
  }

 private:
  static constexpr uint32_t unseen = UINT32_MAX, open = UINT32_MAX - 1;

  struct Frame {
    uint32_t id;
    uint32_t next;   // predecessor to look at
    uint32_t depth;  // so far
  };

  /// The k-th step that must be complete before `id` can be; none after the last.
  ///
  /// A send may complete only after its recv was started, so it also has what its recv depends on as
  /// predecessors.
  uint32_t predecessor(uint32_t id, uint32_t k) const {
    const Step& step = graph_.step(id);
    if (k < step.dependency_count) return graph_.id(graph_.rank_of(id), dependency(id, k));
    k -= step.dependency_count;
    const uint32_t partner = graph_.partner(id);
    if (partner == StepGraph::none) return StepGraph::none;
    if (step.kind != Kind::send) return k == 0 ? partner : StepGraph::none;
    if (k < graph_.step(partner).dependency_count)
      return graph_.id(graph_.rank_of(partner), dependency(partner, k));
    return StepGraph::none;
  }

  uint32_t dependency(uint32_t id, uint32_t k) const {
    return graph_.rank_plan(id).dependencies_of(graph_.step(id))[k];
  }

  Status visit(uint32_t root) {
    push(root);
    while (!stack_.empty()) {
      Frame& top = stack_.back();
      const uint32_t before = predecessor(top.id, top.next++);
      if (before == StepGraph::none) {
        finish();
      } else if (order_.depth[before] == unseen) {
        push(before);
      } else if (order_.depth[before] == open) {
        return cycle(before);
      } else {
        top.depth = std::max(top.depth, order_.depth[before] + 1);
      }
    }
    return {};
  }

  void push(uint32_t id) {
    order_.depth[id] = open;
    stack_.push_back({id, 0, 0});
  }

  void finish() {
    const Frame done = stack_.back();
    stack_.pop_back();
    order_.depth[done.id] = done.depth;
    order_.ids.push_back(done.id);
    if (!stack_.empty()) stack_.back().depth = std::max(stack_.back().depth, done.depth + 1);
  }

  /// The frames from `first` to the top each wait for the next one, and the last for the first.
  Status cycle(uint32_t first) const {
    constexpr size_t shown = 12;
    const auto start = std::ranges::find(stack_, first, &Frame::id);
    const auto length = static_cast<size_t>(stack_.end() - start);
    std::string text = fmt::format("deadlock, a cycle of {} steps: this step", length);
    for (size_t i = 1; i <= length; ++i) {
      if (i > shown && i < length) continue;
      const uint32_t here = (start + static_cast<std::ptrdiff_t>(i - 1))->id;
      const uint32_t next = i == length ? first : (start + static_cast<std::ptrdiff_t>(i))->id;
      const bool by_receiver =
          graph_.step(here).kind == Kind::send && graph_.rank_of(here) != graph_.rank_of(next);
      text += i > shown     ? " ... needs"
              : by_receiver ? " needs its recv to be started, which needs"
                            : " needs";
      text += fmt::format(" rank {} step {} ({}){}", graph_.rank_of(next), graph_.index_of(next),
                          to_text(graph_.step(next)), i == length ? "" : ", which");
    }
    return step_error(graph_.plan(), graph_.rank_of(first), graph_.index_of(first), text);
  }

  const StepGraph& graph_;
  StepOrder order_;
  std::vector<Frame> stack_;
};

}  // namespace

Result<StepOrder> order_steps(const StepGraph& graph) {
  return DepthFirst(graph).run();
}

}  // namespace epccl::plan
