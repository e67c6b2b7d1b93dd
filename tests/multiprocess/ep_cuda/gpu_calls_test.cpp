// Streams of a GPU and calls of an EP handle: what waits for what, and what is refused.
#include <gmock/gmock.h>

#include <chrono>

#include "../api_cuda/gate.hpp"
#include "device/kernels/launch.hpp"
#include "epccl/stragglers.h"
#include "static_handle.hpp"
#include "to_the_next.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;

constexpr size_t tokens = ToTheNext::tokens, hidden = ToTheNext::hidden;

/// On one node, and on several.
class EpOnGpus : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, EpOnGpus, ::testing::Values(std::vector<int>{2}, std::vector<int>{1, 2}));

TEST_P(EpOnGpus, AStreamGoesOnAfterSendOnlyAndAnotherWaitsForAStage) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    GpuRank gpu, other;
    const Comm comm(context);
    ToTheNext layer(context, comm, gpu);
    ASSERT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl(), true), epcclSuccess)
        << epcclGetLastError(nullptr);
    ASSERT_EQ(epcclEpStreamWaitStage(other.as_epccl(), layer.handle(), 2), epcclSuccess)
        << epcclGetLastError(nullptr);
    std::vector<float> got(tokens * hidden);
    MUST(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(got.data()),
                       reinterpret_cast<CUdeviceptr>(layer.output.data()), got.size() * sizeof(float),
                       other.stream()));
    other.wait();
    EXPECT_EQ(got, layer.expected());
    gpu.wait();
    epcclEpProgress_t progress = EPCCL_EP_PROGRESS_INIT;
    EXPECT_EQ(epcclEpGetProgress(layer.handle(), &progress), epcclSuccess);
    EXPECT_EQ(progress.calls_over, 1U);
  });
}

// Among the first calls nothing waits in the stream that waits for the stage.
TEST_P(EpOnGpus, TheDriverMayWaitForTheGpuBehindAStage) {
  constexpr int stuck_seconds = 40;
  run_ranks(
      {GetParam(),
       {{"FAKE_CUDA_CONTEXT_LOCK", "1"}, {"EPCCL_CUDA_STUCK", std::to_string(stuck_seconds)}},
       {}},
      [](const RankContext& context) {
        GpuRank gpu, other;
        const Comm comm(context);
        ToTheNext layer(context, comm, gpu);
        CUdeviceptr freed = 0;
        MUST(cuMemAlloc(&freed, 4096));
        const auto begun = std::chrono::steady_clock::now();
        if (context.rank == 1) usleep(100'000);
        ASSERT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl(), true), epcclSuccess)
            << epcclGetLastError(nullptr);
        ASSERT_EQ(epcclEpStreamWaitStage(other.as_epccl(), layer.handle(), 2), epcclSuccess)
            << epcclGetLastError(nullptr);
        MUST(cuMemFree(freed));
        other.wait();
        EXPECT_EQ(layer.output.get(), layer.expected());
        EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(stuck_seconds / 2));
      });
}

TEST_P(EpOnGpus, TokensAreQuantisedAlikeByKernelsAndByTheHost) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    const Comm comm(context);  // which does not know the GPU, so that `never` is the host
    GpuRank gpu;
    ToTheNext layer(context, comm, gpu);
    GpuArray<uint8_t> by_kernels(gpu, std::vector<uint8_t>(tokens * hidden, 0x5a)),
        by_host(gpu, std::vector<uint8_t>(tokens * hidden, 0xa5));
    GpuArray<float> kernels_scales(gpu, std::vector<float>(tokens, -1)),
        hosts_scales(gpu, std::vector<float>(tokens, -2));
    ASSERT_EQ(layer.dispatch_as_float8(by_kernels, kernels_scales, gpu.as_epccl()), epcclSuccess)
        << epcclGetLastError(nullptr);
    gpu.wait();
    ASSERT_EQ(epcclCommSetCopyEngine(comm, "never"), epcclSuccess);
    ASSERT_EQ(layer.dispatch_as_float8(by_host, hosts_scales, gpu.as_epccl()), epcclSuccess)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(by_kernels.get(), by_host.get());
    EXPECT_EQ(kernels_scales.get(), hosts_scales.get());
  });
}

TEST_P(EpOnGpus, TheTimeOfDispatchesIsThatOfKernelsAndOfWaits) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    ToTheNext layer(context, comm, gpu);
    const auto dispatch = [&] {
      EXPECT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess);
    };
    dispatch();
    gpu.wait();  // or it may begin when calls are measured
    EXPECT_EQ(epcclCommMeasureCalls(comm, 1), epcclSuccess);
    for (int i = 0; i < 3; ++i) dispatch();
    epcclCallTimes_t times = EPCCL_CALL_TIMES_INITIALIZER;
    EXPECT_EQ(epcclCommGetCallTimes(comm, &times), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(times.calls, 3U);
    epcclStragglers_t found = EPCCL_STRAGGLERS_INITIALIZER;
    EXPECT_EQ(epcclCommFindStragglers(comm, &found, nullptr), epcclSuccess) << epcclGetLastError(comm);
    // Between nodes a rank waits for those that have tokens for it.
    EXPECT_EQ(found.calls, GetParam().size() == 1 ? 2U : 0U) << "the first only says since when";
    const bool has_kernels = !device::kernels::bytes_of(device::kernels::Image::rows).empty();
    EXPECT_GT(has_kernels ? times.kernel : times.copy, 0);
    EXPECT_GE(times.signal, 0);
    EXPECT_NEAR(times.kernel + times.copy + times.signal + times.host, times.total, 1e-6);
    EXPECT_EQ(layer.output.get(), layer.expected());
  });
}

