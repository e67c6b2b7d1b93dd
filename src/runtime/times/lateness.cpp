#include "runtime/times/lateness.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace epccl::runtime {
namespace {

std::vector<uint64_t> calls_of(const std::vector<CallRecord>& records) {
  std::vector<uint64_t> calls;
  calls.reserve(records.size());
  for (const CallRecord& record : records) calls.push_back(record.sequence);
  return calls;
}

/// Calls that all ranks have.
std::vector<uint64_t> common_calls(std::span<const std::vector<CallRecord>> by_rank) {
  if (by_rank.empty()) return {};
  std::vector<uint64_t> common = calls_of(by_rank.front());
  for (const std::vector<CallRecord>& records : by_rank.subspan(1)) {
    std::vector<uint64_t> both;
    std::ranges::set_intersection(common, calls_of(records), std::back_inserter(both));
    common.swap(both);
  }
  return common;
}

/// The middle one; of two the one that says less of a straggler's, so that of two ranks one can be late: the longer of waits, the shorter of
/// work.
double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void compare_call(const std::vector<double>& waited, Lateness& found) {
  const double median = upper_median(waited);
  const auto least = std::ranges::min_element(waited);
  found.lost += median - *least;
  ++found.ranks[static_cast<size_t>(least - waited.begin())].last_in;
  for (size_t rank = 0; rank < waited.size(); ++rank) found.ranks[rank].late += median - waited[rank];
}

void add(const CallRecord& record, RankLateness& sums) {
  sums.between += record.between;
  sums.own += record.own;
  sums.waited += record.waited_before + record.waited;
}

double median_of(const std::vector<RankLateness>& ranks, double RankLateness::*part) {
  std::vector<double> all;
  for (const RankLateness& rank : ranks) all.push_back(rank.*part);
  return lower_median(std::move(all));
}

// What explains half of it, or more.
LateBy reason(const Lateness& found, const RankLateness& of) {
  const double between = of.between - found.median_between, own = of.own - found.median_own;
  if (std::max(between, own) < of.late / 2) return LateBy::others;
  return between >= own ? LateBy::between_calls : LateBy::own_work;
}

}  // namespace

Lateness compare_ranks(std::span<const std::vector<CallRecord>> by_rank, double threshold) {
  Lateness found;
  found.ranks.resize(by_rank.size());
  const std::vector<uint64_t> calls = common_calls(by_rank);
  found.calls = calls.size();
  if (calls.empty()) return found;
  std::vector<size_t> next(by_rank.size());
  std::vector<double> waited(by_rank.size());
  for (const uint64_t call : calls) {
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      while (by_rank[rank][next[rank]].sequence != call) ++next[rank];
      const CallRecord& record = by_rank[rank][next[rank]];
      waited[rank] = record.waited;
      add(record, found.ranks[rank]);
    }
    compare_call(waited, found);
  }
  for (const RankLateness& rank : found.ranks)
    found.seconds = std::max(found.seconds, rank.between + rank.own + rank.waited);
  found.median_between = median_of(found.ranks, &RankLateness::between);
  found.median_own = median_of(found.ranks, &RankLateness::own);
  for (RankLateness& rank : found.ranks)
    if (rank.late > 0 && rank.late >= threshold * found.seconds) rank.by = reason(found, rank);
  return found;
}

}  // namespace epccl::runtime
