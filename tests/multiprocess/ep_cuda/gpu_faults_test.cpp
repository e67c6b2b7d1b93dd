// What goes wrong in calls of an EP handle on GPU memory: a GPU that is full, a rank that dies while its kernels write to others. On
// the double of the driver, which can be told to do so.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include "device/kernels/launch.hpp"
#include "fake_driver.hpp"
#include "gpu_copies.hpp"
#include "gpu_layers.hpp"
#include "names_the_dead.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;

/// Every rank's tokens go to all ranks, in static mode or not.
Problem to_everybody(int ranks, bool is_static) {
  Problem problem;
  problem.ranks_per_node = {ranks};
  problem.layout = EPCCL_EP_LAYOUT_RANK_MAJOR;
  problem.experts = problem.k = static_cast<uint32_t>(ranks);
  problem.hidden = 8;
  problem.max_tokens = 4;
  problem.is_static = is_static;
  problem.tokens.assign(static_cast<size_t>(ranks), problem.max_tokens);
  for (int rank = 0; rank < ranks; ++rank) {
    problem.owner.push_back(rank);
    auto& table = problem.topk.emplace_back();
    for (uint32_t i = 0; i < problem.max_tokens * problem.k; ++i) table.push_back(i % problem.k);
    problem.weights.emplace_back(table.size(), 1.0F);
  }
  return problem;
}

/// Tensors of one layer, as the C API takes them: no call waits.
class PlainLayer {
 public:
  PlainLayer(const RankContext& context, epcclComm_t comm, GpuRank& gpu, const Problem& problem)
      : gpu_(gpu),
        tokens_(problem.max_tokens),
        k_(problem.k),
        hidden_(problem.hidden),
        rows_(problem.max_tokens * static_cast<size_t>(problem.ranks())),
        table_(gpu, problem.topk[static_cast<size_t>(context.rank)]),
        input_(gpu, std::vector<float>(tokens_ * hidden_, static_cast<float>(context.rank + 1))),
        received_(gpu, rows_ * hidden_),
        combined_(gpu, tokens_ * hidden_) {
    epcclEpGroupConfig_t group = EPCCL_EP_GROUP_CONFIG_INIT;
    group.num_experts = problem.experts;
    group.expert_to_rank = problem.owner.data();
    group.max_send_tokens_per_rank = problem.max_tokens;
    group.max_token_bytes = problem.hidden * sizeof(float);
    EXPECT_EQ(epcclEpCreateGroup(&group_, comm, &group), epcclSuccess) << epcclGetLastError(nullptr);
    epcclEpHandleConfig_t config = EPCCL_EP_HANDLE_CONFIG_INIT;
    config.static_topk = problem.is_static ? problem.k : 0;
    EXPECT_EQ(epcclEpCreateHandle(&handle_, group_, problem.layout, nullptr, nullptr, &config, nullptr),
              epcclSuccess)
        << epcclGetLastError(nullptr);
  }
  PlainLayer(const PlainLayer&) = delete;
  PlainLayer& operator=(const PlainLayer&) = delete;
  ~PlainLayer() {
    EXPECT_EQ(epcclEpHandleDestroy(handle_), epcclSuccess);
    EXPECT_EQ(epcclEpGroupDestroy(group_), epcclSuccess);
  }

  epcclEpHandle_t handle() const { return handle_; }
  epcclResult_t update() {
    Tensor topk(epcclInt64, table_.data(), {tokens_, k_});
    return epcclEpUpdateHandle(handle_, topk, nullptr, gpu_.as_epccl());
  }
  epcclResult_t dispatch() {
    Tensor in(epcclFloat32, input_.data(), {tokens_, hidden_}),
        out(epcclFloat32, received_.data(), {rows_, hidden_});
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = out;
    return epcclEpDispatch(handle_, &inputs, &outputs, nullptr, gpu_.as_epccl());
  }
  epcclResult_t combine() {
    Tensor in(epcclFloat32, received_.data(), {rows_, hidden_}),
        out(epcclFloat32, combined_.data(), {tokens_, hidden_});
    epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    outputs.tokens = out;
    return epcclEpCombine(handle_, &inputs, &outputs, nullptr, gpu_.as_epccl());
  }
  std::vector<float> combined() const { return combined_.get(); }

 private:
  GpuRank& gpu_;
  const size_t tokens_, k_, hidden_, rows_;
  const GpuArray<int64_t> table_;
  const GpuArray<float> input_, received_, combined_;
  epcclEpGroup_t group_ = nullptr;
  epcclEpHandle_t handle_ = nullptr;
};

class EpFaultsOnGpu : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device::kernels::bytes_of(device::kernels::Image::layout).empty())
      GTEST_SKIP() << "built without CUDA kernels";
  }
};

void die(const void*, unsigned, unsigned) {
  raise(SIGKILL);
}

