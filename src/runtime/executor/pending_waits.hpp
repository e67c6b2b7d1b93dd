// Of a plan that is being run: the waits that have begun, by the counter they are for.
//
//   counter (peer, slot)   lowest first
//   1, ready               3  4  5  ..        who looks whether anything has come looks at the first of each
//   2, ready               4  5  ..
//   2, done                2
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/executor/compiled_plan.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

class PendingWaits {
 public:
  explicit PendingWaits(int local_size);

  /// A run of a plan begins; nothing is waited for.
  void begin();
  void add(uint32_t step, const CompiledStep& wait);
  bool empty() const { return busy_.empty(); }

  struct Wait {
    int local;  // whose counter
    int slot;
    uint32_t value;  // of the plan
    uint32_t step;
  };

  /// complete(step) for all that satisfied(wait) says are over, round by round: of each counter the lowest, then those of them that
  /// follow. False: there was none.
  template <typename Satisfied, typename Complete>
  bool poll(Satisfied satisfied, Complete complete) {
    bool any = false;
    for (bool again = true; again;) {
      again = false;
      size_t kept = 0;
      for (size_t i = 0; i < busy_.size(); ++i) {
        const uint16_t index = busy_[i];
        if (const Wait wait = first_of(counters_[index]); satisfied(wait)) {
          remove_first(counters_[index]);
          complete(wait.step);
          any = true;
          if (counters_[index].waits.empty()) continue;
          again = true;
        }
        busy_[kept++] = index;
      }
      busy_.resize(kept);
    }
    return any;
  }

  /// One that stands for all, where most looks find nothing. Not of none.
  Wait front() const { return first_of(counters_[busy_.front()]); }

  /// What to sleep for in the call `sequence`. Of each counter that ranks of the node have, where others wait for what follows, the
  /// lowest value, once all of whom it is waited for have come there: ranks that sleep for one counter each, while what they could do
  /// next is behind another, would sleep for each other. Where this rank only collects what is its own, the last wait: by then the
  /// others are most likely over.
  transports::SleepReasons reasons(uint64_t sequence) const;

 private:
  struct Waiting {
    uint32_t value, step;
    bool others_wait;
  };
  struct Counter {
    uint16_t local, slot;
    uint32_t others_wait = 0;    // for so many of its waits
    std::vector<Waiting> waits;  // a heap
  };

  static bool is_later(const Waiting& one, const Waiting& other) { return one.value > other.value; }
  static Wait first_of(const Counter& counter) {
    const Waiting& first = counter.waits.front();
    return {counter.local, counter.slot, first.value, first.step};
  }
  static void remove_first(Counter& counter);
  uint16_t counter_of(int local, int slot);
  void add_last(uint64_t sequence, transports::SleepReasons& reasons) const;

  static constexpr uint16_t none = UINT16_MAX;
  std::vector<uint16_t> places_;   // by local position and slot: in counters_
  std::vector<Counter> counters_;  // that were ever waited for
  std::vector<uint16_t> busy_;     // those of them that are now
};

}  // namespace epccl::runtime
