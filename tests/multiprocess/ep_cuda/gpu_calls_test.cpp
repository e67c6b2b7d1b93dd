// Streams of a GPU and calls of an EP handle: what waits for what, and what is refused.
#include <gmock/gmock.h>

#include "device/cuda/kernels/launch.hpp"
#include "fake_driver.hpp"
#include "gpu_copies.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;

constexpr size_t tokens = 4, hidden = 8;

/// Every token goes to the next rank; a handle that has this routing.
class ToTheNext {
 public:
  ToTheNext(const RankContext& context, epcclComm_t comm, GpuRank& gpu)
      : before_((context.rank + context.ranks - 1) % context.ranks),
        table_(gpu, std::vector<int64_t>(tokens, (context.rank + 1) % context.ranks)),
        input(gpu, numbers(context.rank)),
        output(gpu, tokens * hidden) {
    epcclEpGroupConfig_t config = EPCCL_EP_GROUP_CONFIG_INIT;
    config.num_experts = static_cast<unsigned>(context.ranks);
    config.max_send_tokens_per_rank = tokens;
    config.max_token_bytes = hidden * sizeof(float);
    EXPECT_EQ(epcclEpCreateGroup(&group_, comm, &config), epcclSuccess) << epcclGetLastError(nullptr);
    Tensor topk(epcclInt64, table_.data(), {tokens, 1});
    EXPECT_EQ(
        epcclEpCreateHandle(&handle_, group_, EPCCL_EP_LAYOUT_FLAT, topk, nullptr, nullptr, gpu.as_epccl()),
        epcclSuccess)
        << epcclGetLastError(nullptr);
  }
  ToTheNext(const ToTheNext&) = delete;
  ToTheNext& operator=(const ToTheNext&) = delete;
  ~ToTheNext() {
    EXPECT_EQ(epcclEpComplete(handle_), epcclSuccess);
    EXPECT_EQ(epcclEpHandleDestroy(handle_), epcclSuccess);
    EXPECT_EQ(epcclEpGroupDestroy(group_), epcclSuccess);
  }

  epcclEpHandle_t handle() const { return handle_; }
  epcclResult_t dispatch(void* from, void* to, epcclStream_t stream, bool send_only = false) {
    Tensor in(epcclFloat32, from, {tokens, hidden}), out(epcclFloat32, to, {tokens, hidden});
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = out;
    epcclEpDispatchConfig_t config = EPCCL_EP_DISPATCH_CONFIG_INIT;
    config.send_only = send_only ? 1 : 0;
    return epcclEpDispatch(handle_, &inputs, &outputs, &config, stream);
  }
  epcclResult_t dispatch_as_float8(GpuArray<uint8_t>& to, GpuArray<float>& scales, epcclStream_t stream) {
    Tensor in(epcclFloat32, input.data(), {tokens, hidden}),
        out(epcclFloat8e4m3, to.data(), {tokens, hidden});
    Tensor scales_out(epcclFloat32, scales.data(), {tokens, 1});
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = out;
    outputs.scales = scales_out;
    return epcclEpDispatch(handle_, &inputs, &outputs, nullptr, stream);
  }
  std::vector<float> expected() const { return numbers(before_); }

 private:
  static std::vector<float> numbers(int rank) {
    std::vector<float> values(tokens * hidden);
    for (size_t i = 0; i < values.size(); ++i) values[i] = token_value(rank, static_cast<uint32_t>(i), 1);
    return values;
  }

  const int before_;
  const GpuArray<int64_t> table_;
  epcclEpGroup_t group_ = nullptr;
  epcclEpHandle_t handle_ = nullptr;

 public:
  const GpuArray<float> input, output;
};

/// On one node, and on several.
class EpOnGpus : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, EpOnGpus, ::testing::Values(std::vector<int>{2}, std::vector<int>{1, 2}));

TEST_P(EpOnGpus, AStreamGoesOnAfterSendOnlyAndAnotherWaitsForAStage) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    ToTheNext layer(context, comm, gpu);
    GpuRank other;
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

TEST_P(EpOnGpus, TokensAreQuantisedAlikeByKernelsAndByTheHost) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
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

// Ranks 1 and 2 send to another node, rank 0 to rank 1. Staged, all of them would bring all tokens to the host.
TEST(EpOnGpu, OnlyWhatCrossesNodesPassesTheHost) {
  if (device::cuda::bytes_of(device::cuda::Image::rows).empty()) GTEST_SKIP() << "built without CUDA kernels";
  run_ranks({{2, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    ToTheNext layer(context, comm, gpu);
    gpu.wait();
    constexpr long all = tokens * hidden * sizeof(float);
    for (const auto& [engine, expected] : {std::pair("auto", context.rank == 0 ? 0 : all), {"never", all}}) {
      SCOPED_TRACE(engine);
      ASSERT_EQ(epcclCommSetCopyEngine(comm, engine), epcclSuccess);
      fake_cuda_forget_calls();
      ASSERT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess)
          << epcclGetLastError(nullptr);
      gpu.wait();
      EXPECT_EQ(fake_cuda_calls("bytes to the host"), expected);
    }
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
