// Which waits of a running plan are looked at, and what a rank sleeps for.
#include "runtime/executor/pending_waits.hpp"

#include <gmock/gmock.h>

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "runtime/executor/node_calls.hpp"

namespace epccl::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int ranks = 4;
constexpr uint64_t sequence = 7;

class Waits : public testing::Test {
 protected:
  /// Waits for the counter `slot` of the rank at `local`; `others_wait`: something is posted afterwards.
  void wait(int local, uint16_t slot, uint32_t value, bool others_wait = true) {
    CompiledStep step;
    step.step.kind = plan::Kind::wait;
    step.step.slot = slot;
    step.step.value = value;
    step.peer_local = static_cast<int16_t>(local);
    step.others_wait = others_wait;
    waits_.add(next_step_++, step);
  }
  void reach(int local, int slot, uint32_t value) { reached_[{local, slot}] = value; }
  /// The steps that are complete then.
  std::vector<uint32_t> poll() {
    std::vector<uint32_t> complete;
    looks_ = 0;
    const bool any = waits_.poll(
        [&](const PendingWaits::Wait& wait) {
          ++looks_;
          return reached_[{wait.local, wait.slot}] >= wait.value;
        },
        [&](uint32_t step) { complete.push_back(step); });
    EXPECT_EQ(any, !complete.empty());
    return complete;
  }
  struct Reason {
    int slot;
    uint64_t value, locals;
    friend bool operator==(const Reason&, const Reason&) = default;
  };
  std::vector<Reason> reasons() const {
    std::vector<Reason> all;
    const transports::SleepReasons reasons = waits_.reasons(sequence);
    for (const transports::SleepFor& reason : reasons.all())
      all.push_back({reason.slot, reason.value - counter_value(sequence, 0), reason.locals[0]});
    return all;
  }

  PendingWaits waits_{ranks};
  uint32_t next_step_ = 0;
  std::map<std::pair<int, int>, uint32_t> reached_;
  int looks_ = 0;
};

TEST_F(Waits, OfOneCounterAreLookedAtOneByOne) {
  for (uint32_t value = 1; value <= 1000; ++value) wait(1, 0, value);
  EXPECT_THAT(poll(), IsEmpty());
  EXPECT_EQ(looks_, 1);
  reach(1, 0, 3);
  EXPECT_THAT(poll(), ElementsAre(0, 1, 2));
  EXPECT_EQ(looks_, 4);
}

TEST_F(Waits, AreOverRoundByRound) {
  for (const uint32_t value : {1, 2})
    for (const int local : {1, 2}) wait(local, 0, value);
  reach(1, 0, 2);
  reach(2, 0, 2);
  EXPECT_THAT(poll(), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(waits_.empty());
}

TEST_F(Waits, OfOneCounterNeedNotBeginInOrder) {
  wait(1, 0, 5);
  wait(1, 0, 2);
  wait(1, 0, 5);
  reach(1, 0, 2);
  EXPECT_THAT(poll(), ElementsAre(1));
  reach(1, 0, 5);
  EXPECT_EQ(poll().size(), 2U);
}

TEST_F(Waits, OfARunThatFailedAreForgotten) {
  wait(1, 0, 1);
  waits_.begin();
  EXPECT_TRUE(waits_.empty());
  EXPECT_THAT(reasons(), IsEmpty());
  wait(1, 0, 1, false);
  EXPECT_THAT(reasons(), ElementsAre(Reason{0, 1, 0b10}));
}

// One wake-up by the last of them: to be woken by each would cost each of them.
TEST_F(Waits, ForTheSameOfSeveralRanksAreOneReason) {
  for (const int local : {1, 2, 3}) wait(local, 0, 1);
  EXPECT_THAT(reasons(), ElementsAre(Reason{0, 1, 0b1110}));
}

// What the rank could do next may be behind any of them.
TEST_F(Waits, ThatOthersWaitBehindAreAReasonForEachCounter) {
  for (const uint32_t value : {1, 2})
    for (const uint16_t slot : {1, 0})
      for (const int local : {1, 2}) wait(local, slot, value);
  EXPECT_THAT(reasons(), ElementsAre(Reason{1, 1, 0b110}, Reason{0, 1, 0b110}));
  reach(1, 0, 1);
  poll();
  EXPECT_THAT(reasons(), ElementsAre(Reason{1, 1, 0b110}, Reason{0, 1, 0b100}));
}

TEST_F(Waits, ForWhatIsOnlyThisRanksAreNoReasonWhereOthersWaitForMore) {
  wait(1, 0, 1, false);
  wait(2, 1, 1);
  EXPECT_THAT(reasons(), ElementsAre(Reason{1, 1, 0b100}));
}

TEST_F(Waits, ForWhatIsOnlyThisRanksEndWithTheLast) {
  for (const uint32_t value : {1, 2, 3})
    for (const int local : {1, 2}) wait(local, 0, value, false);
  EXPECT_THAT(reasons(), ElementsAre(Reason{0, 3, 0b110}));
}

}  // namespace
}  // namespace epccl::runtime
