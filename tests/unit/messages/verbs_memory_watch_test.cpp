#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "transports/verbs/memory_watch.hpp"

namespace epccl::transports::verbs {
namespace {

/// A watched page, which changes as often as is wanted.
class WatchedPage : public testing::Test {
 protected:
  void SetUp() override {
    watch_ = MemoryWatch::get();
    if (watch_ == nullptr) GTEST_SKIP() << "no userfaultfd";
    page_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page_, MAP_FAILED);
    ASSERT_TRUE(watch_->watch(range()));
    position_ = watch_->now();
  }
  void TearDown() override {
    if (page_ != nullptr) munmap(page_, size_);
  }

  MemoryWatch::Range range() const {
    return {reinterpret_cast<uintptr_t>(page_), reinterpret_cast<uintptr_t>(page_) + size_};
  }
  void change(int times) const {
    for (int i = 0; i < times; ++i) ASSERT_EQ(madvise(page_, size_, MADV_DONTNEED), 0);
  }
  /// The changes of the page that are told, or -1: there may have been any. The first comes with so many more.
  int told(int more = 0) {
    int of_page = 0;
    const bool all = watch_->catch_up(position_, [&](MemoryWatch::Range changed) {
      if (changed.begin == range().begin && changed.end == range().end) ++of_page;
      change(std::exchange(more, 0));
    });
    return all ? of_page : -1;
  }

  const size_t size_ = static_cast<size_t>(getpagesize());
  MemoryWatch* watch_ = nullptr;
  void* page_ = nullptr;
  uint64_t position_ = 0;
};

TEST_F(WatchedPage, IsToldOfAtEachChange) {
  EXPECT_EQ(told(), 0);
  change(3);
  EXPECT_EQ(told(), 3);
  EXPECT_EQ(told(), 0);
  change(2);
  EXPECT_EQ(told(5), 2);
  EXPECT_EQ(told(), 5);
}

TEST_F(WatchedPage, MayHaveChangedInAnyWayWhereThereWasMoreThanIsKept) {
  change(5000);
  EXPECT_EQ(told(), -1);
  change(1);
  EXPECT_EQ(told(), 1);
}

// Those that were still to be told are written over by then.
TEST_F(WatchedPage, MayHaveChangedInAnyWayWhereMoreThanIsKeptCameWhileItWasTold) {
  change(3);
  EXPECT_EQ(told(5000), -1);
}

}  // namespace
}  // namespace epccl::transports::verbs