// Rank 1 does, in a call of a layer.
void expect_a_death_to_be_told(const std::vector<int>& ranks_per_node, const std::string& kernel) {
  run_ranks({ranks_per_node, {{"EPCCL_TIMEOUT", "20"}}, {1}}, [&kernel](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    {
      PlainLayer layer(context, comm, gpu, to_everybody(context.ranks, true));
      if (context.rank == 1) {
        using device::kernels::CopiesParameters;
        const size_t bytes = kernel == "epccl_spread"        ? sizeof(device::kernels::SpreadParameters)
                             : kernel == "epccl_move"        ? sizeof(device::kernels::MoveParameters)
                             : kernel == "epccl_sum_float32" ? sizeof(device::kernels::SumParameters)
                                                             : sizeof(CopiesParameters);
        fake_cuda_kernel(kernel.c_str(), bytes, die);
      }
      // Calls after the one that fails may be told at once.
      EXPECT_EQ(layer.update(), epcclSuccess);
      static_cast<void>(layer.dispatch());
      static_cast<void>(layer.combine());
      gpu.wait();  // not for ever
      EXPECT_EQ(epcclEpComplete(layer.handle()), epcclRemoteError);
      EXPECT_THAT(epcclGetLastError(nullptr), names_the_dead(1));
      epcclResult_t failure = epcclSuccess;
      EXPECT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
      EXPECT_EQ(failure, epcclRemoteError);
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

// The others' kernels have met its own, and wait for it to be through.
TEST_P(EpFaultsOnGpu, ARankThatDiesInAKernelIsNamedAndLetsTheStreamsGo) {
  expect_a_death_to_be_told({3}, GetParam());
}

// Of an update, a dispatch, a combine.
INSTANTIATE_TEST_SUITE_P(Kernels, EpFaultsOnGpu,
                         ::testing::Values("epccl_copies", "epccl_spread", "epccl_sum_float32"));

class EpFaultsOnGpusOfNodes : public EpFaultsOnGpu {};

// Those of its node wait for its counters, those of others for its messages.
TEST_P(EpFaultsOnGpusOfNodes, ARankThatDiesInAKernelIsNamedAndLetsTheStreamsGo) {
  expect_a_death_to_be_told({2, 1}, GetParam());
}

// Of a dispatch, a combine.
INSTANTIATE_TEST_SUITE_P(Kernels, EpFaultsOnGpusOfNodes,
                         ::testing::Values("epccl_move", "epccl_sum_float32"));

class FullGpu : public EpFaultsOnGpu {};

// What a call needs is allocated before anything waits for it, so all ranks can do it again.
TEST_P(FullGpu, IsNamedWithSizesAndTheCommunicatorStaysUsable) {
  const bool is_static = std::string(GetParam()) == "static";
  run_ranks({{2}, {}, {}}, [is_static](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const GpuArray<float> mine(gpu, std::vector<float>{1}), all(gpu, 2);
    // From here on the communicator has what it needs of the GPU.
    ASSERT_EQ(epcclAllGather(mine.data(), all.data(), 1, epcclFloat32, comm, gpu.as_epccl()), epcclSuccess);
    gpu.wait();
    PlainLayer layer(context, comm, gpu, to_everybody(context.ranks, is_static));
    const auto expect_refused = [&](epcclResult_t result) {
      EXPECT_EQ(result, epcclUnhandledDeviceError);
      EXPECT_THAT(epcclGetLastError(nullptr), ::testing::ContainsRegex("allocating [0-9]+ bytes where 0 of"));
    };
    const auto with_full_gpu = [](const auto& call) {
      fake_cuda_set("memory", fake_cuda_live("memory"));
      const epcclResult_t result = call();
      fake_cuda_set("memory", 1L << 30);
      return result;
    };
    if (is_static) expect_refused(with_full_gpu([&] { return layer.update(); }));
    ASSERT_EQ(layer.update(), epcclSuccess) << epcclGetLastError(nullptr);
    if (!is_static) expect_refused(with_full_gpu([&] { return layer.dispatch(); }));
    ASSERT_EQ(layer.dispatch(), epcclSuccess) << epcclGetLastError(nullptr);
    ASSERT_EQ(layer.combine(), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(layer.combined(), std::vector<float>(32, 2.0F * static_cast<float>(context.rank + 1)));
    EXPECT_EQ(epcclEpComplete(layer.handle()), epcclSuccess) << epcclGetLastError(nullptr);
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, FullGpu, ::testing::Values("static", "dynamic"));

// It said that it could. Rows then pass through memory of the library.
TEST(RefusingDriver, LeavesLayersAsTheyAreWhereItDoesNotShareMemoryByCudaIpc) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  fake_cuda_set("ipc_export_error",
                CUDA_ERROR_NOT_SUPPORTED);  // of the ranks, too, which begin as this process is
  run_random_layers({{{2}, {}, {}}});
  run_static_layers({{{2}, {}, {}}});
  fake_cuda_set("ipc_export_error", CUDA_SUCCESS);
}

}  // namespace
}  // namespace epccl::tests
