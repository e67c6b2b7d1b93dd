#include "layer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace epccl::tests {
namespace {

constexpr float held_before = -96;  // what no token is, in rows that a dispatch has not written

}  // namespace

Layer::Layer(const RankContext& context, epcclComm_t comm, const Problem& problem, epcclStream_t stream,
             OtherMemory* memory)
    : context_(context), stream_(stream), memory_(memory) {
  epcclEpGroupConfig_t group_config = EPCCL_EP_GROUP_CONFIG_INIT;
  group_config.num_experts = problem.experts;
  group_config.expert_to_rank = problem.owner.data();
  group_config.max_send_tokens_per_rank = problem.max_tokens;
  group_config.max_token_bytes = problem.hidden * bytes_of(problem.type);
  group_config.strategy = problem.strategy;
  expect_ok(epcclEpCreateGroup(&group_, comm, &group_config));
  epcclEpHandleConfig_t config = EPCCL_EP_HANDLE_CONFIG_INIT;
  config.dispatch_output_per_expert_alignment = problem.alignment;
  config.max_tokens_per_expert = problem.capacity;
  config.pad_to_capacity = problem.pad ? 1 : 0;
  config.undefined_padding = problem.undefined_padding ? 1 : 0;
  config.static_topk = problem.is_static ? problem.k : 0;
  expect_ok(epcclEpCreateHandle(&handle_, group_, problem.layout, nullptr, nullptr, &config, stream_));
  take(problem);
}

void Layer::take(const Problem& problem) {
  problem_ = problem;
  expected_.emplace(problem_);
  row_expert_.assign(rows(), -1);
  row_weight_.assign(rows(), 0);
  input_ = Numbers(problem_.type, size_t{tokens()} * problem_.hidden);
  received_ = Numbers(problem_.type, size_t{rows()} * problem_.hidden);
  combined_ = Numbers(problem_.type, size_t{tokens()} * problem_.hidden);
  received_weights_.assign(rows() * size_t{problem_.by_expert() ? 1 : problem_.k}, 0);
  home_weights_.assign(size_t{tokens()} * problem_.k, -1);
  received_topk_.assign(size_t{rows()} * problem_.k, 77);
  for (uint32_t token = 0; token < tokens(); ++token)
    for (uint32_t h = 0; h < problem_.hidden; ++h)
      input_.set(size_t{token} * problem_.hidden + h, token_value(context_.rank, token, h));
  for (int source = 0; source < problem_.ranks(); ++source)
    for (size_t at = 0; at < problem_.topk[static_cast<size_t>(source)].size(); ++at) {
      const int64_t expert = problem_.topk[static_cast<size_t>(source)][at];
      const auto token = static_cast<uint32_t>(at / problem_.k),
                 position = static_cast<uint32_t>(at % problem_.k);
      const uint32_t row = expected_->slot(source, token, position);
      if (row == Expected::none || problem_.owner[static_cast<size_t>(expert)] != context_.rank) continue;
      row_expert_[row] = expert;
      row_weight_[row] = problem_.weights[static_cast<size_t>(source)][at];
    }
}

void Layer::expect_ok(epcclResult_t result) const {
  EXPECT_EQ(result, epcclSuccess) << "rank " << context_.rank << ": " << epcclGetLastError(nullptr);
}

Layer::~Layer() {
  expect_ok(epcclEpHandleDestroy(handle_));
  expect_ok(epcclEpGroupDestroy(group_));
}

void Layer::finish(epcclResult_t result, bool send_only) {
  expect_ok(result);
  if (send_only) expect_ok(epcclEpComplete(handle_));
  if (memory_ != nullptr)
    memory_->take_back();
  else if (stream_ != nullptr)
    expect_ok(epcclStreamSynchronize(stream_));
}

Tensor Layer::tensor(epcclDataType_t type, void* data, std::vector<size_t> shape) const {
  const size_t bytes = std::accumulate(shape.begin(), shape.end(), bytes_of(type), std::multiplies<>());
  return Tensor(type, memory_ != nullptr ? memory_->place(data, bytes) : data, std::move(shape));
}

