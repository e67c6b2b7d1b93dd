#include "plan/simulator.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <tuple>

#include "plan/flow_network.hpp"
#include "plan/step_graph.hpp"
#include "plan/well_formed.hpp"

namespace epccl::plan {
namespace {

/// For each step, the steps that another one's completion may let go: `of(id)`.
class Followers {
 public:
  /// `visit` is called twice with a function to give every (step, follower) to, in the same order both times.
  template <typename Visit>
  Followers(uint32_t steps, Visit visit) : first_(static_cast<size_t>(steps) + 1, 0) {
    visit([this](uint32_t id, uint32_t) { ++first_[id + 1]; });
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    followers_.resize(first_.back());
    std::vector<size_t> next(first_.begin(), first_.end() - 1);
    visit([&](uint32_t id, uint32_t follower) { followers_[next[id]++] = follower; });
  }

  std::span<const uint32_t> of(uint32_t id) const {
    return {followers_.data() + first_[id], first_[id + 1] - first_[id]};
  }

 private:
  std::vector<size_t> first_;
  std::vector<uint32_t> followers_;
};

Followers dependents(const StepGraph& graph) {
  return {graph.size(), [&](auto give) {
            for (uint32_t id = 0; id < graph.size(); ++id)
              for (const uint32_t dependency : graph.rank_plan(id).dependencies_of(graph.step(id)))
                give(graph.id(graph.rank_of(id), dependency), id);
          }};
}

Followers released_waits(const StepGraph& graph) {
  return {graph.size(), [&](auto give) {
            for (uint32_t id = 0; id < graph.size(); ++id)
              if (graph.step(id).kind == Kind::wait && graph.partner(id) != StepGraph::none)
                give(graph.partner(id), id);
          }};
}

/// One rank's CPU: what is ready for it, the earliest step first.
struct Cpu {
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  bool busy = false;
  bool queued = false;  // waits for a core
};

struct Node {
  int free_cores = 0;
  std::deque<int> waiting;  // ranks without a core, first come first served
  EqualShare copies;
  uint32_t version = 0;  // of the last event about `copies`; older ones are void
  uint64_t bytes = 0;
  Ticks busy = 0, busy_since = 0;
};

class Simulation {
 public:
  Simulation(const StepGraph& graph, const SimulationModel& model)
      : graph_(graph),
        model_(model),
        cluster_(graph.plan().cluster),
        machines_(cluster_, model),
        dependents_(dependents(graph)),
        waits_(released_waits(graph)),
        links_(count_link_bytes(graph.plan())),
        network_(machines_.port_rates(), machines_.network_grain(links_)),
        cpus_(graph.plan().ranks.size()),
        nodes_(static_cast<size_t>(cluster_.nodes())),
        pending_(graph.size()),
        signalled_(graph.size(), false),
        start_(graph.size(), never),
        end_(graph.size(), never) {}

  Result<Timeline> run() {
    begin();
    while (true) {
      const Ticks at = std::min(network_.next(), events_.empty() ? never : events_.top().at);
      if (at == never) break;
      if (at >= longest)
        return error(Code::invalid_argument, "plan {}: takes more than {} s of virtual time",
                     graph_.plan().algorithm, to_seconds(longest));
      now_ = at;
      while (!events_.empty() && events_.top().at == now_) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
      }
      if (network_.next() <= now_) finish_flows();
    }
    EPCCL_TRY(check_complete());
    return timeline();
  }

 private:
  enum class Type : uint8_t { cpu_done, copy_starts, copies_end, signal };
  struct Event {
    Ticks at;
    uint64_t sequence;  // equal times: first made, first handled
    Type type;
    uint32_t id;       // step; copies_end: node
    uint32_t version;  // copies_end
    bool operator>(const Event& other) const {
      return std::tuple(at, sequence) > std::tuple(other.at, other.sequence);
    }
  };

