#include "plan/queues.hpp"

#include <algorithm>
#include <array>

namespace epccl::plan {
namespace {

class Assignment {
 public:
  Assignment(const RankPlan& plan, const topology::Cluster& cluster, int width, Signals signals)
      : plan_(plan),
        cluster_(cluster),
        width_(std::max(width, 1)),
        signals_(signals),
        turns_(static_cast<size_t>(lanes * width_)) {
    turns_.assign(turns_.size(), Queues::none);
  }

  Result<Queues> make() && {
    for (const Step& step : plan_.steps) {
      EPCCL_ASSIGN(const uint16_t queue, queue_of(step));
      made_.of_step.push_back(queue);
    }
    return std::move(made_);
  }

 private:
  Result<uint16_t> queue_of(const Step& step) {
    if (signals_ == Signals::chained && (step.kind == Kind::wait || step.kind == Kind::post))
      return queue(Lane::signal, 0);
    if (signals_ == Signals::by_host && is_for_host(step.kind)) return Queues::none;
    switch (step.kind) {
      case Kind::wait:
        return Queues::none;
      case Kind::copy:
        return of_copy(step);
      case Kind::reduce:
        return queue(Lane::compute, 0);
      case Kind::move_rows:
      case Kind::reduce_rows:
        if (signals_ == Signals::by_host) return queue(Lane::compute, of_rows(step));
        break;
      case Kind::post:
        return of_post(step);
      default:
        break;
    }
    return error(Code::internal_error, "rank {}: step {} ({}) cannot be done by a queue of a device",
                 plan_.rank, made_.of_step.size(), to_string(step.kind));
  }

  // What the network waits for is not behind what it does not.
  static int of_rows(const Step& step) { return step.stage == 0 ? 0 : 1; }

  static bool is_for_host(Kind kind) {
    return kind == Kind::wait || kind == Kind::post || kind == Kind::send || kind == Kind::recv;
  }

  uint16_t of_copy(const Step& step) {
    const bool takes = step.source.rank != plan_.rank;
    if (step.destination.rank != plan_.rank) return queue(Lane::push, distance(step.destination.rank));
    if (step.destination.buffer != Buffer::scratch)
      return queue(Lane::pull, takes ? distance(step.source.rank) : 0);
    return takes ? queue(Lane::fetch, distance(step.source.rank)) : queue(Lane::stage, 0);
  }

  uint16_t of_post(const Step& step) {
    uint16_t found = Queues::none;
    uint32_t last = 0;
    for (const uint32_t dependency : plan_.dependencies_of(step))
      if (made_.of_step[dependency] != Queues::none && dependency >= last) {
        last = dependency;
        found = made_.of_step[dependency];
      }
    return found != Queues::none ? found : queue(Lane::stage, 0);
  }

  int distance(int peer) const {
    const int size = cluster_.local_size(cluster_.node_of(plan_.rank));
    return (cluster_.local_of(peer) - cluster_.local_of(plan_.rank) + size) % size;
  }

  uint16_t queue(Lane lane, int turn) {
    uint16_t& number = turns_[static_cast<size_t>(static_cast<int>(lane) * width_ + turn % width_)];
    if (number == Queues::none) {
      number = static_cast<uint16_t>(made_.lane.size());
      made_.lane.push_back(lane);
    }
    return number;
  }

  const RankPlan& plan_;
  const topology::Cluster& cluster_;
  const int width_;
  const Signals signals_;
  std::vector<uint16_t> turns_;  // [lane][turn]: the queue
  Queues made_;
};

}  // namespace

const char* to_string(Lane lane) {
  constexpr std::array names{"stage", "push", "fetch", "pull", "compute", "signal"};
  return names[static_cast<size_t>(lane)];
}

Result<Queues> assign_queues(const RankPlan& plan, const topology::Cluster& cluster, int width,
                             Signals signals) {
  return Assignment(plan, cluster, width, signals).make();
}

RankPlan in_queue_order(const RankPlan& plan, const Queues& queues) {
  RankPlan ordered = plan;
  ordered.dependencies.clear();
  std::vector<uint32_t> last(queues.count(), Builder::none);
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    Step& step = ordered.steps[index];
    const auto asked = plan.dependencies_of(plan.steps[index]);
    step.first_dependency = static_cast<uint32_t>(ordered.dependencies.size());
    ordered.dependencies.insert(ordered.dependencies.end(), asked.begin(), asked.end());
    if (const uint16_t queue = queues.of_step[index]; queue != Queues::none) {
      if (last[queue] != Builder::none && std::ranges::find(asked, last[queue]) == asked.end())
        ordered.dependencies.push_back(last[queue]);
      last[queue] = index;
    }
    step.dependency_count = static_cast<uint32_t>(ordered.dependencies.size()) - step.first_dependency;
  }
  return ordered;
}

}  // namespace epccl::plan