void Layer::update() {
  const auto local_experts = problem_.experts_of(context_.rank);
  auto table = problem_.topk[static_cast<size_t>(context_.rank)];
  std::vector<int32_t> narrow(table.begin(), table.end());
  const bool wide = (problem_.k + static_cast<uint32_t>(context_.rank)) % 2 == 0;
  // A rank without tokens may not know K, unless all are.
  const bool knows_k = tokens() > 0 || std::ranges::max(problem_.tokens) == 0;
  Tensor topk =
      tensor(wide ? epcclInt64 : epcclInt32, wide ? static_cast<void*>(table.data()) : narrow.data(),
             {tokens(), knows_k ? problem_.k : 1});
  std::vector<int64_t> counters(local_experts.size(), -1), sources(static_cast<size_t>(problem_.ranks()), -1);
  std::vector<int32_t> offsets(local_experts.size(), -1), lost(local_experts.size(), -1), total(1, -1);
  std::vector<uint8_t> dropped(table.size(), 9);
  Tensor counters_tensor = tensor(epcclInt64, counters.data(), {counters.size()});
  Tensor offsets_tensor = tensor(epcclInt32, offsets.data(), {offsets.size()});
  Tensor sources_tensor = tensor(epcclInt64, sources.data(), {sources.size()});
  Tensor total_tensor = tensor(epcclInt32, total.data(), {1});
  Tensor lost_tensor = tensor(epcclInt32, lost.data(), {lost.size()});
  Tensor dropped_tensor = tensor(epcclUint8, dropped.data(), {tokens(), problem_.k});
  epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
  info.expert_counters = counters_tensor;
  info.expert_offsets = offsets_tensor;
  info.src_rank_counters = sources_tensor;
  info.recv_total_counter = total_tensor;
  info.dropped_counters = lost_tensor;
  info.dropped = dropped_tensor;
  finish(epcclEpUpdateHandle(handle_, topk, &info, stream_), false);

  EXPECT_EQ(total[0], static_cast<int32_t>(rows()));
  for (size_t i = 0; i < local_experts.size(); ++i) {
    EXPECT_EQ(counters[i], expected_->kept(local_experts[i])) << "expert " << local_experts[i];
    EXPECT_EQ(lost[i], static_cast<int32_t>(expected_->dropped(local_experts[i])));
    if (problem_.by_expert()) {
      EXPECT_EQ(offsets[i], static_cast<int32_t>(expected_->offset(local_experts[i])));
    }
  }
  for (int source = 0; !problem_.by_expert() && source < problem_.ranks(); ++source)
    EXPECT_EQ(sources[static_cast<size_t>(source)],
              std::ranges::count(expected_->origins(context_.rank), source, &Expected::Origin::source));
  for (size_t at = 0; at < table.size(); ++at) {
    const uint32_t row = expected_->slot(context_.rank, static_cast<uint32_t>(at / problem_.k),
                                         static_cast<uint32_t>(at % problem_.k));
    EXPECT_EQ(dropped[at] != 0, table[at] >= 0 && row == Expected::none);
  }
}

void Layer::dispatch(bool weighted, bool send_only) {
  for (size_t i = 0; i < size_t{rows()} * problem_.hidden; ++i) received_.set(i, held_before);
  auto weights = problem_.weights[static_cast<size_t>(context_.rank)];
  Tensor tokens_in = tensor(problem_.type, input_.data(), {tokens(), problem_.hidden});
  Tensor weights_in = tensor(epcclFloat32, weights.data(), {tokens(), problem_.k});
  Tensor tokens_out = tensor(problem_.type, received_.data(), {rows(), problem_.hidden});
  Tensor weights_out =
      tensor(epcclFloat32, received_weights_.data(),
             problem_.by_expert() ? std::vector<size_t>{rows()} : std::vector<size_t>{rows(), problem_.k});
  Tensor topk_out = tensor(epcclInt32, received_topk_.data(), {rows(), problem_.k});
  epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
  inputs.tokens = tokens_in;
  inputs.topk_weights = weights_in;
  epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
  outputs.tokens = tokens_out;
  outputs.topk_weights = weights_out;
  outputs.topk_idx = topk_out;
  epcclEpDispatchConfig_t config = EPCCL_EP_DISPATCH_CONFIG_INIT;
  config.weighted = weighted ? 1 : 0;
  config.send_only = send_only ? 1 : 0;
  finish(epcclEpDispatch(handle_, &inputs, &outputs, &config, stream_), send_only);
  check_received(weighted);
  check_received_topk();
}

void Layer::check_received(bool weighted) {
  size_t wrong = 0;
  padding_changed_ = 0;
  for (uint32_t row = 0; row < rows(); ++row) {
    const auto origin = expected_->origins(context_.rank)[row];
    if (origin.source < 0 && problem_.by_expert() && problem_.undefined_padding) {
      for (uint32_t h = 0; h < problem_.hidden; ++h)
        padding_changed_ += received_.at(size_t{row} * problem_.hidden + h) != held_before ? 1 : 0;
      continue;
    }
    const bool is_left = origin.source < 0 && problem_.layout == EPCCL_EP_LAYOUT_RANK_MAJOR;
    for (uint32_t h = 0; h < problem_.hidden; ++h) {
      float value = is_left             ? held_before
                    : origin.source < 0 ? 0
                                        : token_value(origin.source, origin.token, h);
      if (weighted && !is_left) value = rounded(problem_.type, value * weight_of_row(row)) + 0.0F;
      const float got = received_.at(size_t{row} * problem_.hidden + h);
      if (got == value) continue;
      if (wrong++ == 0)
        ADD_FAILURE() << "rank " << context_.rank << " row " << row << " element " << h << " is " << got
                      << ", not " << value << " of rank " << origin.source << " token " << origin.token;
    }
  }
  EXPECT_EQ(wrong, 0U);
}

