// Nodes that make different calls on GPU memory: an error on both, as on host memory (../ep/other_calls_test.cpp). On the double of the
// driver.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "device/kernels/launch.hpp"
#include "dispatch_tokens.hpp"
#include "gpu_copies.hpp"

namespace epccl::tests {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr size_t tokens = 4, hidden = 8, rows = 2 * tokens;

// From the hub, to which ranks have told what they call; or as one of them finds it.
const auto tells_of_different_calls =
    AnyOf(HasSubstr("ranks disagree in call"), HasSubstr("different calls"));

/// Two handles of one group, alike in all, of two nodes with a rank each. Every token goes to the other node.
struct TwoGpuHandles {
  TwoGpuHandles(const RankContext& context, epcclComm_t comm, GpuRank& on, bool is_static)
      : rank(context.rank),
        gpu(on),
        table(on, std::vector<int64_t>(tokens, 1 - context.rank)),
        input(on, std::vector<float>(tokens * hidden, 1)),
        received(on, rows * hidden),
        combined(on, tokens * hidden) {
    epcclEpGroupConfig_t config = EPCCL_EP_GROUP_CONFIG_INIT;
    config.num_experts = 2;
    config.max_send_tokens_per_rank = tokens;
    config.max_token_bytes = hidden * sizeof(float);
    expect_ok(epcclEpCreateGroup(&group, comm, &config));
    epcclEpHandleConfig_t of_handle = EPCCL_EP_HANDLE_CONFIG_INIT;
    of_handle.static_topk = is_static ? 1 : 0;
    for (epcclEpHandle_t& handle : handles)
      expect_ok(epcclEpCreateHandle(&handle, group, EPCCL_EP_LAYOUT_RANK_MAJOR, nullptr, nullptr, &of_handle,
                                    nullptr));
  }
  TwoGpuHandles(const TwoGpuHandles&) = delete;
  TwoGpuHandles& operator=(const TwoGpuHandles&) = delete;
  ~TwoGpuHandles() {
    for (const epcclEpHandle_t handle : handles) expect_ok(epcclEpHandleDestroy(handle));
    expect_ok(epcclEpGroupDestroy(group));
  }

  static void expect_ok(epcclResult_t result) {
    EXPECT_EQ(result, epcclSuccess) << epcclGetLastError(nullptr);
  }
  epcclResult_t complete(int which, epcclResult_t issued) const {
    return issued != epcclSuccess ? issued : epcclEpComplete(handles[which]);
  }
  epcclResult_t update(int which) {
    Tensor topk(epcclInt64, table.data(), {tokens, 1});
    return complete(which, epcclEpUpdateHandle(handles[which], topk, nullptr, gpu.as_epccl()));
  }
  epcclResult_t update_both() {
    const epcclResult_t first = update(0);
    return first != epcclSuccess ? first : update(1);
  }
  epcclResult_t dispatch(int which) {
    Tensor in(epcclFloat32, input.data(), {tokens, hidden}),
        out(epcclFloat32, received.data(), {rows, hidden});
    return complete(which, dispatch_tokens(handles[which], in, out, false, gpu.as_epccl()));
  }
  epcclResult_t combine(int which) {
    Tensor in(epcclFloat32, received.data(), {rows, hidden}),
        out(epcclFloat32, combined.data(), {tokens, hidden});
    epcclEpCombineInputs_t given = EPCCL_EP_COMBINE_INPUTS_INIT;
    given.tokens = in;
    epcclEpCombineOutputs_t taken = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    taken.tokens = out;
    return complete(which, epcclEpCombine(handles[which], &given, &taken, nullptr, gpu.as_epccl()));
  }

  const int rank;
  GpuRank& gpu;
  const GpuArray<int64_t> table;
  const GpuArray<float> input, received, combined;
  epcclEpGroup_t group = nullptr;
  epcclEpHandle_t handles[2] = {};
};

/// By kernels, and by way of the host; in dynamic and in static mode.
void in_all_ways(const std::function<void(const RankContext&, Comm&, TwoGpuHandles&)>& test) {
  for (const char* engine : {"auto", "never"})
    for (const bool is_static : {false, true})
      run_ranks({{1, 1}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [&](const RankContext& context) {
        SCOPED_TRACE(fmt::format("rank {}, engine {}, static: {}", context.rank, engine, is_static));
        GpuRank gpu;
        Comm comm(context);
        ASSERT_EQ(epcclCommSetCopyEngine(comm, engine), epcclSuccess);
        TwoGpuHandles handles(context, comm, gpu, is_static);
        ASSERT_EQ(handles.update_both(), epcclSuccess) << epcclGetLastError(nullptr);
        context.meet();  // who is through may fail others that are not
        test(context, comm, handles);
      });
}

void expect_different_calls(const std::function<epcclResult_t(TwoGpuHandles&)>& call) {
  in_all_ways([&](const RankContext& context, Comm& comm, TwoGpuHandles& handles) {
    EXPECT_NE(call(handles), epcclSuccess);
    EXPECT_THAT(epcclGetLastError(nullptr), tells_of_different_calls);
    context.meet();  // an abort is told, too
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  });
}

TEST(EpOtherGpuCalls, ANodeThatTakesAnotherHandleGetsNoTokens) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  expect_different_calls([](TwoGpuHandles& handles) { return handles.dispatch(handles.rank); });
  expect_different_calls([](TwoGpuHandles& handles) { return handles.combine(handles.rank); });
}

TEST(EpOtherGpuCalls, ADispatchIsNoCombine) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  expect_different_calls(
      [](TwoGpuHandles& handles) { return handles.rank == 1 ? handles.combine(0) : handles.dispatch(0); });
}

TEST(EpOtherGpuCalls, UpdatesOfDifferentHandlesAreToldByAllAndNothingIsLost) {
  if (device::kernels::bytes_of(device::kernels::Image::layout).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  in_all_ways([](const RankContext& context, const Comm&, TwoGpuHandles& handles) {
    EXPECT_NE(handles.update(context.rank), epcclSuccess);
    EXPECT_THAT(epcclGetLastError(nullptr),
                HasSubstr("ranks disagree on the EP handle: rank 0 updates handle 2, rank 1 handle 3"));
    ASSERT_EQ(handles.update_both(), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(handles.dispatch(0), epcclSuccess) << epcclGetLastError(nullptr);
  });
}

}  // namespace
}  // namespace epccl::tests
