#include "graph_layer.hpp"

#include <algorithm>
#include <cstring>
#include <random>

namespace epccl::tests {

StepHandle::StepHandle(const Problem& problem, epcclComm_t comm) {
  epcclEpGroupConfig_t group = EPCCL_EP_GROUP_CONFIG_INIT;
  group.num_experts = problem.experts;
  group.expert_to_rank = problem.owner.data();
  group.max_send_tokens_per_rank = problem.max_tokens;
  group.max_token_bytes = (problem.hidden + (problem.hidden + 127) / 128) * sizeof(float);
  group.strategy = problem.strategy;
  EXPECT_EQ(epcclEpCreateGroup(&group_, comm, &group), epcclSuccess) << epcclGetLastError(nullptr);
  epcclEpHandleConfig_t config = EPCCL_EP_HANDLE_CONFIG_INIT;
  config.dispatch_output_per_expert_alignment = problem.alignment;
  config.max_tokens_per_expert = problem.capacity;
  config.static_topk = problem.k;
  EXPECT_EQ(epcclEpCreateHandle(&handle_, group_, problem.layout, nullptr, nullptr, &config, nullptr),
            epcclSuccess)
      << epcclGetLastError(nullptr);
}

StepHandle::~StepHandle() {
  EXPECT_EQ(epcclEpHandleDestroy(handle_), epcclSuccess);
  EXPECT_EQ(epcclEpGroupDestroy(group_), epcclSuccess);
}

namespace {

size_t rows_of(const Problem& problem, int rank) {
  if (!problem.by_expert()) return problem.max_tokens * static_cast<size_t>(problem.ranks());
  const size_t zone = (problem.capacity + problem.alignment - 1) / problem.alignment * problem.alignment;
  return zone * problem.experts_of(rank).size();
}

size_t scales_of(const Problem& problem) {
  return (problem.hidden + 127) / 128;
}

template <typename T>
std::vector<std::byte> bytes_of_all(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> numbers_in(const GpuBytes& memory) {
  const std::vector<std::byte> bytes = memory.get();
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

}  // namespace

StaticStep::StaticStep(const RankContext& context, const GpuRank& gpu, const Problem& problem,
                       uint32_t tokens, GpuMemoryKind kind)
    : context_(context),
      gpu_(gpu),
      problem_(problem),
      kind_(kind),
      tokens_(tokens),
      experts_(problem.experts_of(context.rank).size()),
      rows_(rows_of(problem, context.rank)),
      row_bytes_(problem.hidden * bytes_of(problem.type)),
      table_(gpu, kind, tokens_ * problem.k * sizeof(int64_t)),
      input_(gpu, kind, tokens_ * row_bytes_),
      weights_(gpu, kind, tokens_ * problem.k * sizeof(float)),
      experts_out_(gpu, kind, rows_ * row_bytes_),
      gradients_(gpu, kind, rows_ * weights_of_a_row() * sizeof(float)),
      counters_(add("expert_counters", experts_ * sizeof(int32_t))),
      offsets_(add("expert_offsets", experts_ * sizeof(int64_t))),
      lost_(add("dropped_counters", experts_ * sizeof(int32_t))),
      sources_(add("src_rank_counters", ranks() * sizeof(int64_t))),
      total_(add("recv_total_counter", sizeof(int32_t))),
      dropped_(add("dropped", tokens_ * problem.k)),
      received_(add("received rows", rows_ * row_bytes_)),
      received_weights_(add("received weights", rows_ * weights_of_a_row() * sizeof(float))),
      received_topk_(add("received topk_idx", rows_ * problem.k * sizeof(int64_t))),
      float8_(add("float8 rows", rows_ * problem.hidden)),
      scales_(add("scales", rows_ * scales_of(problem) * sizeof(float))),
      combined_(add("combined tokens", tokens_ * row_bytes_)),
      backward_(add("rows of the backward dispatch", rows_ * row_bytes_)),
      home_tokens_(add("tokens of the backward combine", tokens_ * row_bytes_)),
      home_weights_(add("weights that came home", tokens_ * problem.k * sizeof(float))) {}

const GpuBytes& StaticStep::add(const char* name, size_t bytes) {
  return *results_.emplace_back(Named{name, std::make_unique<GpuBytes>(gpu_, kind_, bytes)}).bytes;
}

void StaticStep::put(const GpuBytes& to, std::vector<std::byte> bytes) {
  on_their_way_.push_back(std::move(bytes));
  to.put(on_their_way_.back());
}

void StaticStep::fill(uint64_t round, int bad_token, int64_t bad) {
  on_their_way_.clear();
  put_inputs(round, bad_token, bad);
  for (const Named& result : results_)
    put(*result.bytes, std::vector<std::byte>(result.bytes->bytes(), std::byte{0x5a}));
  EXPECT_EQ(cuStreamSynchronize(gpu_.stream()), CUDA_SUCCESS);
}

void StaticStep::put_inputs(uint64_t round, int bad_token, int64_t bad) {
  std::mt19937_64 random(round * 1000 + static_cast<uint64_t>(context_.rank));
  std::vector<int64_t> table;
  for (size_t i = 0; i < tokens_ * problem_.k; ++i)
    table.push_back(random() % 5 == 0 ? -1 : static_cast<int64_t>(random() % problem_.experts));
  if (bad_token >= 0) table[static_cast<size_t>(bad_token) * problem_.k] = bad;
  std::vector<float> weights;
  for (size_t i = 0; i < table.size(); ++i) weights.push_back(static_cast<float>(random() % 1000) / 512);
  const auto numbers = [&](size_t count) {
    Numbers made(problem_.type, count);
    for (size_t i = 0; i < count; ++i) made.set(i, static_cast<float>(random() % 256) / 64 - 1.5F);
    const auto* begin = static_cast<const std::byte*>(made.data());
    return std::vector<std::byte>(begin, begin + count * bytes_of(problem_.type));
  };
  put(table_, bytes_of_all(table));
  put(weights_, bytes_of_all(weights));
  put(input_, numbers(tokens_ * problem_.hidden));
  std::vector<float> gradients;
  for (size_t i = 0; i < rows_ * weights_of_a_row(); ++i)
    gradients.push_back(static_cast<float>(random() % 1000) / 256);
  put(gradients_, bytes_of_all(gradients));
}

void StaticStep::update(epcclEpHandle_t handle) {
  Tensor topk = tensor(table_, epcclInt64, {tokens_, problem_.k});
  Tensor counters = tensor(counters_, epcclInt32, {experts_}),
         offsets = tensor(offsets_, epcclInt64, {experts_}), lost = tensor(lost_, epcclInt32, {experts_}),
         sources = tensor(sources_, epcclInt64, {ranks()}), total = tensor(total_, epcclInt32, {1}),
         dropped = tensor(dropped_, epcclUint8, {tokens_, problem_.k});
  epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
  info.expert_counters = counters;
  info.expert_offsets = offsets;
  info.dropped_counters = lost;
  info.src_rank_counters = sources;
  info.recv_total_counter = total;
  info.dropped = dropped;
  expect_ok(epcclEpUpdateHandle(handle, topk, &info, gpu_.as_epccl()));
}

void StaticStep::dispatch(epcclEpHandle_t handle) {
  dispatch_as_float8(handle);
  dispatch_rows(handle, input_, received_, false);
}

void StaticStep::dispatch_rows(epcclEpHandle_t handle, const GpuBytes& from, const GpuBytes& to,
                               bool weighted) {
  Tensor in = tensor(from, problem_.type, {tokens_, problem_.hidden}),
         out = tensor(to, problem_.type, {rows_, problem_.hidden}),
         weights = tensor(weights_, epcclFloat32, {tokens_, problem_.k}),
         weights_out = tensor(
             received_weights_, epcclFloat32,
             problem_.by_expert() ? std::vector<size_t>{rows_} : std::vector<size_t>{rows_, problem_.k}),
         topk_out = tensor(received_topk_, epcclInt64, {rows_, problem_.k});
  epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
  inputs.tokens = in;
  inputs.topk_weights = weights;
  epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
  outputs.tokens = out;
  outputs.topk_weights = weights_out;
  outputs.topk_idx = topk_out;
  epcclEpDispatchConfig_t config = EPCCL_EP_DISPATCH_CONFIG_INIT;
  config.weighted = weighted ? 1 : 0;
  expect_ok(epcclEpDispatch(handle, &inputs, &outputs, &config, gpu_.as_epccl()));
}

void StaticStep::dispatch_as_float8(epcclEpHandle_t handle) {
  Tensor in = tensor(input_, problem_.type, {tokens_, problem_.hidden}),
         out = tensor(float8_, epcclFloat8e4m3, {rows_, problem_.hidden}),
         scales = tensor(scales_, epcclFloat32, {rows_, scales_of(problem_)});
  epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
  inputs.tokens = in;
  epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
  outputs.tokens = out;
  outputs.scales = scales;
  expect_ok(epcclEpDispatch(handle, &inputs, &outputs, nullptr, gpu_.as_epccl()));
}

void StaticStep::combine(epcclEpHandle_t handle) {
  experts_out_.copy_from(received_);
  combine_rows(handle, experts_out_, combined_, problem_.by_expert(), false);
  dispatch_rows(handle, combined_, backward_, problem_.by_expert());
  combine_rows(handle, backward_, home_tokens_, false, true);
}

void StaticStep::combine_rows(epcclEpHandle_t handle, const GpuBytes& from, const GpuBytes& to, bool weighted,
                              bool with_weights) {
  Tensor in = tensor(from, problem_.type, {rows_, problem_.hidden}),
         out = tensor(to, problem_.type, {tokens_, problem_.hidden}),
         weights = tensor(
             gradients_, epcclFloat32,
             problem_.by_expert() ? std::vector<size_t>{rows_} : std::vector<size_t>{rows_, problem_.k}),
         home = tensor(home_weights_, epcclFloat32, {tokens_, problem_.k});
  epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
  inputs.tokens = in;
  epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
  outputs.tokens = out;
  if (with_weights) {
    inputs.topk_weights = weights;
    outputs.topk_weights = home;
  }
  epcclEpCombineConfig_t config = EPCCL_EP_COMBINE_CONFIG_INIT;
  config.weighted = weighted ? 1 : 0;
  expect_ok(epcclEpCombine(handle, &inputs, &outputs, &config, gpu_.as_epccl()));
}

std::string StaticStep::difference(const StaticStep& other) const {
  std::string names;
  for (size_t i = 0; i < results_.size(); ++i)
    if (results_[i].bytes->get() != other.results_[i].bytes->get())
      names += (names.empty() ? "" : ", ") + std::string(results_[i].name);
  return names;
}

std::vector<int32_t> StaticStep::expert_counters() const {
  return numbers_in<int32_t>(counters_);
}

std::vector<float> StaticStep::home_weights() const {
  return numbers_in<float>(home_weights_);
}

}  // namespace epccl::tests