  void begin() {
    for (int node = 0; node < cluster_.nodes(); ++node)
      node_(node).free_cores = model_.cores_per_node > 0 ? model_.cores_per_node : cluster_.local_size(node);
    for (uint32_t id = 0; id < graph_.size(); ++id) {
      pending_[id] = graph_.step(id).dependency_count;
      // A counter that starts high enough releases its wait at once.
      signalled_[id] = graph_.step(id).kind == Kind::wait && graph_.partner(id) == StepGraph::none;
    }
    for (uint32_t id = 0; id < graph_.size(); ++id)
      if (graph_.step(id).dependency_count == 0) ready(id);
    settle();
  }

  void schedule(Ticks at, Type type, uint32_t id, uint32_t version = 0) {
    events_.push({at, sequence_++, type, id, version});
  }

  void handle(const Event& event) {
    switch (event.type) {
      case Type::cpu_done:
        cpu_done(event.id);
        break;
      case Type::copy_starts:
        copy_starts(event.id);
        break;
      case Type::copies_end:
        if (event.version == node_(static_cast<int>(event.id)).version)
          copies_end(static_cast<int>(event.id));
        break;
      case Type::signal:
        signal(event.id);
        break;
    }
    settle();
  }

  /// All dependencies of the step are complete.
  void ready(uint32_t id) {
    const Step& step = graph_.step(id);
    if (step.rows == 0 || is_fetched(graph_.plan(), step)) {
      start_[id] = now_;
      return complete(id);
    }
    if (step.kind == Kind::send || work_of(id).rows > 0) return enqueue(id);
    start_[id] = now_;
    if (step.kind == Kind::post) return complete(id);
    if (signalled_[id]) proceed(id);
  }

  /// The other half of what a recv or a wait needs is there.
  void signal(uint32_t id) {
    signalled_[id] = true;
    if (pending_[id] == 0) proceed(id);
  }

  void proceed(uint32_t id) {
    if (graph_.step(id).kind == Kind::recv) return enqueue(id);
    complete(id);
  }

  void complete(uint32_t id) {
    end_[id] = now_;
    completed_.push_back(id);
  }

  /// Lets go what waited for completed steps, and what that completes, until nothing is left to do now.
  void settle() {
    while (!completed_.empty()) {
      const uint32_t id = completed_.front();
      completed_.pop_front();
      for (const uint32_t wait : waits_.of(id))
        schedule(now_ + to_ticks(model_.signal_latency), Type::signal, wait);
      for (const uint32_t next : dependents_.of(id))
        if (--pending_[next] == 0) ready(next);
    }
  }

  void enqueue(uint32_t id) {
    cpu_(graph_.rank_of(id)).ready.push(id);
    take_up_work(graph_.rank_of(id));
  }

  void take_up_work(int rank) {
    Cpu& cpu = cpu_(rank);
    if (cpu.busy || cpu.queued || cpu.ready.empty()) return;
    Node& node = node_(cluster_.node_of(rank));
    if (node.free_cores == 0) {
      cpu.queued = true;
      node.waiting.push_back(rank);
      return;
    }
    --node.free_cores;
    cpu.busy = true;
    const uint32_t id = cpu.ready.top();
    cpu.ready.pop();
    take_up(id);
  }

  void take_up(uint32_t id) {
    const Step& step = graph_.step(id);
    if (const uint64_t rows = work_of(id).rows; rows > 0) {
      start_[id] = now_;
      const double latency = model_.copy_latency + model_.copy_row_latency * static_cast<double>(rows - 1);
      schedule(now_ + to_ticks(latency), Type::copy_starts, id);
      return;
    }
    if (step.kind == Kind::send) start_[id] = now_;
    const double overhead = step.kind == Kind::send ? model_.sender_overhead : model_.receiver_overhead;
    schedule(now_ + to_ticks(overhead), Type::cpu_done, id);
  }

  void release_cpu(int rank) {
    Node& node = node_(cluster_.node_of(rank));
    cpu_(rank).busy = false;
    ++node.free_cores;
    if (!node.waiting.empty()) {
      const int first = node.waiting.front();
      node.waiting.pop_front();
      cpu_(first).queued = false;
      take_up_work(first);
    }
    take_up_work(rank);
  }

