#include "plan/queues.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "plan/added_dependencies.hpp"
#include "plan/fewer_kernels.hpp"

namespace epccl::plan {
namespace {

class Assignment {
 public:
  Assignment(const RankPlan& plan, const topology::Cluster& cluster, int width, Signals signals,
             Results results)
      : plan_(plan),
        cluster_(cluster),
        width_(std::max(width, 1)),
        signals_(signals),
        results_(results),
        turns_(static_cast<size_t>(lanes * width_)) {
    turns_.assign(turns_.size(), Queues::none);
  }

  Result<Queues> make() && {
    for (const Step& step : plan_.steps) {
      made_.sum_of.push_back(results_ == Results::everywhere ? sum_of(step) : Builder::none);
      EPCCL_ASSIGN(const uint16_t queue, queue_of(step));
      made_.of_step.push_back(queue);
    }
    return std::move(made_);
  }

 private:
  /// The sum right before this copy of its result, perhaps with other copies of it between them.
  uint32_t sum_of(const Step& step) const {
    const auto index = static_cast<uint32_t>(made_.sum_of.size());
    if (step.kind != Kind::copy || index == 0) return Builder::none;
    const uint32_t before = made_.sum_of[index - 1];
    const uint32_t sum = before != Builder::none ? before : index - 1;
    return index - sum <= most_results_of_a_sum && sum_can_write(plan_, sum, step) ? sum : Builder::none;
  }

  Result<uint16_t> queue_of(const Step& step) {
    if (signals_ == Signals::chained && (step.kind == Kind::wait || step.kind == Kind::post))
      return queue(Lane::signal, 0);
    if (signals_ == Signals::by_host && is_for_host(step.kind)) return Queues::none;
    switch (step.kind) {
      case Kind::wait:
        return Queues::none;
      case Kind::copy:
        return made_.sum_of.back() != Builder::none ? queue(Lane::compute, 0) : of_copy(step);
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
  const Results results_;
  std::vector<uint16_t> turns_;  // [lane][turn]: the queue
  Queues made_;
};

}  // namespace

const char* to_string(Lane lane) {
  constexpr std::array names{"stage", "push", "fetch", "pull", "compute", "signal"};
  return names[static_cast<size_t>(lane)];
}

int most_queues(Lane lane, int width, Signals signals) {
  switch (lane) {
    case Lane::stage:
      return 1;
    case Lane::push:
    case Lane::fetch:
    case Lane::pull:
      return width;
    case Lane::compute:
      return signals == Signals::by_host ? std::min(width, 2) : 1;
    case Lane::signal:
      return signals == Signals::chained ? 1 : 0;
  }
  return 0;
}

Result<Queues> assign_queues(const RankPlan& plan, const topology::Cluster& cluster, int width,
                             Signals signals, Results results) {
  return Assignment(plan, cluster, width, signals, results).make();
}

RankPlan in_queue_order(const RankPlan& plan, const Queues& queues) {
  std::vector<std::vector<uint32_t>> last(queues.count());
  return add_dependencies(plan, [&](uint32_t index) {
    const uint16_t queue = queues.of_step[index];
    return queue == Queues::none ? std::vector<uint32_t>() : std::exchange(last[queue], {index});
  });
}

}  // namespace epccl::plan
