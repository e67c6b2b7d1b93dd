// A mutex for what a forked child goes on with as its parent left it. (What a child begins anew, with its mutex, is a PerProcess's.)
// fork() waits until no other thread has it for changes, so that the child finds those done, and the mutex free.
//   ForkSafe<std::mutex> mutex;   const std::lock_guard lock(mutex);   in a static object that is never destroyed
// Who has one to change something waits for no other one, nor long for anything else: forks wait for it. A thread that forks with one
// locked has it in the child, too; but none goes on there that forked within a shared lock.
// Nothing else in this library has forks wait: a handler that takes a lock before a fork would be waited for by who has one of these and
// forks, while the other that forks, and has that lock, waits for this one. What needs it is a ForkSafe, and asks for a child's handler only.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <type_traits>

namespace epccl {

class LockedToFork {
 protected:
  LockedToFork() = default;
  ~LockedToFork() = default;  // of static objects that are never destroyed
  /// From now on forks wait for it and renew it: the last that its constructor does.
  void publish();

  void now_mine() { owner_.store(pthread_self(), std::memory_order_relaxed); }
  void nobodys() { owner_.store(pthread_t(), std::memory_order_relaxed); }
  bool is_mine() const { return owner_.load(std::memory_order_relaxed) == pthread_self(); }

 private:
  static const int installed;
  static void before_fork();
  static void in_parent();
  static void in_child();
  virtual void hold() = 0;
  virtual void release() = 0;
  virtual void renew() = 0;

  std::atomic<pthread_t> owner_{};  // the thread that has it for changes
  LockedToFork* next_ = nullptr;
};

template <typename Mutex>
class ForkSafe final : private LockedToFork {
 public:
  ForkSafe() {
    // Or what ends with the process, after this, would find it destroyed.
    static_assert(std::is_trivially_destructible_v<ForkSafe>);
    publish();
  }
  ForkSafe(const ForkSafe&) = delete;
  ForkSafe& operator=(const ForkSafe&) = delete;

  void lock() {
    mutex_.lock();
    now_mine();
  }
  void unlock() {
    nobodys();
    mutex_.unlock();
  }
  void lock_shared() { mutex_.lock_shared(); }
  void unlock_shared() { mutex_.unlock_shared(); }

 private:
  static constexpr bool is_shared = requires(Mutex & mutex) { mutex.lock_shared(); };

  // Those who only read need not be waited for, nor kept from reading.
  void hold() override {
    if constexpr (is_shared)
      mutex_.lock_shared();
    else
      mutex_.lock();
  }
  void release() override {
    if constexpr (is_shared)
      mutex_.unlock_shared();
    else
      mutex_.unlock();
  }
  // Readers may have it whose threads are not there, and another thread its writing, whose number a thread of the child may get; and it
  // knows its writer by a number that is another one now.
  void renew() override {
    std::construct_at(&mutex_);
    if (is_mine())
      mutex_.lock();
    else
      nobodys();
  }

  Mutex mutex_;
};

}  // namespace epccl
