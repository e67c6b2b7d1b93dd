#include "perf/src/sizes.hpp"

#include <limits>

namespace epccl::perf {

std::vector<uint64_t> sweep_sizes(const Sweep& sweep) {
  std::vector<uint64_t> sizes;
  uint64_t size = sweep.first;
  while (size <= sweep.last) {
    sizes.push_back(size);
    uint64_t next = 0;
    const bool overflow = sweep.factor > 1 ? __builtin_mul_overflow(size, sweep.factor, &next)
                                           : __builtin_add_overflow(size, sweep.step, &next);
    if (overflow || next <= size) break;
    size = next;
  }
  return sizes;
}

uint64_t pair_count(uint64_t size, bool per_pair, int ranks, uint64_t bytes_per_element) {
  return size / bytes_per_element / (per_pair ? 1 : static_cast<uint64_t>(ranks));
}

}  // namespace epccl::perf
