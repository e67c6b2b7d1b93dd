#include "runtime/comm/regroup.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/clock.hpp"
#include "base/fnv1a.hpp"
#include "runtime/bootstrap/allgather.hpp"
#include "runtime/bootstrap/rank_list.hpp"

namespace epccl::runtime {
namespace {

uint64_t session_number(const std::vector<int>& members, uint64_t time, uint64_t disagreements) {
  uint64_t hash = fnv1a64("");
  const auto add = [&hash](uint64_t value) {
    hash = fnv1a64({reinterpret_cast<const char*>(&value), sizeof value}, hash);
  };
  for (const int member : members) add(static_cast<uint64_t>(member));
  add(time);
  if (disagreements > 0) add(disagreements);
  return hash;
}

}  // namespace

std::vector<int> split_members(std::span<const SplitChoice> choices, int rank) {
  const int32_t color = choices[static_cast<size_t>(rank)].color;
  std::vector<int> members;
  if (color == no_color) return members;
  for (size_t each = 0; each < choices.size(); ++each)
    if (choices[each].color == color) members.push_back(static_cast<int>(each));
  std::ranges::stable_sort(members, {}, [&](int member) { return choices[static_cast<size_t>(member)].key; });
  return members;
}

std::vector<int> shrink_members(int ranks, std::span<const int> excluded) {
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank)
    if (std::ranges::find(excluded, rank) == excluded.end()) members.push_back(rank);
  return members;
}

uint64_t Regroup::Numbers::take() {
  if (in_vain.empty()) return ++last;
  return in_vain.extract(in_vain.begin()).value();
}

// All may have come before one of them was lost, and this rank hear of that first.
std::function<Status(bool last)> Regroup::until_lost(const std::vector<int>& members, Absence absence) {
  constexpr double patience = 1.0;
  return [this, members, absence, known_since = 0.0](bool last) mutable -> Status {
    std::string why = lost_(members, absence);
    if (why.empty()) why = line_.who_left(members);
    if (why.empty()) return {};
    const double now = now_seconds();
    if (known_since == 0) known_since = now;
    if (!last && now - known_since < patience) return {};
    return error(Code::remote_error,
                 "rank {} of the parent: one of the {} ranks that are to meet will not come: {}", rank_,
                 members.size(), why);
  };
}

Result<Gathering> Regroup::gather(const std::vector<int>& members, Absence absence) {
  const std::lock_guard lock(mutex_);
  const int host = members.front();
  const UniqueId& id = meeting_points_[static_cast<size_t>(host)];
  const auto position = std::ranges::find(members, rank_);
  if (position == members.end())
    return error(Code::internal_error, "rank {} is not among those that are to meet", rank_);
  if (id.bytes == UniqueId{}.bytes)
    return error(
        Code::system_error,
        "rank {}: rank {}, the first of the new communicator, could open no address for others to meet at",
        rank_, host);
  if (host == rank_) EPCCL_TRY(own_->serve());
  std::vector<int> sorted = members;
  std::ranges::sort(sorted);
  const auto disagreements = static_cast<uint64_t>(std::ranges::count_if(
      disagreements_, [&](const std::vector<int>& kept) { return std::ranges::includes(kept, sorted); }));
  Gathering gathering;
  gathering.id = id;
  const uint64_t number = gatherings_[members].take();
  gathering.session = session_number(members, number, disagreements);
  gathering.rank = static_cast<int>(position - members.begin());
  gathering.ranks = static_cast<int>(members.size());
  RankList list;
  for (const int member : members) list.add(member);
  gathering.where =
      fmt::format("meeting at rank {} of the parent (its ranks {}, here numbered from 0)", host, list.text());
  gathering.ranks_of_parent = members;
  gathering.nobody_there = [this, host](bool at_loopback) { nobody_there_(host, at_loopback); };
  gathering.check = until_lost(members, absence);
  gathering.in_vain = [this, members, number] {
    const std::lock_guard again(mutex_);
    gatherings_[members].in_vain.insert(number);
  };
  return gathering;
}

void Regroup::disagreed(std::vector<int> kept) {
  const std::lock_guard lock(mutex_);
  disagreements_.push_back(std::move(kept));
}

Result<Gathering> Regroup::gather_shrunk(std::span<const int> excluded, Absence absence) {
  const std::vector<int> members = shrink_members(ranks_, excluded);
  EPCCL_ASSIGN(Gathering gathering, gather(members, absence));
  const std::set<int> once(excluded.begin(), excluded.end());
  const uint32_t number = line_.announce_shrink(std::vector<int>(once.begin(), once.end()));
  gathering.check = [this, number, until = std::move(gathering.check)](bool last) -> Status {
    auto verdict = line_.shrink_verdict(number, last);
    if (!verdict) return until(last);
    if (last) disagreed(std::move(verdict->kept));
    return error(Code::invalid_usage, "rank {} of the parent: ranks exclude different ranks in a shrink: {}",
                 rank_, verdict->text);
  };
  return gathering;
}

Result<std::vector<SplitChoice>> Regroup::exchange_choices_anew(const SplitChoice& mine,
                                                                const std::shared_ptr<Interrupt>& interrupt) {
  std::vector<int> everybody(static_cast<size_t>(ranks_));
  std::iota(everybody.begin(), everybody.end(), 0);
  EPCCL_ASSIGN(const Gathering gathering, gather(everybody, Absence::gone));
  auto joined = Bootstrap::join(
      gathering.id, gathering.rank, gathering.ranks, timeout_seconds_,
      {gathering.session, interrupt, gathering.check, gathering.ranks_of_parent, gathering.nobody_there});
  if (!joined.ok()) {
    gathering.in_vain();
    return std::move(joined).take_status();
  }
  const std::unique_ptr<Bootstrap> line = std::move(joined).value();
  auto choices = allgather(*line, mine);
  line->leave(Bootstrap::any_call);
  return choices;
}

}  // namespace epccl::runtime
