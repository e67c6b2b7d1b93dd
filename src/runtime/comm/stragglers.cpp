#include "runtime/comm/stragglers.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "base/log.hpp"

namespace epccl::runtime {
namespace {

static_assert(std::is_trivially_copyable_v<CallRecord>);

constexpr size_t most_lines = 8;

double share(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

std::string cause(const Lateness& found, const RankLateness& rank) {
  switch (rank.by) {
    case LateBy::between_calls:
      return fmt::format("between calls it takes {:.3g} s, the median rank {:.3g} s", rank.between,
                         found.median_between);
    case LateBy::own_work:
      return fmt::format("its own work in calls takes {:.3g} s, the median rank {:.3g} s", rank.own,
                         found.median_own);
    case LateBy::others:
      return "held up by something else than its own work or calls of all ranks";
    case LateBy::nothing:
      break;
  }
  return "";
}

/// Of the ranks of one node that are late the one that is so most stands for all.
std::string line_of(const Lateness& found, const std::string& who, int rank) {
  const RankLateness& its = found.ranks[static_cast<size_t>(rank)];
  return fmt::format("{} by {:.3g} s of {:.3g} s ({:.0f} %), the last in {} of {} calls: {}", who, its.late,
                     found.seconds, share(its.late, found.seconds), its.last_in, found.calls,
                     cause(found, its));
}

}  // namespace

std::vector<std::string> describe(const Lateness& found, const topology::Cluster& cluster,
                                  const std::vector<std::string>& hosts) {
  struct Line {
    double late;
    std::string text;
  };
  std::vector<Line> lines;
  const auto of = [&](int rank) -> const RankLateness& { return found.ranks[static_cast<size_t>(rank)]; };
  for (int node = 0; node < cluster.nodes(); ++node) {
    std::vector<int> late;
    std::ranges::copy_if(cluster.members(node), std::back_inserter(late),
                         [&](int rank) { return of(rank).is_late(); });
    const std::string where = fmt::format("node {} on {}", node, hosts[static_cast<size_t>(node)]);
    if (late.size() > 1 && late.size() == cluster.members(node).size()) {
      const int most = std::ranges::max(late, {}, [&](int rank) { return of(rank).late; });
      lines.push_back({of(most).late,
                       line_of(found, fmt::format("all ranks of {} are late, rank {}", where, most), most)});
      continue;
    }
    for (const int rank : late)
      lines.push_back(
          {of(rank).late, line_of(found, fmt::format("rank {} of {} is late", rank, where), rank)});
  }
  std::ranges::stable_sort(lines, std::ranges::greater{}, &Line::late);
  std::vector<std::string> texts;
  for (Line& line : lines) texts.push_back(std::move(line.text));
  return texts;
}

size_t Stragglers::most_records(int ranks) {
  constexpr size_t all_bytes = 2 << 20, least = 32, most = 1024;
  return std::clamp(all_bytes / sizeof(CallRecord) / static_cast<size_t>(ranks), least, most);
}

std::vector<std::byte> Stragglers::message() {
  const std::vector<CallRecord> records = times_.take_records();
  const Head head{times_.is_on() ? 1U : 0U, records.size()};
  std::vector<std::byte> bytes(sizeof head + most_records(cluster_.ranks()) * sizeof(CallRecord));
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!records.empty())
    std::memcpy(bytes.data() + sizeof head, records.data(), records.size() * sizeof(CallRecord));
  return bytes;
}

Status Stragglers::exchange() {
  const std::vector<std::byte> mine = message();
  all_.resize(static_cast<size_t>(cluster_.ranks()) * mine.size());
  EPCCL_TRY(tell_all_(mine.data(), mine.size(), all_.data()));
  times_.ranks_have_met();
  return {};
}

Result<Lateness> Stragglers::found(double threshold) {
  const std::vector<std::byte> all = std::exchange(all_, {});
  std::vector<std::vector<CallRecord>> by_rank(static_cast<size_t>(cluster_.ranks()));
  const size_t bytes = all.size() / by_rank.size();
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const std::byte* const its = all.data() + rank * bytes;
    Head head;
    std::memcpy(&head, its, sizeof head);
    if (head.is_measuring == 0)
      return error(Code::invalid_usage, "rank {} does not measure its calls (epcclCommMeasureCalls)", rank);
    by_rank[rank].resize(std::min<uint64_t>(head.records, most_records(cluster_.ranks())));
    if (!by_rank[rank].empty())
      std::memcpy(by_rank[rank].data(), its + sizeof head, by_rank[rank].size() * sizeof(CallRecord));
  }
  return compare_ranks(by_rank, threshold);
}

Result<Lateness> Stragglers::compare(double threshold) {
  EPCCL_TRY(exchange());
  CallTimes::all_wait_for_all(0);  // in the calls that are compared
  return found(threshold);
}

Status Stragglers::say() {
  EPCCL_TRY(exchange());
  if (rank_ != 0) {
    all_ = {};
    return {};
  }
  EPCCL_ASSIGN(const Lateness found, this->found(default_threshold));
  const std::vector<std::string> lines = describe(found, cluster_, hosts_);
  for (size_t at = 0; at < std::min(lines.size(), most_lines); ++at)
    log::warn(log::coll, rank_, "straggler: {}", lines[at]);
  if (lines.size() > most_lines)
    log::warn(log::coll, rank_, "stragglers: {} more", lines.size() - most_lines);
  log::info(log::coll, rank_,
            "stragglers: {} in {} calls of {:.3g} s, of which {:.1f} % were lost to who came last in each",
            lines.size(), found.calls, found.seconds, share(found.lost, found.seconds));
  return {};
}

}  // namespace epccl::runtime
