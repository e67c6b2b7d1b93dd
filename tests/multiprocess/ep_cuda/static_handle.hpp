// A handle of static mode on GPU memory, and all that it gives for one routing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../api/ranks.hpp"
#include "gpu_copies.hpp"

namespace epccl::tests {

using Bytes = std::vector<std::byte>;

/// What a rank gets of one routing, from the counters to the tokens that come back.
struct Outcome {
  std::vector<int32_t> counters, offsets, lost, total;
  std::vector<int64_t> sources;
  std::vector<uint8_t> dropped;
  Bytes received, combined;
  std::vector<int64_t> topk;
  std::vector<float> weights, home;

  bool operator==(const Outcome&) const = default;
};

/// One handle of static mode, on GPU memory.
class StaticHandle {
 public:
  StaticHandle(const RankContext& context, epcclComm_t comm, GpuRank& gpu, const Problem& problem)
      : context_(context), comm_(comm), gpu_(gpu) {
    epcclEpGroupConfig_t group = EPCCL_EP_GROUP_CONFIG_INIT;
    group.num_experts = problem.experts;
    group.expert_to_rank = problem.owner.data();
    group.max_send_tokens_per_rank = problem.max_tokens;
    group.max_token_bytes = problem.hidden * bytes_of(problem.type);
    group.strategy = problem.strategy;
    expect_ok(epcclEpCreateGroup(&group_, comm, &group));
    epcclEpHandleConfig_t config = EPCCL_EP_HANDLE_CONFIG_INIT;
    config.dispatch_output_per_expert_alignment = problem.alignment;
    config.max_tokens_per_expert = problem.capacity;
    config.static_topk = problem.k;
    expect_ok(epcclEpCreateHandle(&handle_, group_, problem.layout, nullptr, nullptr, &config, nullptr));
  }
  StaticHandle(const StaticHandle&) = delete;
  StaticHandle& operator=(const StaticHandle&) = delete;
  ~StaticHandle() {
    expect_ok(epcclEpHandleDestroy(handle_));
    expect_ok(epcclEpGroupDestroy(group_));
  }

  epcclEpHandle_t handle() const { return handle_; }

  /// `engine`: who makes the calls. Counters are GPU memory, or the host's.
  Outcome run(const Problem& problem, const char* engine, bool counters_on_host) {
    expect_ok(epcclCommSetCopyEngine(comm_, engine));
    Outcome outcome;
    GpuCopies memory(gpu_);
    update(problem, counters_on_host ? nullptr : &memory, outcome);
    move(problem, memory, outcome);
    return outcome;
  }

  epcclResult_t update(const GpuArray<int64_t>& table, size_t tokens, size_t k) {
    Tensor topk(epcclInt64, table.data(), {tokens, k});
    return epcclEpUpdateHandle(handle_, topk, nullptr, gpu_.as_epccl());
  }

 private:
  static void expect_ok(epcclResult_t result) {
    EXPECT_EQ(result, epcclSuccess) << epcclGetLastError(nullptr);
  }
  template <typename T>
  static Tensor tensor(OtherMemory* memory, epcclDataType_t type, std::vector<T>& data,
                       std::vector<size_t> shape) {
    void* const place = memory != nullptr ? memory->place(data.data(), data.size() * sizeof(T)) : data.data();
    return Tensor(type, place, std::move(shape));
  }
  size_t tokens(const Problem& problem) const { return problem.tokens[static_cast<size_t>(context_.rank)]; }

