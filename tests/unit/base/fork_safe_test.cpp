#include "base/fork_safe.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <thread>

#include "base/fork_guard.hpp"

namespace epccl {
namespace {

/// 0: the child's `work` says so, in time.
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

/// Within the lock both are equal, or are just being made so.
template <typename Mutex>
struct Pair {
  Mutex mutex;
  int first = 0, second = 0;
};

template <typename Mutex>
Pair<ForkSafe<Mutex>>& the_pair() {
  static Pair<ForkSafe<Mutex>> instance;
  return instance;
}

template <typename Mutex>
class ForkSafeLock : public testing::Test {
 protected:
  static bool is_whole_and_free() {
    const std::lock_guard lock(pair().mutex);
    return pair().first == pair().second;
  }
  static Pair<ForkSafe<Mutex>>& pair() { return the_pair<Mutex>(); }
};

using Mutexes = testing::Types<std::mutex, std::shared_mutex>;
TYPED_TEST_SUITE(ForkSafeLock, Mutexes);

TYPED_TEST(ForkSafeLock, IsFreeInAChildWhichFindsWholeWhatAnotherThreadWasChanging) {
  std::binary_semaphore is_torn(0);
  std::thread other([&] {
    const std::lock_guard lock(this->pair().mutex);
    ++this->pair().first;
    is_torn.release();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++this->pair().second;
  });
  is_torn.acquire();
  EXPECT_EQ(end_of_child(this->is_whole_and_free), 0);
  other.join();
  EXPECT_TRUE(this->is_whole_and_free());
}

TYPED_TEST(ForkSafeLock, StaysTheForkingThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "this sanitizer takes a lock that the child has made anew to be locked twice";
#endif
  std::unique_lock lock(this->pair().mutex);
  EXPECT_EQ(end_of_child([&] {
              lock.unlock();
              // And whoever forks then takes it as anybody does.
              return this->is_whole_and_free() && end_of_child(this->is_whole_and_free) == 0;
            }),
            0);
  lock.unlock();
  EXPECT_TRUE(this->is_whole_and_free());
}

// In whatever order forks take them.
TEST(ForkSafeLocks, KeepNoThreadFromForkingThatHasOneWhileAnotherForks) {
  static ForkSafe<std::mutex> before, mine, behind;
  // A descriptor whose list forks wait for, too.
  const GuardedFd guarded{UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC))};
  std::binary_semaphore has_it(0);
  std::thread other([&] {
    const std::lock_guard lock(mine);
    has_it.release();
    // By then the other one has taken what it takes first, and waits.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(end_of_child([] {
                const std::lock_guard first(before);
                const std::lock_guard last(behind);
                return true;
              }),
              0);
  });
  has_it.acquire();
  EXPECT_EQ(end_of_child([] {
              const std::lock_guard lock(mine);
              return true;
            }),
            0);
  other.join();
}

// A thread of the child may get the number of that one.
TEST(ForkSafeLocks, AreFreeInAChildsChildThoughAThreadHadOneThatTheChildHasNot) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "this sanitizer lets a forked child begin no thread";
#endif
  static ForkSafe<std::mutex> mine, others;
  std::binary_semaphore has_it(0), is_over(0);
  pthread_t its_number{};
  std::thread other([&] {
    const std::lock_guard lock(others);
    its_number = pthread_self();
    has_it.release();
    is_over.acquire();
  });
  has_it.acquire();
  std::unique_lock lock(mine);  // with which this fork waits for no other thread
  EXPECT_EQ(end_of_child([&] {
              lock.unlock();
              bool is_free = false, has_number = false;
              for (int i = 0; i < 100 && !has_number; ++i)
                std::thread([&] {
                  has_number = pthread_equal(pthread_self(), its_number) != 0;
                  is_free = end_of_child([] {
                              const std::lock_guard lock(others);
                              return true;
                            }) == 0;
                }).join();
              return is_free;
            }),
            0);
  is_over.release();
  other.join();
}

TEST(ForkSafeSharedLock, IsFreeInAChildWhileAnotherThreadReads) {
  std::binary_semaphore reads(0), is_over(0);
  std::thread other([&] {
    const std::shared_lock lock(the_pair<std::shared_mutex>().mutex);
    reads.release();
    is_over.acquire();
  });
  reads.acquire();
  EXPECT_EQ(end_of_child([] {
              const std::lock_guard lock(the_pair<std::shared_mutex>().mutex);
              return true;
            }),
            0);
  is_over.release();
  other.join();
}

}  // namespace
}  // namespace epccl
