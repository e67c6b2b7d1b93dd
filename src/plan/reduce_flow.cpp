// reduce in symbolic execution.
//
// What a reduction makes is described as a sum is: by its terms, here in the order of ranks, since each counts once in whatever
// order. It is cut wherever one of its sources is: each piece is a sum of its own.
#include <algorithm>

#include "plan/data_flow.hpp"
#include "plan/printer.hpp"

namespace epccl::plan {

Status DataFlow::reduce(const RankPlan& plan, const Step& step) {
  const std::span<const RowSource> from = sources_of(plan, step);
  sources_.resize(std::max(sources_.size(), from.size()));
  for (size_t i = 0; i < from.size(); ++i) {
    EPCCL_TRY(check_overlap(step, from[i].at));
    EPCCL_TRY(read_source(from[i].at, step.bytes, i));
  }
  made_.clear();
  std::vector<std::pair<size_t, uint64_t>> at(from.size());  // by source: which fragment, and where in it
  for (uint64_t done = 0; done < step.bytes;) {
    uint64_t length = step.bytes - done;
    for (size_t i = 0; i < from.size(); ++i)
      length = std::min(length, sources_[i][at[i].first].length - at[i].second);
    sum_.clear();
    for (size_t i = 0; i < from.size(); ++i) {
      auto& [fragment, used] = at[i];
      EPCCL_TRY(add_terms(sources_[i][fragment], used, i < step.raw_count, i));
      used += length;
      if (used == sources_[i][fragment].length) at[i] = {fragment + 1, 0};
    }
    std::ranges::sort(sum_, {}, [](const RowSum::Term& it) { return std::pair(it.rank, it.offset); });
    const auto twice = std::ranges::adjacent_find(sum_, {}, &RowSum::Term::rank);
    if (twice != sum_.end())
      return failure(current_, fmt::format("counts rank {} twice in byte {} of its result: {}", twice->rank,
                                           done, to_text(sum_)));
    if (step.finishes) sum_.back().ends = RowTerm::rank_sum | RowTerm::node_sum;
    const auto offset = sums_.add(sum_, length);
    if (!offset) return failure(current_, "makes more bytes of sums than the verifier can tell apart");
    made_.push_back({length, *offset, SumTable::rank});
    done += length;
  }
  return write(step.destination, step.bytes, 1, 0, made_);
}

/// Elements are read before they are written, but only those of the same number.
Status DataFlow::check_overlap(const Step& step, const Location& source) const {
  const Location& to = step.destination;
  if (source.rank != to.rank || source.buffer != to.buffer || source.offset == to.offset) return {};
  const uint64_t distance = std::max(source.offset, to.offset) - std::min(source.offset, to.offset);
  if (distance >= step.bytes) return {};
  return failure(current_, fmt::format("reads bytes from {} on, and writes them {} bytes further",
                                       to_text(source), distance));
}

Status DataFlow::read_source(const Location& source, uint64_t bytes, size_t number) {
  data_.clear();
  EPCCL_TRY(read_range(source, bytes));
  sources_[number].assign(data_.begin(), data_.end());
  return {};
}

/// Appends what a fragment holds from byte `at` on.
Status DataFlow::add_terms(const Fragment& fragment, uint64_t at, bool raw, size_t number) {
  const auto wrong = [&](const char* why) {
    return failure(current_, fmt::format("source {} holds {}, {}", number, describe(fragment), why));
  };
  if (fragment.rank != SumTable::rank) {
    if (!raw) return wrong("which is an input, but is not listed with those");
    sum_.push_back({fragment.rank, fragment.offset + at, RowTerm::unweighted, RowTerm::nothing});
    return {};
  }
  if (raw) return wrong("which is no input, but is listed with those");
  const SumTable::Sum part = sums_.find(fragment.offset);
  if (part.terms.empty() || part.terms.back().ends != RowTerm::nothing)
    return wrong("which is finished: nothing can be added to it");
  for (RowSum::Term term : part.terms) {
    term.offset += fragment.offset - part.offset + at;
    sum_.push_back(term);
  }
  return {};
}

}  // namespace epccl::plan
