// A small exchange to do wrong, or to stop half way, through the C API.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layer.hpp"

namespace epccl::tests {

/// Four experts, top-2, four tokens of eight floats on every rank, the same ones.
struct Setting {
  explicit Setting(const RankContext& rank, epcclComm_t communicator) : context(rank), comm(communicator) {
    config.num_experts = 4;
    config.max_send_tokens_per_rank = 4;
    config.max_token_bytes = 32;
  }
  void make_group() {
    ASSERT_EQ(epcclEpCreateGroup(&group, comm, &config), epcclSuccess) << epcclGetLastError(nullptr);
  }
  epcclResult_t make_handle(size_t tokens, size_t k, epcclEpLayout_t layout = EPCCL_EP_LAYOUT_FLAT) {
    Tensor topk(epcclInt64, table.data(), {tokens, k});
    return epcclEpCreateHandle(&handle, group, layout, topk, nullptr, &handle_config, nullptr);
  }
  epcclResult_t make_handle_without_routing() {
    return epcclEpCreateHandle(&handle, group, EPCCL_EP_LAYOUT_FLAT, nullptr, nullptr, nullptr, nullptr);
  }
  epcclResult_t update(size_t tokens, size_t k) {
    Tensor topk(epcclInt64, table.data(), {tokens, k});
    return epcclEpUpdateHandle(handle, topk, nullptr, nullptr);
  }
  epcclResult_t dispatch(size_t rows, size_t hidden, bool with_weights = false) {
    return dispatch(rows, hidden, with_weights, false, nullptr);
  }
  /// With send_only, or on a stream.
  epcclResult_t start_dispatch(epcclStream_t stream = nullptr) {
    return dispatch(100, 8, false, stream == nullptr, stream);
  }
  epcclResult_t start_combine() {
    Tensor in(epcclFloat32, output.data(), {100, 8}), out(epcclFloat32, combined.data(), {4, 8});
    epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    outputs.tokens = out;
    epcclEpCombineConfig_t how = EPCCL_EP_COMBINE_CONFIG_INIT;
    how.send_only = 1;
    return epcclEpCombine(handle, &inputs, &outputs, &how, nullptr);
  }
  epcclResult_t dispatch(size_t rows, size_t hidden, bool with_weights, bool send_only,
                         epcclStream_t stream) {
    Tensor in(epcclFloat32, input.data(), {4, hidden}), out(epcclFloat32, output.data(), {rows, hidden});
    Tensor weights_in(epcclFloat32, weights.data(), {4, 2});
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    inputs.tokens = in;
    if (with_weights) inputs.topk_weights = weights_in;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = out;
    epcclEpDispatchConfig_t how = EPCCL_EP_DISPATCH_CONFIG_INIT;
    how.send_only = send_only ? 1 : 0;
    return epcclEpDispatch(handle, &inputs, &outputs, &how, stream);
  }
  /// To an output of `type`, of which nothing is read.
  epcclResult_t dispatch_with_scales(epcclDataType_t type, bool with_scales) {
    Tensor in(epcclFloat32, input.data(), {4, 8}), out(type, output.data(), {16, 8});
    Tensor scales_out(epcclFloat32, scales.data(), {16, 1});
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = out;
    if (with_scales) outputs.scales = scales_out;
    return epcclEpDispatch(handle, &inputs, &outputs, nullptr, nullptr);
  }
  void destroy() {
    if (handle != nullptr) {
      EXPECT_EQ(epcclEpHandleDestroy(handle), epcclSuccess);
    }
    EXPECT_EQ(epcclEpGroupDestroy(group), epcclSuccess);
  }

  const RankContext& context;
  epcclComm_t comm;
  epcclEpGroupConfig_t config = EPCCL_EP_GROUP_CONFIG_INIT;
  epcclEpHandleConfig_t handle_config = EPCCL_EP_HANDLE_CONFIG_INIT;
  epcclEpGroup_t group = nullptr;
  epcclEpHandle_t handle = nullptr;
  std::vector<int64_t> table{0, 1, 2, 3, 0, 2, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0};
  std::vector<float> input = std::vector<float>(1000, 1), output = std::vector<float>(1000),
                     combined = std::vector<float>(32), weights = std::vector<float>(8, 1),
                     scales = std::vector<float>(16);
};

inline void expect_error(const RankContext& context, epcclResult_t result, const std::string& part) {
  EXPECT_NE(result, epcclSuccess) << "rank " << context.rank;
  EXPECT_NE(std::string(epcclGetLastError(nullptr)).find(part), std::string::npos)
      << "rank " << context.rank << ": \"" << epcclGetLastError(nullptr) << "\" does not say \"" << part
      << '"';
}

}  // namespace epccl::tests
