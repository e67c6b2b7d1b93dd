#include "runtime/streams/first_calls.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.hpp"

namespace epccl::runtime {
namespace {

/// Whose call the calling thread has waited for in vain, if it was the last one that it waited for. Compared, not used.
thread_local const FirstCalls* in_vain_for = nullptr;
thread_local double in_vain_at = 0;

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

double FirstCalls::longest() const {
  if (limits_.timeout_seconds == nullptr) return limits_.patience_seconds;
  return std::min(limits_.patience_seconds, limits_.timeout_seconds() / 4);
}

bool FirstCalls::is_impatient() const {
  const bool was_in_vain_for_another =
      in_vain_for != nullptr && in_vain_for != this && now_seconds() - in_vain_at < limits_.patience_seconds;
  return was_in_vain_for_another || in_vain_.load(std::memory_order_relaxed) >= limits_.most_in_vain;
}

bool FirstCalls::wait_for(AwaitedCall& call, double longest) {
  const bool is_patient = !is_impatient();
  const double begun = now_seconds(),
               most = is_patient ? longest : std::min(longest, limits_.short_patience_seconds);
  double waited = 0;
  while (call.stage.load(std::memory_order_acquire) == CallStage::under_way) {
    waited = now_seconds() - begun;
    if (waited > most) {
      in_vain_for = this;
      in_vain_at = now_seconds();
      if (is_patient) call.left_at.store(in_vain_at, std::memory_order_relaxed);
      return false;
    }
    rest(waited);
  }
  in_vain_for = nullptr;
  // Its ranks were late, and needed nothing.
  if (waited > limits_.short_patience_seconds) in_vain_.store(0, std::memory_order_relaxed);
  return true;
}

void FirstCalls::reaches(AwaitedCall& call, CallStage stage) {
  if (call.stage.exchange(stage, std::memory_order_acq_rel) != CallStage::under_way) return;
  const double left_at = call.left_at.load(std::memory_order_relaxed);
  if (left_at > 0 && now_seconds() - left_at < limits_.soon_seconds)
    in_vain_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace epccl::runtime
