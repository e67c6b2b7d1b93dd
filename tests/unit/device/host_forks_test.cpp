// What a forked child has of the host's memory, also where it was forked while another thread was just changing that.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <semaphore>
#include <thread>

#include "device/host/host_device.hpp"
#include "device/host/host_memory.hpp"

namespace {

/// What a thread does at each allocation of its own.
thread_local constinit const std::function<void()>* at_allocation = nullptr;

}  // namespace

// Tables grow within their locks.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (const auto* const told = at_allocation; told != nullptr) {
    at_allocation = nullptr;
    (*told)();
    at_allocation = told;
  }
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace epccl::device {
namespace {

int end_of_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

/// Forks at each allocation that `calls` makes on another thread. 0: every child's `work` says so, in time.
int forked_within(const std::function<void()>& calls, const std::function<bool()>& work) {
  std::binary_semaphore allocates(0), has_forked(0);
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    const std::function<void()> wait = [&] {
      allocates.release();
      // The fork may be waiting for this thread.
      static_cast<void>(has_forked.try_acquire_for(std::chrono::milliseconds(50)));
    };
    at_allocation = &wait;
    calls();
    at_allocation = nullptr;
    is_over = true;
    allocates.release();
  });
  int end = 0;
  for (allocates.acquire(); !is_over; allocates.acquire()) {
    if (end == 0) end = end_of_child(work);
    has_forked.release();
  }
  other.join();
  return end;
}

bool can_allocate(MemoryKind kind) {
  const auto memory = the_host().allocate(kind, 4096);
  return memory.ok() && the_host().info(*memory)->shareable == (kind == MemoryKind::shareable) &&
         the_host().free(*memory).ok();
}

class ForkedWhile : public ::testing::TestWithParam<MemoryKind> {};

TEST_P(ForkedWhile, AnotherThreadAllocatesAChildHasItsMemoryAndMayAllocateItself) {
  const auto before = the_host().allocate(GetParam(), 4096);
  ASSERT_TRUE(before.ok());
  Result<void*> during = Status();
  EXPECT_EQ(forked_within([&] { during = the_host().allocate(GetParam(), 4096); },
                          [&] { return can_allocate(GetParam()) && the_host().free(*before).ok(); }),
            0);
  ASSERT_TRUE(during.ok());
  EXPECT_TRUE(the_host().free(*during).ok());
  EXPECT_TRUE(the_host().free(*before).ok());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ForkedWhile, ::testing::Values(MemoryKind::shareable, MemoryKind::plain));

TEST(ForkedWhileAnotherThread, TellsOfAPostAChildIsToldOfItsOwn) {
  SignalWord word{0};
  std::binary_semaphore is_told(0), has_forked(0);
  the_host().tell_of_posts(&word, sizeof word, [&](const SignalWord&) {
    is_told.release();
    has_forked.acquire();
  });
  std::thread other([&] { the_host().told(word); });
  is_told.acquire();
  EXPECT_EQ(end_of_child([] {
              SignalWord own{0};
              int posts = 0;
              the_host().tell_of_posts(&own, sizeof own, [&](const SignalWord&) { ++posts; });
              the_host().told(own);
              the_host().hide_words(&own);
              return posts == 1;
            }),
            0);
  has_forked.release();
  other.join();
  the_host().hide_words(&word);
}

}  // namespace
}  // namespace epccl::device
