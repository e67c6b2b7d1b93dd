#include "plan/happens_before.hpp"

#include <algorithm>
#include <numeric>

namespace epccl::plan {

HappensBefore::HappensBefore(const StepGraph& graph, const StepOrder& order)
    : graph_(graph), order_(order), asked_in_(graph.size(), 0), seen_in_(graph.size(), 0) {}

bool HappensBefore::ask(uint32_t earlier) {
  if (searched_) {
    searched_ = false;
    ++round_;
    remaining_ = 0;
    floor_ = UINT32_MAX;
  }
  if (asked_in_[earlier] == round_) return false;
  asked_in_[earlier] = round_;
  ++remaining_;
  floor_ = std::min(floor_, order_.depth[earlier]);
  return true;
}

void HappensBefore::follow(uint32_t id, bool completes) {
  if (completes && asked_in_[id] == round_) {
    asked_in_[id] = 0;
    --remaining_;
  }
  // A step no deeper than the shallowest one asked for has none of them before it.
  if (order_.depth[id] <= floor_ || seen_in_[id] == round_) return;
  seen_in_[id] = round_;
  queue_.push_back(id);
}

bool HappensBefore::search(uint32_t later) {
  queue_.assign(1, later);
  return search_all(Messages::follow);
}

bool HappensBefore::search_end(int rank) {
  queue_.resize(graph_.plan().ranks[static_cast<size_t>(rank)].steps.size());
  std::iota(queue_.begin(), queue_.end(), graph_.id(rank, 0));
  for (const uint32_t id : queue_) seen_in_[id] = round_;
  return search_all(Messages::ignore);
}

// Without messages it does not leave the node, of which large clusters have many.
bool HappensBefore::search_all(Messages messages) {
  searched_ = true;
  for (size_t head = 0; head < queue_.size() && remaining_ > 0; ++head) {
    const uint32_t id = queue_[head];
    const Step& step = graph_.step(id);
    const int rank = graph_.rank_of(id);
    for (const uint32_t dependency : graph_.rank_plan(id).dependencies_of(step))
      follow(graph_.id(rank, dependency), true);
    const uint32_t partner = graph_.partner(id);
    if (partner == StepGraph::none || step.kind == Kind::send) continue;
    if (step.kind == Kind::recv && messages == Messages::ignore) continue;
    follow(partner, step.kind == Kind::wait);
  }
  return remaining_ == 0;
}

}  // namespace epccl::plan