  void update(const Problem& problem, OtherMemory* memory, Outcome& outcome) {
    GpuCopies of_table(gpu_);
    std::vector<int64_t> table = problem.topk[static_cast<size_t>(context_.rank)];
    const size_t experts = problem.experts_of(context_.rank).size(),
                 ranks = static_cast<size_t>(problem.ranks());
    outcome.counters.assign(experts, -9);
    outcome.offsets.assign(experts, -9);
    outcome.lost.assign(experts, -9);
    outcome.sources.assign(ranks, -9);
    outcome.total.assign(1, -9);
    outcome.dropped.assign(table.size(), 9);
    Tensor topk = tensor(&of_table, epcclInt64, table, {tokens(problem), problem.k});
    Tensor counters = tensor(memory, epcclInt32, outcome.counters, {experts}),
           offsets = tensor(memory, epcclInt32, outcome.offsets, {experts}),
           lost = tensor(memory, epcclInt32, outcome.lost, {experts}),
           sources = tensor(memory, epcclInt64, outcome.sources, {ranks}),
           total = tensor(memory, epcclInt32, outcome.total, {1}),
           dropped = tensor(memory, epcclUint8, outcome.dropped, {tokens(problem), problem.k});
    epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
    info.expert_counters = counters;
    info.expert_offsets = offsets;
    info.dropped_counters = lost;
    info.src_rank_counters = sources;
    info.recv_total_counter = total;
    info.dropped = dropped;
    expect_ok(epcclEpUpdateHandle(handle_, topk, &info, gpu_.as_epccl()));
    expect_ok(epcclEpComplete(handle_));
    if (memory != nullptr) memory->take_back();
    of_table.take_back();
  }

  /// A dispatch, and a combine of what it brought. Rows that nothing is written to keep their poison.
  void move(const Problem& problem, OtherMemory& memory, Outcome& outcome) {
    const size_t rows = static_cast<size_t>(outcome.total[0]), hidden = problem.hidden, k = problem.k,
                 row_bytes = hidden * bytes_of(problem.type), width = problem.by_expert() ? 1 : k;
    Numbers input(problem.type, tokens(problem) * hidden);
    for (size_t i = 0; i < tokens(problem) * hidden; ++i)
      input.set(i, token_value(context_.rank, static_cast<uint32_t>(i / hidden),
                               static_cast<uint32_t>(i % hidden)));
    std::vector<float> weights = problem.weights[static_cast<size_t>(context_.rank)];
    outcome.received.assign(rows * row_bytes, std::byte{0x5a});
    outcome.topk.assign(rows * k, 77);
    outcome.weights.assign(rows * width, -7);
    outcome.combined.assign(tokens(problem) * row_bytes, std::byte{0x5a});
    outcome.home.assign(tokens(problem) * k, -7);
    Tensor from(problem.type, memory.place(input.data(), tokens(problem) * row_bytes),
                {tokens(problem), hidden});
    Tensor to(problem.type, memory.place(outcome.received.data(), outcome.received.size()), {rows, hidden});
    Tensor weights_in = tensor(&memory, epcclFloat32, weights, {tokens(problem), k});
    Tensor weights_out =
        tensor(&memory, epcclFloat32, outcome.weights,
               problem.by_expert() ? std::vector<size_t>{rows} : std::vector<size_t>{rows, k});
    Tensor topk_out = tensor(&memory, epcclInt64, outcome.topk, {rows, k});
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    inputs.tokens = from;
    inputs.topk_weights = weights_in;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = to;
    outputs.topk_weights = weights_out;
    outputs.topk_idx = topk_out;
    expect_ok(epcclEpDispatch(handle_, &inputs, &outputs, nullptr, gpu_.as_epccl()));
    Tensor back(problem.type, memory.place(outcome.combined.data(), outcome.combined.size()),
                {tokens(problem), hidden});
    Tensor home = tensor(&memory, epcclFloat32, outcome.home, {tokens(problem), k});
    epcclEpCombineInputs_t given = EPCCL_EP_COMBINE_INPUTS_INIT;
    given.tokens = to;
    given.topk_weights = weights_out;
    epcclEpCombineOutputs_t taken = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    taken.tokens = back;
    taken.topk_weights = home;
    epcclEpCombineConfig_t how = EPCCL_EP_COMBINE_CONFIG_INIT;
    how.weighted = problem.by_expert() ? 1 : 0;
    expect_ok(epcclEpCombine(handle_, &given, &taken, &how, gpu_.as_epccl()));
    expect_ok(epcclEpComplete(handle_));
    memory.take_back();
  }

  const RankContext& context_;
  epcclComm_t comm_;
  GpuRank& gpu_;
  epcclEpGroup_t group_ = nullptr;
  epcclEpHandle_t handle_ = nullptr;
};

}  // namespace epccl::tests
