// Cutting bytes into parts without cutting an element.
#pragma once

#include <algorithm>
#include <cstdint>

namespace epccl::algorithms {

/// Bytes [begin, end).
struct Range {
  uint64_t begin = 0, end = 0;
  uint64_t bytes() const { return end - begin; }
};

/// Part `index` of `count` parts of `range` that differ by one unit at most.
inline Range part_of(const Range& range, int index, int count, uint64_t unit) {
  const uint64_t units = range.bytes() / unit;
  const auto parts = static_cast<uint64_t>(count), at = static_cast<uint64_t>(index);
  const auto begin = [&](uint64_t i) {
    return range.begin + (units / parts * i + std::min(units % parts, i)) * unit;
  };
  return {begin(at), begin(at + 1)};
}

/// Calls `use(Range)` for pieces of at most `most` bytes (at least a unit), from front to back.
template <typename Use>
void for_each_chunk(const Range& range, uint64_t most, uint64_t unit, Use use) {
  const uint64_t chunk = std::max(most / unit, uint64_t{1}) * unit;
  for (uint64_t at = range.begin; at < range.end; at += chunk)
    use(Range{at, std::min(at + chunk, range.end)});
}

}  // namespace epccl::algorithms