  void cpu_done(uint32_t id) {
    const Step& step = graph_.step(id);
    const int rank = graph_.rank_of(id);
    release_cpu(rank);
    if (step.kind == Kind::recv) return complete(id);
    if (step.total_bytes() == 0) return sent(id);
    network_.start(now_, machines_.port_of(rank), machines_.port_of(step.peer), step.total_bytes(), id);
  }

  void sent(uint32_t id) {
    complete(id);
    schedule(now_ + to_ticks(model_.network_latency), Type::signal, graph_.partner(id));
  }

  void finish_flows() {
    ended_.clear();
    network_.advance(now_, ended_);
    for (const uint32_t id : ended_) sent(id);
    settle();
  }

  void copy_starts(uint32_t id) {
    const int index = cluster_.node_of(graph_.rank_of(id));
    Node& node = node_(index);
    if (node.copies.idle()) node.busy_since = now_;
    node.bytes += work_of(id).bytes;
    node.copies.start(now_, machines_.weighted_bytes(graph_.rank_plan(id), graph_.step(id)), id);
    share_memory(index);
  }

  void copies_end(int index) {
    Node& node = node_(index);
    std::vector<uint32_t> ended;
    node.copies.end(now_, ended);
    if (node.copies.idle()) node.busy += now_ - node.busy_since;
    share_memory(index);
    for (const uint32_t id : ended) {
      release_cpu(graph_.rank_of(id));
      complete(id);
    }
  }

  void share_memory(int index) {
    Node& node = node_(index);
    ++node.version;
    if (node.copies.idle()) return;
    const double rate = std::min(model_.copy_rate, model_.node_copy_rate / node.copies.transfers());
    node.copies.set_rate(now_, rate / ticks_per_second);
    schedule(node.copies.end_at(), Type::copies_end, static_cast<uint32_t>(index), node.version);
  }

  Status check_complete() const {
    for (uint32_t id = 0; id < graph_.size(); ++id)
      if (end_[id] == never)
        return step_error(graph_.plan(), graph_.rank_of(id), graph_.index_of(id),
                          fmt::format("deadlock: not complete when nothing happens any more, after {} s",
                                      to_seconds(now_)));
    return {};
  }

  Timeline timeline() {
    Timeline result;
    result.total = graph_.size() > 0 ? to_seconds(std::ranges::max(end_)) : 0;
    result.ranks.resize(graph_.plan().ranks.size());
    for (uint32_t id = 0; id < graph_.size(); ++id)
      result.ranks[static_cast<size_t>(graph_.rank_of(id))].push_back(
          {to_seconds(start_[id]), to_seconds(end_[id])});
    result.links_per_node = machines_.links_per_node();
    result.egress = network_.egress();
    result.ingress = network_.ingress();
    for (const Node& node : nodes_) result.memory.push_back({node.bytes, to_seconds(node.busy)});
    result.links = std::move(links_);
    return result;
  }

  MemoryWork work_of(uint32_t id) const { return memory_work(graph_.rank_plan(id), graph_.step(id)); }
  Cpu& cpu_(int rank) { return cpus_[static_cast<size_t>(rank)]; }
  Node& node_(int node) { return nodes_[static_cast<size_t>(node)]; }

  const StepGraph& graph_;
  const SimulationModel& model_;
  const topology::Cluster& cluster_;
  const SimulatedCluster machines_;
  Followers dependents_, waits_;
  LinkBytes links_;
  FlowNetwork network_;
  std::vector<Cpu> cpus_;
  std::vector<Node> nodes_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t sequence_ = 0;
  Ticks now_ = 0;
  std::vector<uint32_t> pending_;  // per step: dependencies that are not complete
  std::vector<bool> signalled_;    // per step: recv: its message has arrived; wait: its value is visible
  std::vector<Ticks> start_, end_;
  std::deque<uint32_t> completed_;
  std::vector<uint32_t> ended_;
};

}  // namespace

Result<Timeline> simulate(const Plan& plan, const SimulationModel& model) {
  EPCCL_TRY(check(model));
  EPCCL_TRY(well_formed(plan));
  EPCCL_ASSIGN(const StepGraph graph, StepGraph::build(plan));
  return Simulation(graph, model).run();
}

}  // namespace epccl::plan
