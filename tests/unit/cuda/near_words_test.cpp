// Queues that wait by kernels, which look at near words (WordValue::near), and post behind them.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>

#include "device/kernels/launch.hpp"
#include "fake_driver.hpp"
#include "gpu.hpp"

namespace epccl::device::test {
namespace {

constexpr size_t most = 1000;

class NearWordsOfAQueue : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::bytes_of(kernels::Image::signals).empty()) GTEST_SKIP() << "built without CUDA kernels";
  }
  NearWordsOfAQueue() : near_memory_(most * sizeof(SignalWord)) {
    words_ = static_cast<SignalWord*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    EXPECT_OK(gpu().make_words_visible(words_, bytes));
    near_ = reinterpret_cast<SignalWord*>(near_memory_.data());
    for (size_t i = 0; i < most; ++i) near_[i].store(0);
    fake_cuda_forget_calls();
  }
  ~NearWordsOfAQueue() override {
    gpu().hide_words(words_);
    munmap(words_, bytes);
  }

  static constexpr uint64_t bytes = 8192;
  const GpuMemory near_memory_;
  SignalWord *words_, *near_;  // by the same numbers
};

// Every third has no near word. Posts come behind the last wait, whichever kernel that is in, and however many they are (the driver's are
// the waits before more posts than a kernel takes).
TEST_F(NearWordsOfAQueue, HoldPostsBackUntilTheLastIsThere) {
  for (const size_t count : {size_t{1}, size_t{32}, size_t{33}, size_t{64}, size_t{100}})
    for (const size_t posts : {size_t{0}, size_t{1}, size_t{4}, size_t{5}}) {
      const auto queue = take(gpu().make_queue(QueueKind::copy_engine));
      std::vector<WordValue> waits;
      std::vector<WordPost> raised;
      for (size_t i = 0; i < most; ++i) near_[i].store(0), words_[i].store(0);
      for (size_t i = 0; i < count; ++i) waits.push_back({words_ + i, 3, i % 3 == 2 ? nullptr : near_ + i});
      for (size_t i = 900; i < 900 + posts; ++i)
        raised.push_back({words_ + i, 7, i % 2 == 0 ? near_ + i : nullptr});
      EXPECT_OK(queue->post_after(waits, raised));
      for (size_t i = 0; i + 1 < count; ++i) near_[i].store(3), words_[i].store(3);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (const WordPost& each : raised) EXPECT_EQ(each.word->load(), 0U) << count << " waits";
      EXPECT_FALSE(*queue->idle());
      words_[count - 1].store(released);  // by a host that gives up
      EXPECT_OK(queue->synchronize());
      for (const WordPost& each : raised) {
        EXPECT_EQ(each.word->load(), 7U) << count << " waits";
        EXPECT_TRUE(each.near == nullptr || each.near->load() == 7) << count << " waits";
      }
    }
}

TEST_F(NearWordsOfAQueue, AreOneKernelForAllOfANodeAndItsPosts) {
  const auto queue = take(gpu().make_queue(QueueKind::copy_engine));
  std::vector<WordValue> waits;
  for (size_t i = 0; i < 32; ++i) waits.push_back({words_ + i, 0, near_ + i});
  const WordPost post{words_ + 40, 1, near_ + 40};
  EXPECT_OK(queue->post_after(waits, {&post, 1}));
  EXPECT_OK(queue->synchronize());
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 1);
  EXPECT_EQ(fake_cuda_calls("cuStreamBatchMemOp_v2"), 0);
  EXPECT_EQ(words_[40].load(), 1U);
}

// Nothing of the call is in the queue then, and the queue can be used.
TEST_F(NearWordsOfAQueue, DoNotMakeAWordVisibleThatIsNot) {
  const auto queue = take(gpu().make_queue(QueueKind::copy_engine));
  const SignalWord hidden{5};
  const WordValue wait{&hidden, 1, near_};
  EXPECT_FALSE(queue->post_after({&wait, 1}, {}).ok());
  EXPECT_OK(queue->failure());
  EXPECT_TRUE(*queue->idle());
}

}  // namespace
}  // namespace epccl::device::test
