#include "plan/sum_table.hpp"

#include <algorithm>

namespace epccl::plan {

std::optional<uint64_t> SumTable::add(std::span<const Term> terms, uint64_t bytes) {
  constexpr uint64_t gap = 1;
  const uint64_t offset = sums_.empty() ? 0 : sums_.back().offset + sums_.back().bytes + gap;
  if (bytes >= UINT64_MAX - gap - offset) return std::nullopt;
  sums_.push_back({offset, bytes, terms_.size()});
  terms_.insert(terms_.end(), terms.begin(), terms.end());
  return offset;
}

SumTable::Sum SumTable::find(uint64_t offset) const {
  const auto after = std::ranges::upper_bound(sums_, offset, {}, &Entry::offset);
  const Entry& entry = *std::prev(after);
  const size_t end = after == sums_.end() ? terms_.size() : after->first_term;
  return {entry.offset, entry.bytes, std::span(terms_).subspan(entry.first_term, end - entry.first_term)};
}

}  // namespace epccl::plan
