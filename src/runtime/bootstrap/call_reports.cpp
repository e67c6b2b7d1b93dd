#include "runtime/bootstrap/call_reports.hpp"

#include "base/log.hpp"
#include "runtime/bootstrap/rank_list.hpp"

namespace epccl::runtime {
namespace {

constexpr size_t max_calls_kept = 256;  // sequence numbers whose call text is remembered

}  // namespace

std::optional<std::string> CallReports::waits(const Member& by, StallReport report) {
  const Waiting& mine = waiting_[by.rank] = {by, std::move(report)};
  auto wrong = compare_texts(mine);
  for (auto left = left_.begin(); left != left_.end() && !wrong; ++left)
    wrong = compare_ends(left->second, mine);
  return wrong ? wrong : missing_peer(mine);
}

std::optional<std::string> CallReports::missing_peer(const Waiting& mine) const {
  for (const int peer : mine.report.peers)
    if (const auto left = left_.find(peer); left != left_.end())
      return fmt::format("{} has left, while {} waits for it in a {} ({})", describe(left->second.member),
                         describe(mine.member), mine.report.call, mine.report.waiting);
  return std::nullopt;
}

std::optional<std::string> CallReports::left(const Member& by, uint64_t last_call) {
  waiting_.erase(by.rank);
  const Left& mine = left_[by.rank] = {by, last_call};
  std::optional<std::string> wrong;
  for (auto waiting = waiting_.begin(); waiting != waiting_.end() && !wrong; ++waiting)
    wrong = compare_ends(mine, waiting->second);
  return wrong;
}

std::string CallReports::left_of(std::span<const int> ranks) const {
  for (const int rank : ranks)
    if (const auto left = left_.find(rank); left != left_.end())
      return fmt::format("{} has left the communicator", describe(left->second.member));
  return "";
}

std::vector<int> CallReports::all_left() const {
  std::vector<int> ranks;
  for (const auto& [rank, left] : left_) ranks.push_back(rank);
  return ranks;
}

std::optional<std::string> CallReports::compare_texts(const Waiting& mine) {
  const StallReport& report = mine.report;
  const auto [first, fresh] = calls_.try_emplace(report.sequence, mine.member, report.call);
  const auto [other, other_call] = first->second;
  if (calls_.size() > max_calls_kept) calls_.erase(calls_.begin());
  if (fresh || other_call == report.call) return std::nullopt;
  return fmt::format("ranks disagree in call #{}: {} calls \"{}\", {} calls \"{}\"", report.sequence,
                     describe(other), other_call, describe(mine.member), report.call);
}

/// A collective that a rank has left before can be completed by nobody.
std::optional<std::string> CallReports::compare_ends(const Left& left, const Waiting& waiting) {
  if (waiting.report.sequence <= left.last_call) return std::nullopt;
  return fmt::format("{} has left after call #{}, while {} is in call #{} ({})", describe(left.member),
                     left.last_call, describe(waiting.member), waiting.report.sequence, waiting.report.call);
}

std::string CallReports::others(int asker) const {
  RankList gone;
  for (const auto& [rank, left] : left_) gone.add(rank);
  std::string stalled;
  int told = 0;
  for (const auto& [rank, waiting] : waiting_) {
    if (rank == asker || told == RankList::max_listed) continue;
    ++told;
    stalled +=
        fmt::format("{}rank {} was last seen waiting in call #{} ({}): {}", stalled.empty() ? "" : "; ", rank,
                    waiting.report.sequence, waiting.report.call, waiting.report.waiting);
  }
  if (gone.count() == 0) return stalled;
  return fmt::format("left: {}{}{}", gone.text(), stalled.empty() ? "" : "; ", stalled);
}

}  // namespace epccl::runtime
