// The sizes of a sweep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace epccl::perf {

/// nccl-tests' -b -e -f -i, in bytes. `factor` below 2: add `step` instead of multiplying.
struct Sweep {
  uint64_t first = uint64_t{32} << 20;
  uint64_t last = uint64_t{32} << 20;
  uint64_t step = uint64_t{1} << 20;
  uint64_t factor = 0;
};

/// 64, 4K, 8M, 1G; as in nccl-tests also 1.5K, where that is whole bytes.
Result<uint64_t> parse_size(const std::string& text);

/// `first`, and on by factor or step, up to `last`. Behind a first size of 0, which no factor makes grow, comes `least`: what a
/// call of one element has.
std::vector<uint64_t> sweep_sizes(const Sweep& sweep, uint64_t least);

/// The counts of these sizes, of `size_of_one` bytes each, rounded down. Sizes closer than that are one count, not measured again.
std::vector<uint64_t> sweep_counts(const Sweep& sweep, uint64_t size_of_one);

}  // namespace epccl::perf