/// That it returns, though its stream is busy, sooner than who waits for its end in vain (a quarter of the timeout).
void expect_queued_behind(const GpuRank& gpu, const std::function<epcclResult_t()>& call) {
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(call(), epcclSuccess) << epcclGetLastError(nullptr);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  EXPECT_EQ(cuStreamQuery(gpu.stream()), CUDA_ERROR_NOT_READY);
}

// Rank 1's tokens, and the place for what rank 0 sends it, are there only when its stream has come.
TEST(EpOnGpu, TransfersAreQueuedBehindTheirStreams) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty()) GTEST_SKIP() << "no kernels";
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    ToTheNext layer(context, comm, gpu);
    const GpuArray<float> late(gpu, std::vector<float>(tokens * hidden, -1)), back(gpu, tokens * hidden);
    const auto copy = [&](const GpuArray<float>& to, const GpuArray<float>& from) {
      MUST(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to.data()), reinterpret_cast<CUdeviceptr>(from.data()),
                         tokens * hidden * sizeof(float), gpu.stream()));
    };
    gpu.wait();
    {
      const Gate gate;
      gate.close(gpu);
      copy(late, layer.input);
      expect_queued_behind(gpu,
                           [&] { return layer.dispatch(late.data(), layer.output.data(), gpu.as_epccl()); });
      context.meet();
      usleep(20'000 * context.rank);
      gate.open();
      EXPECT_EQ(layer.output.get(), layer.expected());
    }
    const GpuArray<float> rows(gpu, std::vector<float>(tokens * hidden, -2));
    {
      const Gate gate;
      gate.close(gpu);
      copy(rows, layer.output);
      expect_queued_behind(gpu, [&] { return layer.combine(rows.data(), back.data(), gpu.as_epccl()); });
      context.meet();
      usleep(20'000 * context.rank);
      gate.open();
      EXPECT_EQ(back.get(), layer.input.get());
    }
    context.meet();
  });
}

// But for the first, whose ranks have to agree.
TEST(EpOnGpu, UpdatesOfStaticModeAreQueuedBehindTheirStreams) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty()) GTEST_SKIP() << "no kernels";
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const size_t k = 2;
    Problem problem;
    problem.layout = EPCCL_EP_LAYOUT_EXPERT_MAJOR;
    problem.experts = 2;
    problem.k = k;
    problem.max_tokens = problem.capacity = tokens;
    problem.hidden = hidden;
    problem.tokens = {tokens, tokens};
    problem.owner = {0, 1};
    StaticHandle handle(context, comm, gpu, problem);
    const GpuArray<int64_t> table(gpu, std::vector<int64_t>(tokens * k, -1)),
        wrong(gpu, std::vector<int64_t>(tokens * k, context.rank == 1 ? 7 : -1)),
        late(gpu, std::vector<int64_t>(tokens * k, -1));
    EXPECT_EQ(handle.update(table, tokens, k), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclEpComplete(handle.handle()), epcclSuccess);
    const Gate gate;
    gate.close(gpu);
    MUST(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(late.data()),
                       reinterpret_cast<CUdeviceptr>(wrong.data()), tokens * k * sizeof(int64_t),
                       gpu.stream()));
    expect_queued_behind(gpu, [&] { return handle.update(late, tokens, k); });
    context.meet();
    gate.open();
    EXPECT_EQ(epcclEpComplete(handle.handle()), epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("rank 1: topk_idx[0][0] is expert 7"));
    gpu.wait();
    context.meet();
  });
}

// One thread may drive both ranks: the second would never come to its dispatch.
TEST_P(EpOnGpus, ADestroyedHandleWaitsForNoCallThatAStreamWaitsFor) {
  run_ranks({GetParam(), {{"EPCCL_CUDA_FIRST_CALLS", "0"}}, {}}, [](const RankContext& context) {
    GpuRank gpu, other;
    const Comm comm(context);
    ToTheNext layer(context, comm, gpu);
    if (context.rank == 1) context.meet();
    ASSERT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess)
        << epcclGetLastError(nullptr);
    ASSERT_EQ(epcclEpStreamWaitStage(other.as_epccl(), layer.handle(), 2), epcclSuccess)
        << epcclGetLastError(nullptr);
    layer.end();
    if (context.rank != 1) context.meet();
    other.wait();
    EXPECT_EQ(layer.output.get(), layer.expected());
  });
}

TEST(EpOnGpu, TensorsOfTwoKindsAreRefused) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    ToTheNext layer(context, comm, gpu);
    std::vector<float> here(tokens * hidden);
    EXPECT_EQ(layer.dispatch(here.data(), layer.output.data(), gpu.as_epccl()), epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("is host memory, but outputs.tokens"));
    EXPECT_EQ(layer.dispatch(layer.input.data(), here.data(), gpu.as_epccl()), epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("is memory of GPU 0, but outputs.tokens"));
    EXPECT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess);
    EXPECT_EQ(layer.output.get(), layer.expected());
  });
}

TEST(EpOnGpu, ACapturedStreamIsRefusedAndTheCaptureGoesOn) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    ToTheNext layer(context, comm, gpu);
    gpu.wait();
    MUST(cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclInvalidUsage);
    EXPECT_THAT(
        epcclGetLastError(nullptr),
        HasSubstr("is being captured into: its sizes follow from the routing, but for handles of static"));
    EXPECT_EQ(epcclEpStreamWaitStage(gpu.as_epccl(), layer.handle(), 2), epcclInvalidUsage);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("is being captured into a graph"));
    CUgraph graph = nullptr;
    MUST(cuStreamEndCapture(gpu.stream(), &graph));
    cuGraphDestroy(graph);
  });
}

}  // namespace
}  // namespace epccl::tests
