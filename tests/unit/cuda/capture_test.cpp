// Queues whose stream is being captured into a graph.
#include <cuda.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <array>

#include "fake_driver.hpp"
#include "gpu.hpp"

namespace epccl::device::test {
namespace {

using ::testing::HasSubstr;

/// A stream of the user's, in the GPU's primary context.
class CudaCapture : public ::testing::Test {
 protected:
  CudaCapture() {
    gpu();
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    user_ = take(gpu().borrow_stream(stream_));
  }
  ~CudaCapture() override {
    cuStreamDestroy(stream_);
    cuCtxPopCurrent(&context_);
  }
  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    ASSERT_EQ(cuStreamBeginCapture(stream_, mode), CUDA_SUCCESS);
  }
  CUgraphExec end() {
    CUgraph graph = nullptr;
    CUgraphExec run = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    if (graph == nullptr) return nullptr;
    cuGraphInstantiateWithFlags(&run, graph, 0);
    cuGraphDestroy(graph);
    return run;
  }
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::unique_ptr<Queue> user_;
};

TEST_F(CudaCapture, RunsWhatWasCapturedAtEveryReplay) {
  const GpuMemory from(200), middle(200), to(200);
  auto engine = take(gpu().make_queue(QueueKind::copy_engine));
  auto forked = take(gpu().make_event()), joined = take(gpu().make_event());
  const std::array works{CopyWork{middle.data(), from.data(), 100},
                         CopyWork{middle.data() + 100, from.data() + 100, 100}};
  const CopyWork out{to.data(), middle.data(), 200};

  EXPECT_FALSE(user_->capturing());
  begin();
  EXPECT_TRUE(user_->capturing());
  EXPECT_OK(user_->record(*forked));
  EXPECT_OK(engine->wait(*forked));
  EXPECT_TRUE(engine->capturing()) << "it joined the capture";
  fake_cuda_forget_calls();
  EXPECT_OK(engine->copy(works));
  EXPECT_EQ(fake_cuda_calls("cuMemcpyAsync"), 2) << "CUDA 13.0 cannot capture a list";
  EXPECT_OK(engine->record(*joined));
  EXPECT_OK(user_->wait(*joined));
  EXPECT_OK(user_->copy({&out, 1}));
  CUgraphExec graph = end();
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(engine->capturing());

  for (unsigned round = 0; round < 3; ++round) {
    const auto bytes = numbers(200, round);
    put(from.data(), bytes);
    EXPECT_EQ(cuGraphLaunch(graph, stream_), CUDA_SUCCESS);
    EXPECT_OK(user_->synchronize());
    EXPECT_EQ(get(to.data(), 200), bytes);
  }
  cuGraphExecDestroy(graph);
}

/// Lists of copies captured by a driver that says it is of CUDA 13.5: of GPU 1, which nobody has opened.
void capture_a_list(bool can) {
  setenv("FAKE_CUDA_VERSION", "13050", 1);
  fake_cuda_set("captured_lists", can ? 1 : 0);
  Device& device = gpu(1);
  for (const char* what : {"streams", "pinned", "graphs"})
    EXPECT_EQ(fake_cuda_live(what), 0) << "what it was tried with";
  const GpuMemory from(200, MemoryKind::plain, device), to(200, MemoryKind::plain, device);
  const std::array works{CopyWork{to.data(), from.data(), 100},
                         CopyWork{to.data() + 100, from.data() + 100, 100}};
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const auto queue = take(device.borrow_stream(stream));
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  fake_cuda_forget_calls();
  EXPECT_OK(queue->copy(works));
  EXPECT_EQ(fake_cuda_calls("cuMemcpyBatchAsync_v2"), can ? 1 : 0);
  EXPECT_EQ(fake_cuda_calls("cuMemcpyAsync"), can ? 0 : 2);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << "the capture was spoilt";
  cuGraphDestroy(graph);
  cuStreamDestroy(stream);
  cuCtxPopCurrent(&context);
}

// Each in a process of its own, which has not loaded the driver.
TEST(CudaCaptureOfLists, IsOneCallOfANewDriver) {
  capture_a_list(true);
}
TEST(CudaCaptureOfLists, IsNotAskedOfADriverThatIsNewAndCannot) {
  capture_a_list(false);
}

TEST_F(CudaCapture, WaitingAndAskingAreRefusedAndSpoilNothing) {
  begin();
  EXPECT_THAT(user_->synchronize().message(),
              HasSubstr("is being captured into a graph, so it cannot be waited for"));
  EXPECT_EQ(user_->idle().status().code(), Code::invalid_usage);
  auto event = take(gpu().make_event());
  EXPECT_OK(user_->record(*event));
  EXPECT_THAT(event->complete().status().message(), HasSubstr("recorded into a graph"));
  CUgraphExec graph = end();
  ASSERT_NE(graph, nullptr) << "the capture was spoilt";
  cuGraphExecDestroy(graph);
}

TEST_F(CudaCapture, OfAnotherThreadIsNotDisturbedByMemoryAndQueues) {
  begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  {
    const GpuMemory plain(1000), shareable(1000, MemoryKind::shareable), pinned(1000, MemoryKind::pinned);
    EXPECT_OK(gpu().export_memory(shareable.data(), 10).status());
    auto queue = gpu().make_queue(QueueKind::copy_engine);
    EXPECT_OK((*queue)->synchronize());
  }
  CUgraphExec graph = end();
  ASSERT_NE(graph, nullptr) << "the capture was spoilt";
  cuGraphExecDestroy(graph);
}

TEST_F(CudaCapture, ThatFailedIsNamed) {
  begin();
  EXPECT_NE(cuStreamSynchronize(stream_), CUDA_SUCCESS);  // the user's mistake
  const GpuMemory there(10);
  const auto from = numbers(10, 1);
  const CopyWork work{there.data(), from.data(), 10};
  EXPECT_THAT(user_->copy({&work, 1}).message(), HasSubstr("capture of a stream of GPU 0 failed before"));
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CudaCapture, RefusesTheNullStreamMeanwhile) {
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  auto null_stream = take(gpu().borrow_stream(nullptr));
  const GpuMemory there(10);
  const auto from = numbers(10, 1);
  const CopyWork work{there.data(), from.data(), 10};
  EXPECT_THAT(null_stream->copy({&work, 1}).message(),
              HasSubstr("the NULL stream of GPU 0 cannot be used while"));
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_SUCCESS);
  cuGraphDestroy(graph);
  cuStreamDestroy(blocking);
}

}  // namespace
}  // namespace epccl::device::test
