#include "plan/equal_share.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace epccl::plan {
namespace {

/// Rounds; durations beyond `longest` count as `longest`, so that sums of two never overflow.
Ticks rounded(double ticks) {
  return ticks < static_cast<double>(longest) ? static_cast<Ticks>(std::llround(ticks)) : longest;
}

}  // namespace

Ticks to_ticks(double seconds) {
  return rounded(seconds * ticks_per_second);
}

double to_seconds(Ticks ticks) {
  return static_cast<double>(ticks) / ticks_per_second;
}

bool EqualShare::later(const Transfer& a, const Transfer& b) {
  return std::pair(a.done_at, a.name) > std::pair(b.done_at, b.name);
}

void EqualShare::serve(Ticks now) {
  served_ += rate_ * static_cast<double>(now - since_);
  since_ = now;
}

void EqualShare::start(Ticks now, uint64_t bytes, uint32_t name) {
  if (idle()) {
    served_ = 0;
    rate_ = 0;
  }
  serve(now);
  transfers_.push_back({served_ + static_cast<double>(bytes), name});
  std::ranges::push_heap(transfers_, later);
}

void EqualShare::set_rate(Ticks now, double rate) {
  serve(now);
  rate_ = rate;
}

Ticks EqualShare::end_at() const {
  if (idle() || rate_ <= 0) return never;
  return since_ + std::max<Ticks>(rounded((transfers_.front().done_at - served_) / rate_), 0);
}

void EqualShare::end(Ticks now, std::vector<uint32_t>& ended) {
  if (end_at() > now) return;
  serve(now);
  const double served = std::max(served_, transfers_.front().done_at) + 0.5 * rate_;
  while (!idle() && transfers_.front().done_at <= served) {
    ended.push_back(transfers_.front().name);
    std::ranges::pop_heap(transfers_, later);
    transfers_.pop_back();
  }
}

}  // namespace epccl::plan
