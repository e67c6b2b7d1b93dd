#include "base/core_mask.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace epccl {
namespace {

constexpr size_t bits = std::numeric_limits<unsigned long>::digits;
constexpr size_t most_words = most_cores / bits;

}  // namespace

CoreMask::CoreMask(std::span<const int> cores) {
  const int last = cores.empty() ? 0 : *std::ranges::max_element(cores);
  words_.resize(static_cast<size_t>(last) / bits + 1);
  for (const int core : cores)
    words_[static_cast<size_t>(core) / bits] |= 1UL << static_cast<size_t>(core) % bits;
}

// EINVAL: the machine may have more.
CoreMask CoreMask::of_this_thread() {
  CoreMask mask;
  for (size_t words = CPU_SETSIZE / bits; words <= most_words; words *= 2) {
    mask.words_.assign(words, 0);
    auto* const set = reinterpret_cast<cpu_set_t*>(mask.words_.data());
    if (sched_getaffinity(0, words * sizeof(unsigned long), set) == 0) return mask;
    if (errno != EINVAL) break;
  }
  mask.words_.clear();
  return mask;
}

CoreMask CoreMask::all() {
  CoreMask mask;
  mask.words_.assign(most_words, ~0UL);
  return mask;
}

bool CoreMask::has(int core) const {
  const size_t word = static_cast<size_t>(core) / bits;
  return word < words_.size() && (words_[word] >> static_cast<size_t>(core) % bits & 1) != 0;
}

std::vector<int> CoreMask::cores() const {
  std::vector<int> cores;
  for (int core = 0; core < static_cast<int>(words_.size() * bits); ++core)
    if (has(core)) cores.push_back(core);
  return cores;
}

bool CoreMask::apply() const {
  const auto* const set = reinterpret_cast<const cpu_set_t*>(words_.data());
  return sched_setaffinity(0, words_.size() * sizeof(unsigned long), set) == 0;
}

std::vector<int> allowed_cores() {
  return CoreMask::of_this_thread().cores();
}

}  // namespace epccl
