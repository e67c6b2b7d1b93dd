// Monotonic time in seconds.
#pragma once

#include <ctime>

namespace epccl {

/// Seconds on CLOCK_MONOTONIC.
inline double now_seconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The same to a few milliseconds, in a fraction of the time.
inline double coarse_now_seconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace epccl
