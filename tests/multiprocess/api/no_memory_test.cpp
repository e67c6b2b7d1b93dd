// Memory that is not to be had while calls are issued is an error, and the next calls of their communicators run: each allocation in turn is
// the one that fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <new>
#include <thread>

#include "epccl/epccl.h"

namespace {

/// So many allocations of this thread succeed, then one does not; negative: all do.
thread_local constinit int allocations_until_failure = -1;

void* allocate(size_t bytes) {
  if (allocations_until_failure >= 0 && allocations_until_failure-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// The library's, too.
void* operator new(size_t bytes) {
  return allocate(bytes);
}
void* operator new[](size_t bytes) {
  return allocate(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace epccl::tests {
namespace {

/// Two communicators of this rank alone, and two streams.
class Alone {
 public:
  Alone() {
    for (epcclComm_t& comm : comms_) EXPECT_EQ(epcclCommInitAll(&comm, 1, nullptr), epcclSuccess);
    for (epcclStream_t& stream : streams_) EXPECT_EQ(epcclStreamCreate(&stream), epcclSuccess);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() {
    for (epcclStream_t stream : streams_) EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
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
  epcclStream_t stream(int number) const { return streams_[static_cast<size_t>(number)]; }

  /// Calls of both communicators return. A call that had begun when there was no memory may have failed its communicator.
  void go_on() {
    std::packaged_task<void()> calls([this] {
      for (epcclStream_t stream : streams_) static_cast<void>(epcclStreamSynchronize(stream));
      for (int comm = 0; comm < 2; ++comm) {
        sum_ = 0;
        const epcclResult_t result = sum(comm, nullptr);
        EXPECT_TRUE(result == epcclSuccess ? sum_ == one_ : result == epcclSystemError) << result;
      }
    });
    std::future<void> over = calls.get_future();
    std::thread thread(std::move(calls));
    if (over.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      ADD_FAILURE() << "a call waits for one that was never queued";
      _exit(1);
    }
    thread.join();
  }

 private:
  std::array<epcclComm_t, 2> comms_{};
  std::array<epcclStream_t, 2> streams_{};
  int one_ = 7, sum_ = 0, got_ = 0;
};

/// Issues the calls again and again: each time another allocation fails, until all have.
void without_memory(const std::function<epcclResult_t(Alone&)>& calls) {
  int failed = 0;
  for (bool all_have = false; !all_have; ++failed) {
    ASSERT_LT(failed, 10'000);
    Alone rank;
    allocations_until_failure = failed;
    const epcclResult_t result = calls(rank);
    all_have = allocations_until_failure >= 0;
    allocations_until_failure = -1;
    if (all_have) {
      EXPECT_EQ(result, epcclSuccess);
    } else {
      // Of a message to itself there may have been one half.
      EXPECT_TRUE(result == epcclSuccess || result == epcclSystemError || result == epcclInvalidUsage)
          << result;
    }
    SCOPED_TRACE("allocation " + std::to_string(failed));
    rank.go_on();
  }
  EXPECT_GT(failed, 3) << "the library does not allocate by this test's means";
}

epcclResult_t in_a_group(const std::function<void()>& calls) {
  if (const epcclResult_t begun = epcclGroupStart(); begun != epcclSuccess) return begun;
  calls();
  return epcclGroupEnd();
}

TEST(NoMemory, ForACallOnAStream) {
  without_memory([](Alone& rank) { return rank.sum(0, rank.stream(0)); });
}

TEST(NoMemory, ForACallOnNoStream) {
  without_memory([](Alone& rank) { return rank.sum(0, nullptr); });
}

TEST(NoMemory, ForMessagesOnNoStream) {
  without_memory([](Alone& rank) { return in_a_group([&] { rank.message(0, nullptr, nullptr); }); });
}

TEST(NoMemory, ForMessagesOfSeveralStreamsAndNone) {
  without_memory([](Alone& rank) {
    return in_a_group([&] {
      rank.message(0, rank.stream(0), rank.stream(1));
      rank.message(0, nullptr, rank.stream(0));
      rank.message(1, rank.stream(1), nullptr);
    });
  });
}

TEST(NoMemory, ForAGroupOfAllKinds) {
  without_memory([](Alone& rank) {
    return in_a_group([&] {
      rank.sum(0, rank.stream(0));
      rank.sum(1, rank.stream(1));
      rank.message(1, rank.stream(0), rank.stream(1));
      rank.sum(0, nullptr);
      rank.sum(1, nullptr);
    });
  });
}

}  // namespace
}  // namespace epccl::tests
