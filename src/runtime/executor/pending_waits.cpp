#include "runtime/executor/pending_waits.hpp"

#include <algorithm>

#include "runtime/executor/node_calls.hpp"

namespace epccl::runtime {

using transports::node_counters;

PendingWaits::PendingWaits(int local_size) : places_(static_cast<size_t>(local_size) * node_counters, none) {}

// A run that failed leaves some.
void PendingWaits::begin() {
  for (const uint16_t index : busy_) {
    counters_[index].waits.clear();
    counters_[index].others_wait = 0;
  }
  busy_.clear();
}

uint16_t PendingWaits::counter_of(int local, int slot) {
  uint16_t& place = places_[static_cast<size_t>(local) * node_counters + static_cast<size_t>(slot)];
  if (place == none) {
    place = static_cast<uint16_t>(counters_.size());
    counters_.push_back({static_cast<uint16_t>(local), static_cast<uint16_t>(slot), 0, {}});
  }
  return place;
}

void PendingWaits::add(uint32_t step, const CompiledStep& wait) {
  const uint16_t index = counter_of(wait.peer_local, wait.step.slot);
  Counter& counter = counters_[index];
  if (counter.waits.empty()) busy_.push_back(index);
  counter.waits.push_back({wait.step.value, step, wait.others_wait});
  std::ranges::push_heap(counter.waits, is_later);
  counter.others_wait += wait.others_wait ? 1 : 0;
}

void PendingWaits::remove_first(Counter& counter) {
  std::ranges::pop_heap(counter.waits, is_later);
  counter.others_wait -= counter.waits.back().others_wait ? 1 : 0;
  counter.waits.pop_back();
}

transports::SleepReasons PendingWaits::reasons(uint64_t sequence) const {
  transports::SleepReasons reasons;
  for (const uint16_t index : busy_) {
    const Counter& counter = counters_[index];
    if (counter.others_wait > 0)
      reasons.add(counter.slot, counter_value(sequence, counter.waits.front().value), counter.local);
  }
  if (reasons.all().empty() && !busy_.empty()) add_last(sequence, reasons);
  return reasons;
}

void PendingWaits::add_last(uint64_t sequence, transports::SleepReasons& reasons) const {
  Wait last{};
  for (const uint16_t index : busy_)
    for (const Waiting& wait : counters_[index].waits)
      if (wait.step >= last.step)
        last = {counters_[index].local, counters_[index].slot, wait.value, wait.step};
  for (const uint16_t index : busy_) {
    const Counter& counter = counters_[index];
    const bool waited_for =
        counter.slot == last.slot &&
        std::ranges::find(counter.waits, last.value, &Waiting::value) != counter.waits.end();
    if (waited_for) reasons.add(counter.slot, counter_value(sequence, last.value), counter.local);
  }
}

}  // namespace epccl::runtime
