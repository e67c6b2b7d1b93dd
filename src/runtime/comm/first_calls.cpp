#include "runtime/comm/first_calls.hpp"

#include <sched.h>

#include <chrono>
#include <thread>

#include "base/clock.hpp"

namespace epccl::runtime {
namespace {

/// Whether the calling thread has waited in vain last: it may be one that calls for several ranks, one after the other.
thread_local bool was_in_vain = false;

// A tenth of what it has waited for already: a call takes little longer, and a long wait costs little.
void rest(double waited) {
  constexpr double yields = 50e-6, longest = 1e-3;
  if (waited < yields)
    sched_yield();
  else
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(waited / 10, longest)));
}

}  // namespace

bool FirstCalls::begin(bool is_on_null_stream) {
  if (limits_.calls == 0) return false;
  const bool is_first = begun_.fetch_add(1, std::memory_order_relaxed) < limits_.calls;
  return is_on_null_stream || is_first;
}

double FirstCalls::patience() const {
  const bool is_short = was_in_vain || in_vain_.load(std::memory_order_relaxed) >= limits_.most_in_vain;
  return is_short ? std::min(limits_.short_patience_seconds, limits_.patience_seconds)
                  : limits_.patience_seconds;
}

bool FirstCalls::wait_for(const std::atomic<CallStage>& stage) {
  const double begun = now_seconds(), longest = patience();
  while (stage.load(std::memory_order_acquire) == CallStage::under_way) {
    const double waited = now_seconds() - begun;
    if (waited > longest) {
      in_vain_.fetch_add(1, std::memory_order_relaxed);
      was_in_vain = true;
      return false;
    }
    rest(waited);
  }
  was_in_vain = false;
  return true;
}

}  // namespace epccl::runtime