void Layer::check_received_topk() {
  const auto local_experts = problem_.experts_of(context_.rank);
  for (uint32_t row = 0; row < rows(); ++row) {
    const auto origin = expected_->origins(context_.rank)[row];
    for (uint32_t position = 0; position < problem_.k; ++position) {
      int32_t local = -1;
      float weight = 0;
      if (origin.source >= 0 && expected_->slot(origin.source, origin.token, position) == row) {
        const size_t at = size_t{origin.token} * problem_.k + position;
        const int64_t expert = problem_.topk[static_cast<size_t>(origin.source)][at];
        if (problem_.owner[static_cast<size_t>(expert)] == context_.rank) {
          local = static_cast<int32_t>(std::ranges::find(local_experts, static_cast<uint32_t>(expert)) -
                                       local_experts.begin());
          weight = problem_.weights[static_cast<size_t>(origin.source)][at];
        }
      }
      ASSERT_EQ(received_topk_[size_t{row} * problem_.k + position], local)
          << "rank " << context_.rank << " row " << row << " position " << position;
      if (!problem_.by_expert()) {
        ASSERT_EQ(received_weights_[size_t{row} * problem_.k + position], weight);
      }
    }
    if (problem_.by_expert()) {
      ASSERT_EQ(received_weights_[row], weight_of_row(row));
    }
  }
}

void Layer::apply_experts() {
  for (uint32_t row = 0; row < rows(); ++row) {
    if (expert_of_row(row) < 0) continue;
    for (uint32_t h = 0; h < problem_.hidden; ++h) {
      const size_t at = size_t{row} * problem_.hidden + h;
      received_.set(at, expected_->processed(expert_of_row(row), received_.at(at)));
    }
  }
}

void Layer::combine(bool weighted, bool send_only) {
  Tensor tokens_in = tensor(problem_.type, received_.data(), {rows(), problem_.hidden});
  Tensor weights_in =
      tensor(epcclFloat32, received_weights_.data(),
             problem_.by_expert() ? std::vector<size_t>{rows()} : std::vector<size_t>{rows(), problem_.k});
  Tensor tokens_out = tensor(problem_.type, combined_.data(), {tokens(), problem_.hidden});
  Tensor weights_out = tensor(epcclFloat32, home_weights_.data(), {tokens(), problem_.k});
  epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
  inputs.tokens = tokens_in;
  inputs.topk_weights = weights_in;
  epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
  outputs.tokens = tokens_out;
  outputs.topk_weights = weights_out;
  epcclEpCombineConfig_t config = EPCCL_EP_COMBINE_CONFIG_INIT;
  config.weighted = weighted ? 1 : 0;
  config.send_only = send_only ? 1 : 0;
  finish(epcclEpCombine(handle_, &inputs, &outputs, &config, stream_), send_only);
}

void Layer::check_combined(bool weighted) {
  size_t wrong = 0;
  for (uint32_t token = 0; token < tokens(); ++token)
    for (uint32_t h = 0; h < problem_.hidden; ++h) {
      const float want = expected_->combined(context_.rank, token, h, weighted);
      const float got = combined_.at(size_t{token} * problem_.hidden + h);
      if (got == want) continue;
      if (wrong++ == 0)
        ADD_FAILURE() << "rank " << context_.rank << " token " << token << " element " << h << " is " << got
                      << ", not " << want;
    }
  EXPECT_EQ(wrong, 0U);
  // Every weight went to its expert and comes home again.
  for (size_t at = 0; at < home_weights_.size(); ++at) {
    const uint32_t row = expected_->slot(context_.rank, static_cast<uint32_t>(at / problem_.k),
                                         static_cast<uint32_t>(at % problem_.k));
    EXPECT_EQ(home_weights_[at],
              row == Expected::none ? 0 : problem_.weights[static_cast<size_t>(context_.rank)][at]);
  }
}

void Layer::forward(bool weighted, bool send_only) {
  dispatch(false, send_only);
  apply_experts();
  combine(weighted, send_only);
  check_combined(weighted);
}

void Layer::backward() {
  dispatch(true, false);
}

void Layer::check_stats() {
  epcclEpStats_t stats = EPCCL_EP_STATS_INIT;
  expect_ok(epcclEpGetStats(handle_, &stats));
  if (problem_.strategy != EPCCL_EP_STRATEGY_AUTO) {
    EXPECT_EQ(stats.strategy, problem_.strategy);
  }
  EXPECT_EQ(stats.tokens_network, expected_->network_rows(context_.rank, stats.strategy));
  const uint64_t row_bytes = problem_.hidden * bytes_of(problem_.type) + problem_.k * sizeof(float);
  EXPECT_EQ(stats.dispatch_bytes_network, stats.tokens_network * row_bytes);
}

}  // namespace epccl::tests
