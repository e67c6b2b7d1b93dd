// Who of a communicator's ranks keeps the others waiting: found by how long each of them waited, without a common clock.
//
//            |- between calls -|- own -|-- waits --|
//   rank 0   =================== ######  ........... |
//   rank 1   ================= ######  ............. |   who comes last waits least: rank 2 is late, by what the
//   rank 2   ============================== ######  .|   median rank waits longer
//   rank 3   ================== ######  ............ |
//
// The time of a rank between two ends of calls is what it spends between calls, in calls at work of its own, and in calls waiting for others;
// the sum is about the same for all, since a call in which all wait for all ends for none before all have come to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace epccl::runtime {

/// One rank's call, and its time since the one before that ranks can compare. Seconds. As ranks send it each other.
struct CallRecord {
  uint64_t sequence = 0;  // which call: the same on all ranks, growing
  float between = 0;      // outside of this communicator's calls
  float own = 0;          // in calls, not waiting
  float waited_before =
      0;  // in calls between the two that not all ranks wait for: sends and receives, calls with a root
  float waited = 0;  // in the call
};

enum class LateBy : uint8_t {
  nothing,        // it is not late
  between_calls,  // it takes longer than the median rank until it calls
  own_work,       // it has more to do in calls, or takes longer for it
  others,  // neither: something held it up that is not of this communicator's, or a rank that not all wait for
};

struct RankLateness {
  double late =
      0;  // how much less it waited than the median rank, call by call, summed up; below 0: it comes early
  uint64_t last_in = 0;  // calls in which it waited least
  double between = 0, own = 0, waited = 0;
  LateBy by = LateBy::nothing;

  bool is_late() const { return by != LateBy::nothing; }
};

struct Lateness {
  uint64_t calls = 0;  // that all ranks have a record of
  double seconds = 0;  // that they took, and what lies before each
  double lost =
      0;  // so much earlier the calls had been over, if who was last in each had come with the median rank
  double median_between = 0, median_own = 0;  // of the ranks
  std::vector<RankLateness> ranks;
};

/// Records of each rank, each in the order of its calls. Late is who is so by `threshold` times all seconds.
Lateness compare_ranks(std::span<const std::vector<CallRecord>> by_rank, double threshold);

}  // namespace epccl::runtime
