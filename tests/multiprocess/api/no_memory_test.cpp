// Memory that is not to be had while calls are issued is an error, and the next calls of their communicators run: each allocation in turn is
// the one that fails, and then the first from which on all do.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include "epccl/epccl.h"
#include "scarce_memory.hpp"

namespace epccl::tests {
namespace {

/// Of a communicator that is not blocking: when nothing is in progress any more.
epcclResult_t settled(epcclComm_t comm) {
  epcclResult_t result = epcclInProgress;
  for (int i = 0; i < 10'000 && result == epcclInProgress; ++i) {
    EXPECT_EQ(epcclCommGetAsyncError(comm, &result), epcclSuccess);
    if (result == epcclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return result;
}

/// Ends the test where they wait.
void run_in_time(const std::function<void()>& calls) {
  std::packaged_task<void()> task(calls);
  std::future<void> over = task.get_future();
  std::thread thread(std::move(task));
  if (over.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
    ADD_FAILURE() << "a call waits for one that was never queued";
    _exit(1);
  }
  thread.join();
}

enum class Blocking : int { no = 0, yes = 1 };

/// Two communicators of this rank alone, and two streams.
class Alone {
 public:
  explicit Alone(Blocking blocking) {
    epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
    config.blocking = static_cast<int>(blocking);
    for (epcclComm_t& comm : comms_) {
      epcclUniqueId id;
      EXPECT_EQ(epcclGetUniqueId(&id), epcclSuccess);
      const epcclResult_t made = epcclCommInitRankConfig(&comm, 1, id, 0, &config);
      EXPECT_TRUE(made == epcclSuccess || made == epcclInProgress) << made;
      EXPECT_EQ(settled(comm), epcclSuccess);
    }
    for (epcclStream_t& stream : streams_) EXPECT_EQ(epcclStreamCreate(&stream), epcclSuccess);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() {
    for (epcclStream_t stream : streams_) EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
    for (epcclComm_t child : children_)
      if (child != nullptr) epcclCommAbort(child);
    for (epcclComm_t comm : comms_) epcclCommAbort(comm);
  }

  epcclResult_t sum(int comm, epcclStream_t stream) {
    return epcclAllReduce(&one_, &sum_, 1, epcclInt32, epcclSum, comms_[static_cast<size_t>(comm)], stream);
  }
  /// To itself, and received by another stream.
  epcclResult_t message(int comm, epcclStream_t sender, epcclStream_t receiver) {
    const epcclComm_t self = comms_[static_cast<size_t>(comm)];
    const epcclResult_t sent = epcclSend(&one_, 1, epcclInt32, 0, self, sender);
    const epcclResult_t received = epcclRecv(&got_, 1, epcclInt32, 0, self, receiver);
    return sent != epcclSuccess ? sent : received;
  }
  /// Into this rank.
  epcclResult_t split(size_t comm) { return epcclCommSplit(comms_[comm], 0, 0, &children_[comm], nullptr); }
  epcclResult_t split_into_nothing(size_t comm) {
    return epcclCommSplit(comms_[comm], EPCCL_SPLIT_NOCOLOR, 0, &none_, nullptr);
  }
  epcclStream_t stream(int number) const { return streams_[static_cast<size_t>(number)]; }

  /// Calls of both communicators return. A call that had begun when there was no memory may have failed its communicator.
  void go_on() {
    run_in_time([this] {
      for (epcclStream_t stream : streams_) static_cast<void>(epcclStreamSynchronize(stream));
      // Of what has no memory nothing stays in progress.
      for (const auto* of : {&comms_, &children_})
        for (epcclComm_t comm : *of) EXPECT_TRUE(comm == nullptr || settled(comm) != epcclInProgress);
      for (int comm = 0; comm < 2; ++comm) {
        sum_ = 0;
        const epcclResult_t result = sum(comm, nullptr);
        EXPECT_TRUE(result == epcclSuccess ? sum_ == one_ : result == epcclSystemError) << result;
      }
    });
  }

 private:
  std::array<epcclComm_t, 2> comms_{}, children_{};
  epcclComm_t none_ = nullptr;
  std::array<epcclStream_t, 2> streams_{};
  int one_ = 7, sum_ = 0, got_ = 0;
};

/// Two ranks of one communicator, of which the second is left out.
class Pair {
 public:
  explicit Pair(Blocking) { EXPECT_EQ(epcclCommInitAll(comms_.data(), 2, nullptr), epcclSuccess); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    if (child_ != nullptr) epcclCommAbort(child_);
    for (epcclComm_t comm : comms_) epcclCommAbort(comm);
  }

  epcclResult_t shrink() {
    int excluded = 1;
    return epcclCommShrink(comms_[0], &excluded, 1, &child_, nullptr, EPCCL_SHRINK_DEFAULT);
  }

  /// As those of one who is alone.
  void go_on() {
    run_in_time([this] {
      EXPECT_EQ(epcclGroupStart(), epcclSuccess);
      for (size_t rank = 0; rank < 2; ++rank)
        epcclAllReduce(&one_, &sums_[rank], 1, epcclInt32, epcclSum, comms_[rank], nullptr);
      const epcclResult_t result = epcclGroupEnd();
      const bool is_right = result == epcclSuccess && sums_[0] == 2 * one_ && sums_[1] == 2 * one_;
      EXPECT_TRUE(is_right || result == epcclSystemError || result == epcclRemoteError) << result;
    });
  }

 private:
  std::array<epcclComm_t, 2> comms_{};
  epcclComm_t child_ = nullptr;
  int one_ = 7;
  std::array<int, 2> sums_{};
};

/// Issues the calls again and again: each time another allocation fails, alone or with all after it, until all have.
template <typename Ranks>
void without_memory(const std::function<epcclResult_t(Ranks&)>& calls, Blocking blocking, Shortage shortage) {
  int failed = 0;
  // Where all fail from one on, those from its neighbours on do, too.
  const int step = shortage == Shortage::of_one ? 1 : 16;
  for (bool all_have = false; !all_have && !testing::Test::HasFailure(); failed += step) {
    ASSERT_LT(failed, 10'000);
    Ranks ranks(blocking);
    begin_shortage(failed, shortage);
    const epcclResult_t result = calls(ranks);
    all_have = end_shortage() == 0;
    if (all_have) {
      EXPECT_EQ(result, blocking == Blocking::yes ? epcclSuccess : epcclInProgress);
    } else {
      // Of a message to itself there may have been one half.
      EXPECT_TRUE(result == epcclSuccess || result == epcclSystemError || result == epcclInvalidUsage ||
                  (blocking == Blocking::no && result == epcclInProgress))
          << result;
    }
    SCOPED_TRACE((shortage == Shortage::of_one ? "allocation " : "from allocation ") +
                 std::to_string(failed));
    ranks.go_on();
  }
  EXPECT_GT(failed, 3) << "the library does not allocate by this test's means";
}
template <typename Ranks>
void without_memory(const std::function<epcclResult_t(Ranks&)>& calls, Blocking blocking = Blocking::yes) {
  for (const Shortage shortage : {Shortage::of_one, Shortage::lasting})
    without_memory(calls, blocking, shortage);
}

epcclResult_t in_a_group(const std::function<void()>& calls) {
  if (const epcclResult_t begun = epcclGroupStart(); begun != epcclSuccess) return begun;
  calls();
  return epcclGroupEnd();
}

TEST(NoMemory, ForACallOnAStream) {
  without_memory<Alone>([](Alone& rank) { return rank.sum(0, rank.stream(0)); });
}

TEST(NoMemory, ForACallOnNoStream) {
  without_memory<Alone>([](Alone& rank) { return rank.sum(0, nullptr); });
}

TEST(NoMemory, ForMessagesOnNoStream) {
  without_memory<Alone>([](Alone& rank) { return in_a_group([&] { rank.message(0, nullptr, nullptr); }); });
}

TEST(NoMemory, ForMessagesOfSeveralStreamsAndNone) {
  without_memory<Alone>([](Alone& rank) {
    return in_a_group([&] {
      rank.message(0, rank.stream(0), rank.stream(1));
      rank.message(0, nullptr, rank.stream(0));
      rank.message(1, rank.stream(1), nullptr);
    });
  });
}

TEST(NoMemory, ForAGroupOfAllKinds) {
  without_memory<Alone>([](Alone& rank) {
    return in_a_group([&] {
      rank.sum(0, rank.stream(0));
      rank.sum(1, rank.stream(1));
      rank.message(1, rank.stream(0), rank.stream(1));
      rank.sum(0, nullptr);
      rank.sum(1, nullptr);
    });
  });
}

TEST(NoMemory, ForASplit) {
  without_memory<Alone>([](Alone& rank) { return rank.split(0); });
}

TEST(NoMemory, ForAGroupOfSplits) {
  without_memory<Alone>([](Alone& rank) {
    return in_a_group([&] {
      rank.split(0);
      rank.split_into_nothing(0);
      rank.split(1);
    });
  });
}

TEST(NoMemory, ForASplitInTheBackground) {
  without_memory<Alone>([](Alone& rank) { return rank.split(0); }, Blocking::no);
}

TEST(NoMemory, ForAShrink) {
  without_memory<Pair>([](Pair& ranks) { return ranks.shrink(); });
}

TEST(NoMemory, ForAGroupOfSplitsInTheBackground) {
  without_memory<Alone>(
      [](Alone& rank) {
        return in_a_group([&] {
          rank.split(0);
          rank.split(1);
        });
      },
      Blocking::no);
}

/// Of a thread of which the library knows nothing yet, and of one that has had an error.
void in_new_and_used_threads(const std::function<void()>& calls) {
  for (const bool is_used : {false, true})
    std::thread([&] {
      if (is_used) {
        EXPECT_EQ(epcclCommCount(nullptr, nullptr), epcclInvalidArgument);
      }
      calls();
    }).join();
}

TEST(NoMemory, AtAllForTheTextOfAnError) {
  in_new_and_used_threads([] {
    int count = 0;
    EXPECT_EQ(with_no_memory([&] { return epcclCommCount(nullptr, &count); }), epcclSystemError);
    for (epcclComm_t const comm : {epcclComm_t{}, reinterpret_cast<epcclComm_t>(&count)}) {
      const char* const text = with_no_memory([&] { return epcclGetLastError(comm); });
      ASSERT_NE(text, nullptr);
      EXPECT_NE(std::strstr(text, "out of memory"), nullptr) << text;
      EXPECT_STREQ(epcclGetLastError(comm), text);
      EXPECT_EQ(with_no_memory([&] { return epcclGetLastErrorReason(comm); }), epcclReasonNone);
    }
    // The next failure has its own again.
    EXPECT_EQ(epcclCommCount(nullptr, &count), epcclInvalidArgument);
    EXPECT_STREQ(epcclGetLastError(nullptr), "the communicator is NULL");
  });
}

TEST(NoMemory, AtAllForCallsWithoutACode) {
  in_new_and_used_threads([] {
    int nothing = 0;
    const auto none = reinterpret_cast<epcclComm_t>(&nothing);
    EXPECT_NE(with_no_memory([&] { return epcclGetLastError(none); }), nullptr);
    EXPECT_EQ(with_no_memory([&] { return epcclGetLastErrorReason(none); }), epcclReasonNone);
    EXPECT_EQ(with_no_memory([&] { return epcclIsRegistration(none, &nothing); }, -1), 0);
    EXPECT_EQ(with_no_memory([&] { return epcclIsStream(&nothing); }, -1), 0);
    EXPECT_EQ(with_no_memory([] { return epcclResetDebugInit(); }), epcclSystemError);
    EXPECT_EQ(epcclResetDebugInit(), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
