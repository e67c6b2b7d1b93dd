#include "plan/step_graph.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "plan/printer.hpp"
#include "plan/well_formed.hpp"

namespace epccl::plan {
namespace {

/// One end of a message, sortable by what must be unique.
struct End {
  int32_t source, destination;
  uint32_t tag, id;

  auto key() const { return std::tuple(source, destination, tag); }
  std::string name() const { return fmt::format("message {} -> {} tag {}", source, destination, tag); }
};

using Ends = std::vector<End>;

void sort_ends(Ends& ends) {
  std::ranges::sort(ends, [](const End& a, const End& b) {
    return std::tuple(a.source, a.destination, a.tag, a.id) <
           std::tuple(b.source, b.destination, b.tag, b.id);
  });
}

Status id_error(const StepGraph& graph, uint32_t id, const std::string& what) {
  return step_error(graph.plan(), graph.rank_of(id), graph.index_of(id), what);
}

/// Each (source, destination, tag) at most once.
Status check_unique(const StepGraph& graph, const Ends& ends) {
  for (size_t i = 1; i < ends.size(); ++i)
    if (ends[i].key() == ends[i - 1].key())
      return id_error(graph, ends[i].id,
                      fmt::format("{} is used again: step {} uses it too", ends[i].name(),
                                  graph.index_of(ends[i - 1].id)));
  return {};
}

/// The posts of one rank, counter by counter, in step order.
class RankPosts {
 public:
  explicit RankPosts(const RankPlan& rank) : rank_(&rank) {
    for (uint32_t index = 0; index < rank.steps.size(); ++index)
      if (rank.steps[index].kind == Kind::post && rank.steps[index].rows > 0)
        by_slot_[rank.steps[index].slot].push_back(index);
  }

  /// Values grow, and every post comes after the one before it in every schedule.
  Status check(const Plan& plan) {
    for (const auto& posts : by_slot_)
      for (size_t i = 1; i < posts.size(); ++i) {
        const uint32_t before = posts[i - 1], after = posts[i];
        const uint32_t low = rank_->steps[before].value, high = rank_->steps[after].value;
        if (high <= low)
          return step_error(
              plan, rank_->rank, after,
              fmt::format("does not raise the counter: step {} already posted {}", before, low));
        if (!reaches(before, after))
          return step_error(
              plan, rank_->rank, after,
              fmt::format("is not ordered after step {}, which posts {} to the same slot", before, low));
      }
    return {};
  }

  /// Index of the first post of `slot` with at least `value`; StepGraph::none when there is none.
  uint32_t first_reaching(uint16_t slot, uint32_t value) const {
    const auto& posts = by_slot_[slot];
    const auto found =
        std::ranges::lower_bound(posts, value, {}, [&](uint32_t index) { return rank_->steps[index].value; });
    return found == posts.end() ? StepGraph::none : *found;
  }

  uint32_t highest(uint16_t slot) const {
    return by_slot_[slot].empty() ? 0 : rank_->steps[by_slot_[slot].back()].value;
  }

 private:
  /// Whether dependencies lead from `to` back to `from`. Dependencies point to earlier steps only, so nothing
  /// before `from` is looked at.
  bool reaches(uint32_t from, uint32_t to) {
    if (seen_.empty()) seen_.assign(rank_->steps.size(), 0);
    ++round_;
    stack_.assign(1, to);
    while (!stack_.empty()) {
      const uint32_t index = stack_.back();
      stack_.pop_back();
      for (const uint32_t dependency : rank_->dependencies_of(rank_->steps[index])) {
        if (dependency == from) return true;
        if (dependency < from || seen_[dependency] == round_) continue;
        seen_[dependency] = round_;
        stack_.push_back(dependency);
      }
    }
    return false;
  }

  const RankPlan* rank_;
  std::array<std::vector<uint32_t>, max_slots> by_slot_;
  std::vector<uint32_t> seen_, stack_;
  uint32_t round_ = 0;
};

}  // namespace

Result<StepGraph> StepGraph::build(const Plan& plan) {
  StepGraph graph;
  graph.plan_ = &plan;
  for (const RankPlan& rank : plan.ranks) {
    graph.first_.push_back(graph.size());
    graph.rank_of_.insert(graph.rank_of_.end(), rank.steps.size(), rank.rank);
  }
  graph.partner_.assign(graph.size(), none);
  EPCCL_TRY(graph.match_messages());
  EPCCL_TRY(graph.match_signals());
  return graph;
}

Status StepGraph::match_messages() {
  Ends sends, recvs;
  for (uint32_t id = 0; id < size(); ++id) {
    const Step& step = this->step(id);
    if (step.rows == 0) continue;  // nothing is sent
    if (step.kind == Kind::send) sends.push_back({rank_of(id), step.peer, step.tag, id});
    if (step.kind == Kind::recv) recvs.push_back({step.peer, rank_of(id), step.tag, id});
  }
  sort_ends(sends);
  sort_ends(recvs);
  EPCCL_TRY(check_unique(*this, sends));
  EPCCL_TRY(check_unique(*this, recvs));
  for (size_t i = 0; i < std::max(sends.size(), recvs.size()); ++i) {
    const bool send_left = i < sends.size(), recv_left = i < recvs.size();
    if (!recv_left || (send_left && sends[i].key() < recvs[i].key()))
      return id_error(*this, sends[i].id, fmt::format("{} has no recv", sends[i].name()));
    if (!send_left || recvs[i].key() < sends[i].key())
      return id_error(*this, recvs[i].id, fmt::format("{} has no send", recvs[i].name()));
    const uint64_t sent = step(sends[i].id).total_bytes(), room = step(recvs[i].id).total_bytes();
    if (sent != room)
      return id_error(*this, recvs[i].id,
                      fmt::format("{} has {} bytes where sent (step {}), {} bytes where received",
                                  sends[i].name(), sent, index_of(sends[i].id), room));
    partner_[sends[i].id] = recvs[i].id;
    partner_[recvs[i].id] = sends[i].id;
  }
  return {};
}

Status StepGraph::match_signals() {
  std::vector<RankPosts> posts;
  posts.reserve(plan_->ranks.size());
  for (const RankPlan& rank : plan_->ranks) {
    posts.emplace_back(rank);
    EPCCL_TRY(posts.back().check(*plan_));
  }
  for (uint32_t id = 0; id < size(); ++id) {
    const Step& step = this->step(id);
    if (step.kind != Kind::wait || step.value == 0 || step.rows == 0) continue;
    const RankPosts& peer = posts[static_cast<size_t>(step.peer)];
    const uint32_t index = peer.first_reaching(step.slot, step.value);
    if (index == none)
      return id_error(
          *this, id,
          fmt::format("waits for a value that is never posted: rank {} posts at most {} to slot {}",
                      step.peer, peer.highest(step.slot), step.slot));
    partner_[id] = this->id(step.peer, index);
    if (step.at_entry != this->step(partner_[id]).at_entry)
      return id_error(
          *this, id,
          fmt::format("waits {} for a post that is {} (rank {}, step {})",
                      step.at_entry ? "at entry" : "within the call",
                      step.at_entry ? "made within the call" : "that of its entry", step.peer, index));
  }
  return {};
}

}  // namespace epccl::plan
