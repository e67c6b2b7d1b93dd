#include "runtime/times/call_times.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/caught.hpp"
#include "base/clock.hpp"

namespace epccl::runtime {

using device::WorkTimes;

void CallTimes::measure(bool on) {
  std::vector<std::shared_ptr<WorkTimes>> ended;  // outside of the lock: a device's events end with them
  const std::lock_guard lock(mutex_);
  sums_up_ = on;
  const bool was_on = is_on_.exchange(on || always_, std::memory_order_relaxed);
  if (!was_on && on) begin_records();
  if (!is_on()) ended.swap(spare_);
}

Result<CallTimes::Sums> CallTimes::take() {
  const std::lock_guard lock(mutex_);
  const Sums sums = std::exchange(sums_, {});
  EPCCL_TRY(std::exchange(failure_, {}));
  return sums;
}

std::shared_ptr<WorkTimes> CallTimes::borrow() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return std::make_shared<WorkTimes>();
  auto times = std::move(spare_.back());
  spare_.pop_back();
  return times;
}

Status CallTimes::run(const std::function<Status()>& work, const std::function<void()>& settle,
                      bool in_order) {
  const std::shared_ptr<WorkTimes> times = borrow();
  const WorkTimes::Scope scope(times);
  times->restart();
  times->set_number(0);
  EPCCL_TRY(work());
  settle();
  // Also where there is no memory to note it the call is over, and well.
  Status measured = caught([&] { return end_of_call(times, in_order); });
  if (measured.ok()) return {};
  const std::lock_guard lock(mutex_);
  begin_records();
  if (failure_.ok()) failure_ = std::move(measured);
  return {};
}

Status CallTimes::end_of_call(const std::shared_ptr<WorkTimes>& times, bool in_order) {
  const uint64_t sequence = in_order ? times->number() : 0;
  if (sequence != 0) comparable_.fetch_add(1, std::memory_order_relaxed);
  EPCCL_ASSIGN(const device::TimeSplit split, times->split());
  const std::lock_guard lock(mutex_);
  if (is_on()) spare_.push_back(times);
  note(*times, split, sequence);
  if (!sums_up_) return {};
  ++sums_.calls;
  sums_.seconds.total += split.total;
  sums_.seconds.kernel += split.kernel;
  sums_.seconds.copy += split.copy;
  sums_.seconds.signal += split.signal;
  return {};
}

// What comes before the first call that was measured whole is nobody's: it only says since when. So does a call in which ranks compared.
void CallTimes::note(const WorkTimes& times, const device::TimeSplit& split, uint64_t sequence) {
  const double begin = times.begin();
  const double end_of_last = std::exchange(end_of_last_, begin + split.total);
  if (end_of_last == 0 || end_of_last > begin) {
    if (sequence != 0) interval_ = {};
    return;
  }
  interval_.between += std::max(begin - end_of_last, 0.0);
  interval_.own += split.total - split.signal;
  if (sequence == 0) {
    interval_.waited += split.signal;
    return;
  }
  const Interval its = std::exchange(interval_, {});
  keep({sequence, static_cast<float>(its.between), static_cast<float>(its.own),
        static_cast<float>(its.waited), static_cast<float>(split.signal)});
}

void CallTimes::keep(const CallRecord& record) {
  if (records_.size() < most_records_) {
    records_.push_back(record);
    return;
  }
  records_[oldest_] = record;
  oldest_ = (oldest_ + 1) % most_records_;
}

void CallTimes::begin_records() {
  end_of_last_ = 0;
  interval_ = {};
}

std::vector<CallRecord> CallTimes::take_records() {
  const std::lock_guard lock(mutex_);
  std::vector<CallRecord> taken(std::move(records_));
  records_.clear();
  std::ranges::rotate(taken, taken.begin() + static_cast<ptrdiff_t>(std::exchange(oldest_, 0)));
  comparable_.store(0, std::memory_order_relaxed);
  begin_records();
  return taken;
}

void CallTimes::ranks_have_met() {
  const std::lock_guard lock(mutex_);
  end_of_last_ = now_seconds();
}

void CallTimes::begin_now() {
  for (auto* times = WorkTimes::current(); times != nullptr; times = times->outer()) times->restart();
}

void CallTimes::all_wait_for_all(uint64_t sequence) {
  if (auto* times = WorkTimes::current()) times->set_number(sequence);
}

}  // namespace epccl::runtime
