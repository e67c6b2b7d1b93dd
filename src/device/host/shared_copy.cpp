#include "device/host/shared_copy.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "device/host/host_copy.hpp"

namespace epccl::device {
namespace {

// Slower than this a core waits for lines that are far away: with lines of its own it makes 40 GB/s, with those of a neighbour 8 to 20 (AMD
// EPYC), or 4 to 7 (Intel Xeon, 2 cores of one last-level cache of 260 MiB), and past the cache nothing is won there.
constexpr double lines_at_hand = 4e9;
// Slower than this something else took the time: the thread lost its core, or the kernel had to find pages.
constexpr double interrupted = 1.5e9;
constexpr unsigned most_samples = 16;  // that the average stands on

}  // namespace

void SharedCopy::copy(void* destination, const void* source, size_t bytes) {
  const bool is_small = bytes < least_past_cache;
  if (!is_small && until_sample_ == 0) return time_one(destination, source, bytes);
  if (!is_small) --until_sample_;
  copy_bytes(destination, source, bytes, past_cache_ && !is_small);
}

void SharedCopy::time_one(void* destination, const void* source, size_t bytes) {
  until_sample_ = between_samples_ = std::min(between_samples_ + 1, most_between_samples);
  const double start = now_seconds();
  copy_bytes(destination, source, bytes, false);
  took(bytes, now_seconds() - start);
}

void SharedCopy::took(size_t bytes, double seconds) {
  const double taken = seconds / static_cast<double>(bytes);
  if (taken > 1 / interrupted) return;
  samples_ = std::min(samples_ + 1, most_samples);
  seconds_per_byte_ += (taken - seconds_per_byte_) / samples_;
  past_cache_ = seconds_per_byte_ > 1 / lines_at_hand;
}

}  // namespace epccl::device
