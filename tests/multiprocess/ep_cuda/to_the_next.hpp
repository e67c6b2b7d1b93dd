// A handle whose tokens all go to the next rank, on GPU memory.
#pragma once

#include "dispatch_tokens.hpp"
#include "gpu_copies.hpp"

namespace epccl::tests {

/// Every token goes to the next rank; a handle that has this routing.
class ToTheNext {
 public:
  static constexpr size_t tokens = 4, hidden = 8;

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
    if (handle_ == nullptr) return;
    EXPECT_EQ(epcclEpComplete(handle_), epcclSuccess);
    end();
  }
  /// Without waiting for its calls.
  void end() {
    EXPECT_EQ(epcclEpHandleDestroy(handle_), epcclSuccess);
    EXPECT_EQ(epcclEpGroupDestroy(group_), epcclSuccess);
    handle_ = nullptr;
  }

  epcclEpHandle_t handle() const { return handle_; }
  epcclResult_t dispatch(void* from, void* to, epcclStream_t stream, bool send_only = false) {
    Tensor in(epcclFloat32, from, {tokens, hidden}), out(epcclFloat32, to, {tokens, hidden});
    return dispatch_tokens(handle_, in, out, send_only, stream);
  }
  /// Of rows as a dispatch brings them.
  epcclResult_t combine(void* rows, void* to, epcclStream_t stream) {
    Tensor in(epcclFloat32, rows, {tokens, hidden}), out(epcclFloat32, to, {tokens, hidden});
    epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    outputs.tokens = out;
    return epcclEpCombine(handle_, &inputs, &outputs, nullptr, stream);
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

}  // namespace epccl::tests
