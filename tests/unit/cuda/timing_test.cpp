#include <cuda.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <thread>

#include "device/work_times.hpp"
#include "fake_driver.hpp"
#include "gpu.hpp"

namespace epccl::device::test {
namespace {

/// A GPU's queue, a word, and what its work is told to.
class CudaTimes : public ::testing::Test {
 protected:
  CudaTimes() {
    word_ = static_cast<SignalWord*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    EXPECT_OK(gpu().make_words_visible(word_, bytes));
    queue_ = take(gpu().make_queue(QueueKind::compute));
    fake_cuda_forget_calls();
  }
  ~CudaTimes() override {
    queue_.reset();
    times_.reset();
    gpu().hide_words(word_);
    munmap(word_, bytes);
    EXPECT_EQ(fake_cuda_live("events"), 0);
  }
  void copy() {
    const CopyWork work{there_.data(), from_.data(), from_.size()};
    EXPECT_OK(queue_->copy({&work, 1}));
  }
  TimeSplit split() { return take(times_->split()); }

  static constexpr uint64_t bytes = 8192;
  const std::vector<std::byte> from_ = numbers(1 << 20, 1);
  const GpuMemory there_{1 << 20};
  SignalWord* word_;
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<WorkTimes> times_ = std::make_shared<WorkTimes>();
};

TEST_F(CudaTimes, NothingIsRecordedWhereNobodyMeasures) {
  copy();
  EXPECT_OK(queue_->wait(word_[0], 0));
  EXPECT_OK(queue_->post(word_[0], 1));
  EXPECT_OK(queue_->synchronize());
  EXPECT_EQ(fake_cuda_calls("cuEventCreate"), 0);
  EXPECT_EQ(fake_cuda_calls("cuEventRecord"), 0);
}

TEST_F(CudaTimes, EventsAroundEachOperationTellItsTime) {
  {
    const WorkTimes::Scope scope(times_);
    times_->restart();
    EXPECT_OK(queue_->wait(word_[0], 1));
    copy();
  }
  EXPECT_EQ(fake_cuda_calls("cuEventRecord"), 4);
  copy();
  EXPECT_EQ(fake_cuda_calls("cuEventRecord"), 4) << "an operation outside of the scope";
  word_[0].store(1);
  EXPECT_OK(queue_->synchronize());
  const TimeSplit first = split();
  EXPECT_GT(first.copy, 0);
  EXPECT_GT(first.signal, 0);
  EXPECT_EQ(first.kernel, 0);
  EXPECT_LE(first.copy + first.signal, first.total + 1e-9);
}

TEST_F(CudaTimes, AnotherCallBeginsWithNothingAndTheSameEvents) {
  const WorkTimes::Scope scope(times_);
  for (int call = 0; call < 3; ++call) {
    times_->restart();
    copy();
    EXPECT_OK(queue_->synchronize());
    EXPECT_GT(split().copy, 0);
  }
  const long made = fake_cuda_calls("cuEventCreate");
  times_->restart();
  EXPECT_EQ(split().copy, 0);
  copy();
  times_->restart();  // the one before was a wait for the call's turn
  EXPECT_OK(queue_->synchronize());
  EXPECT_EQ(split().copy, 0);
  copy();
  EXPECT_OK(queue_->synchronize());
  EXPECT_GT(split().copy, 0);
  EXPECT_EQ(fake_cuda_calls("cuEventCreate"), made);
}

TEST_F(CudaTimes, CollectingWaitsForWorkThatIsAboutToEnd) {
  const WorkTimes::Scope scope(times_);
  times_->restart();
  EXPECT_OK(queue_->wait(word_[0], 1));
  std::thread later([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    word_[0].store(1);
  });
  const TimeSplit found = split();
  later.join();
  EXPECT_GE(word_[0].load(), 1U);
  EXPECT_GE(found.signal, 0);
  EXPECT_OK(queue_->synchronize());
}

TEST_F(CudaTimes, WhatIsCapturedIsNotTimed) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  CUstream user = nullptr;
  ASSERT_EQ(cuStreamCreate(&user, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const auto borrowed = take(gpu().borrow_stream(user));
  ASSERT_EQ(cuStreamBeginCapture(user, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  {
    const WorkTimes::Scope scope(times_);
    const CopyWork work{there_.data(), there_.data() + 512, 512};
    EXPECT_OK(borrowed->copy({&work, 1}));
  }
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(user, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy(user), CUDA_SUCCESS);
  cuCtxPopCurrent(&context);
  EXPECT_EQ(fake_cuda_calls("cuEventRecord"), 0);
  EXPECT_EQ(split().copy, 0);
}

}  // namespace
}  // namespace epccl::device::test
