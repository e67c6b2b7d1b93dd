#include "runtime/messages/carrier_trust.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"

namespace epccl::runtime {
namespace {

constexpr int paid_score = 1, unpaid_score = -2, best_score = 4, worst_score = -4;
constexpr uint64_t first_period = 4, longest_period = 1024;
constexpr double trial_seconds = 5e-3;
constexpr uint64_t trial_calls = 2;

}  // namespace

bool CarrierTrust::wants(int carrier, uint64_t call) {
  Trust& trust = trust_[static_cast<size_t>(carrier)];
  if (trust.period == 0) return true;
  const double now = now_seconds(), trial = board_.trial_end();
  if (call >= trust.resume_at) {
    if (call == trust.resume_at && now >= trial) board_.set_trial_end(now + trial_seconds);
    return true;
  }
  if (now >= trial) return false;
  if (std::exchange(trust.trial, trial) != trial) trust.trial_begin = call;
  return call < trust.trial_begin + trial_calls;
}

void CarrierTrust::judge(int carrier, uint64_t call, bool paid) {
  Trust& trust = trust_[static_cast<size_t>(carrier)];
  trust.score = std::min(trust.score + (paid ? paid_score : unpaid_score), best_score);
  if (trust.score > 0) trust.period = 0;
  if (trust.score > worst_score) return;
  trust.score = worst_score - unpaid_score;
  trust.period = std::clamp(2 * trust.period, first_period, longest_period);
  trust.resume_at = (call / trust.period + 1) * trust.period;
}

}  // namespace epccl::runtime
