#include "runtime/comm/first_calls.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.hpp"

namespace epccl::runtime {

bool FirstCalls::begin(bool is_on_null_stream) {
  if (limits_.calls == 0) return false;
  const bool is_first = begun_.fetch_add(1, std::memory_order_relaxed) < limits_.calls;
  return is_on_null_stream || (is_first && in_vain_.load(std::memory_order_relaxed) < limits_.most_in_vain);
}

// A tenth of what it has waited for already: a call takes little longer, and a long wait costs little.
bool FirstCalls::wait_for(const std::weak_ptr<const void>& call) {
  constexpr double shortest = 5e-6, longest = 1e-3;
  const double begun = now_seconds();
  while (!call.expired()) {
    const double waited = now_seconds() - begun;
    if (waited > limits_.patience_seconds) {
      in_vain_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(waited / 10, shortest, longest)));
  }
  in_vain_.store(0, std::memory_order_relaxed);
  return true;
}

}  // namespace epccl::runtime
