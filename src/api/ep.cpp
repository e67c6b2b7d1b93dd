// ep.h: argument checks, then one call inward.
#include <functional>
#include <utility>

#include "api/arguments.hpp"
#include "api/ep_arguments.hpp"
#include "api/ep_handles.hpp"
#include "api/group.hpp"
#include "api/last_error.hpp"
#include "base/settings.hpp"

namespace epccl::api {
namespace {

constexpr auto index_types = {epcclInt32, epcclInt64};
constexpr auto float_types = {epcclFloat32};
constexpr auto row_types = {epcclFloat32, epcclBfloat16, epcclFloat16};
constexpr auto dispatch_types = {epcclFloat32, epcclBfloat16, epcclFloat16, epcclFloat8e4m3};

// What `work` puts into its argument is an error that all ranks have found alike; it does not break the communicator. What it
// returns does.
using Work = std::function<Status(Status& agreed)>;

Status check_no_group() {
  return in_group() ? Status(Code::invalid_usage, "EP calls cannot be part of a group") : Status{};
}

// `timeout_ms`: of the EP group, or 0. `progress`: of a call that others wait for, or null.
Status run(CommPtr communicator, device::HostStream* stream, uint32_t timeout_ms, const Work& work,
           std::shared_ptr<runtime::CallProgress> progress = nullptr) {
  EPCCL_TRY(check_no_group());
  auto agreed = std::make_shared<Status>();
  const auto conclude = [agreed, progress = std::move(progress)](Status status) {
    if (status.ok()) status = *agreed;
    if (progress != nullptr) progress->finish(status);
    return status;
  };
  return submit({std::move(communicator), stream, [agreed, work] { return work(*agreed); }, timeout_ms * 1e-3,
                 conclude});
}

Result<ep::GroupOptions> read_options(const epcclEpGroupConfig_t* given) {
  if (given == nullptr)
    return error(Code::invalid_argument, "config is NULL: num_experts and the limits are needed");
  const epcclEpGroupConfig_t defaults = EPCCL_EP_GROUP_CONFIG_INIT;
  EPCCL_ASSIGN(const epcclEpGroupConfig_t config, read_struct("config", given, defaults));
  ep::GroupOptions options;
  options.experts = config.num_experts;
  if (config.expert_to_rank != nullptr)
    options.expert_to_rank.assign(config.expert_to_rank, config.expert_to_rank + config.num_experts);
  options.max_tokens = config.max_send_tokens_per_rank;
  options.max_token_bytes = config.max_token_bytes;
  options.timeout_ms = config.timeout_ms;
  switch (static_cast<int>(config.strategy)) {
    case EPCCL_EP_STRATEGY_AUTO: {
      EPCCL_ASSIGN(options.strategy, ep::parse_strategy(settings::get("EPCCL_EP_STRATEGY")));
      break;
    }
    case EPCCL_EP_STRATEGY_FLAT:
      options.strategy = ep::Strategy::flat;
      break;
    case EPCCL_EP_STRATEGY_GATHER:
      options.strategy = ep::Strategy::gather;
      break;
    case EPCCL_EP_STRATEGY_DEDUP:
      options.strategy = ep::Strategy::dedup;
      break;
    default:
      return error(Code::invalid_argument, "strategy {} is unknown", static_cast<int>(config.strategy));
  }
  return options;
}

Status create_group(epcclEpGroup_t* out, epcclComm_t comm, const epcclEpGroupConfig_t* config) {
  if (out == nullptr) return {Code::invalid_argument, "group is NULL"};
  *out = nullptr;
  EPCCL_ASSIGN(const CommPtr communicator, find_usable_communicator(comm));
  EPCCL_ASSIGN(const ep::GroupOptions options, read_options(config));
  std::shared_ptr<ep::Group> made;
  EPCCL_TRY(run(communicator, nullptr, 0, [&](Status& agreed) -> Status {
    EPCCL_ASSIGN(made, ep::Group::create(communicator, options, agreed));
    return {};
  }));
  *out = add_ep_group(std::make_shared<EpGroup>(EpGroup{std::move(made), comm}));
  return {};
}

/// Tensors that receive a handle's counters.
struct Counters {
  Tensor expert_counters, expert_offsets, src_rank_counters, recv_total, dropped_counters, dropped;
};

Status check_size(const char* what, const Tensor& tensor, size_t size) {
  if (!tensor.given || tensor.rows() * tensor.columns() == size) return {};
  return error(Code::invalid_argument, "{} has {} elements: {} are needed", what,
               tensor.rows() * tensor.columns(), size);
}

Result<Counters> read_counters(const epcclEpLayoutInfo_t* given, const ep::Group& group, const Tensor& topk) {
  const epcclEpLayoutInfo_t defaults = EPCCL_EP_LAYOUT_INFO_INIT;
  EPCCL_ASSIGN(const epcclEpLayoutInfo_t info, read_struct("layout_info", given, defaults));
  Counters counters;
  EPCCL_ASSIGN(counters.expert_counters,
               read_tensor("expert_counters", info.expert_counters, false, 1, index_types));
  EPCCL_ASSIGN(counters.expert_offsets,
               read_tensor("expert_offsets", info.expert_offsets, false, 1, index_types));
  EPCCL_ASSIGN(counters.src_rank_counters,
               read_tensor("src_rank_counters", info.src_rank_counters, false, 1, index_types));
  EPCCL_ASSIGN(counters.recv_total,
               read_tensor("recv_total_counter", info.recv_total_counter, false, 1, index_types));
  EPCCL_ASSIGN(counters.dropped_counters,
               read_tensor("dropped_counters", info.dropped_counters, false, 1, index_types));
  EPCCL_ASSIGN(counters.dropped, read_tensor("dropped", info.dropped, false, 2, {epcclUint8}));
  const uint32_t experts = group.experts().count(group.rank());
  EPCCL_TRY(check_size("expert_counters", counters.expert_counters, experts));
  EPCCL_TRY(check_size("expert_offsets", counters.expert_offsets, experts));
  EPCCL_TRY(check_size("src_rank_counters", counters.src_rank_counters,
                       static_cast<size_t>(group.cluster().ranks())));
  EPCCL_TRY(check_size("recv_total_counter", counters.recv_total, 1));
  EPCCL_TRY(check_size("dropped_counters", counters.dropped_counters, experts));
  EPCCL_TRY(check_size("dropped", counters.dropped, topk.rows() * topk.columns()));
  return counters;
}

void put(const Tensor& tensor, size_t index, uint64_t value) {
  if (!tensor.given) return;
  if (tensor.datatype == epcclInt64)
    static_cast<int64_t*>(tensor.data)[index] = static_cast<int64_t>(value);
  else
    static_cast<int32_t*>(tensor.data)[index] = static_cast<int32_t>(value);
}

void write_counters(const ep::Handle& handle, const Counters& counters) {
  const ep::Group& group = handle.group();
  const ep::NodeSlots& slots = handle.node_slots();
  const uint32_t first = group.experts().first(group.rank()), capacity = handle.rules().capacity;
  for (uint32_t i = 0; i < group.experts().count(group.rank()); ++i) {
    const uint32_t entries = slots.entries(first + i),
                   kept = capacity > 0 ? std::min(entries, capacity) : entries;
    put(counters.expert_counters, i, kept);
    put(counters.expert_offsets, i, slots.by_expert() ? slots.zone_begin(first + i) : 0);
    put(counters.dropped_counters, i, entries - kept);
  }
  for (size_t source = 0; source < handle.sources().size(); ++source)
    put(counters.src_rank_counters, source, handle.sources()[source].rank_tokens[handle.local()]);
  put(counters.recv_total, 0, handle.slots());
  if (!counters.dropped.given) return;
  auto* out = static_cast<uint8_t*>(counters.dropped.data);
  std::fill_n(out, counters.dropped.rows() * counters.dropped.columns(), uint8_t{0});
  std::ranges::copy(handle.dropped(), out);
}

Status update(const EpHandle& target, const epcclEpTensor_t* topk_idx, const epcclEpLayoutInfo_t* info,
              epcclStream_t stream) {
  EPCCL_ASSIGN(device::HostStream * queue, find_stream(stream));
  EPCCL_ASSIGN(const Tensor tensor, read_tensor("topk_idx", topk_idx, true, 2, index_types));
  if (tensor.rows() > UINT32_MAX || tensor.columns() > UINT32_MAX)
    return error(Code::invalid_argument, "topk_idx is [{}, {}]", tensor.rows(), tensor.columns());
  EPCCL_ASSIGN(const Counters counters, read_counters(info, *target.group->group, tensor));
  const bool wide = tensor.datatype == epcclInt64;
  ep::TopK topk{tensor.data, wide, static_cast<uint32_t>(tensor.rows()),
                static_cast<uint32_t>(tensor.columns())};
  // Background work reads its own copy: the caller's table is free again when this returns.
  std::shared_ptr<std::vector<std::byte>> copy;
  if (queue != nullptr) {
    const auto* begin = static_cast<const std::byte*>(tensor.data);
    copy = std::make_shared<std::vector<std::byte>>(
        begin, begin + tensor.rows() * tensor.columns() * (wide ? 8 : 4));
    topk.data = copy->data();
  }
  const auto work = [handle = target.handle, topk, counters, copy](Status& agreed) -> Status {
    EPCCL_TRY(handle->update(topk));
    agreed = handle->failure();
    if (agreed.ok()) write_counters(*handle, counters);
    return {};
  };
  return run(target.communicator(), queue, target.handle->group().options().timeout_ms, work);
}

Status make_static(ep::SlotRules& rules) {
  constexpr uint64_t most_entries =
      1 << 20;  // of a rank: every rank receives them, and has tables several times as large
  if (rules.max_topk > ep::max_topk)
    return error(Code::invalid_argument, "static_topk {}: at most {} experts a token", rules.max_topk,
                 ep::max_topk);
  if (uint64_t{rules.max_topk} * rules.max_tokens > most_entries)
    return error(Code::invalid_argument,
                 "static_topk {} with max_send_tokens_per_rank {}: tables of more than {} entries",
                 rules.max_topk, rules.max_tokens, most_entries);
  if (rules.layout == ep::SlotLayout::flat)
    return {Code::invalid_argument,
            "static mode needs the rank-major or the expert-major layout: the flat one has no fixed size"};
  if (rules.layout == ep::SlotLayout::expert_major && rules.capacity == 0)
    return {Code::invalid_argument, "static mode in the expert-major layout needs max_tokens_per_expert"};
  rules.pad = rules.capacity > 0;
  return {};
}

Result<ep::SlotRules> read_rules(epcclEpLayout_t layout, const epcclEpHandleConfig_t* given,
                                 const ep::Group& group) {
  const epcclEpHandleConfig_t defaults = EPCCL_EP_HANDLE_CONFIG_INIT;
  EPCCL_ASSIGN(const epcclEpHandleConfig_t config, read_struct("config", given, defaults));
  const int value = layout;
  if (value < EPCCL_EP_LAYOUT_EXPERT_MAJOR || value > EPCCL_EP_LAYOUT_FLAT)
    return error(Code::invalid_argument, "layout {} is unknown", value);
  ep::SlotRules rules;
  rules.layout = static_cast<ep::SlotLayout>(value);
  rules.max_tokens = group.options().max_tokens;
  rules.alignment = std::max(config.dispatch_output_per_expert_alignment, 1U);
  rules.capacity = config.max_tokens_per_expert;
  rules.pad = config.pad_to_capacity != 0;
  rules.max_topk = config.static_topk;
  if (rules.layout != ep::SlotLayout::expert_major && (rules.alignment > 1 || rules.capacity > 0))
    return Status(Code::invalid_argument,
                  "an alignment or a capacity of experts needs the expert-major layout");
  if (rules.pad && rules.capacity == 0)
    return Status(Code::invalid_argument, "pad_to_capacity without max_tokens_per_expert");
  if (rules.max_topk > 0) EPCCL_TRY(make_static(rules));
  return rules;
}

Status create_handle(epcclEpHandle_t* out, epcclEpGroup_t group, epcclEpLayout_t layout,
                     const epcclEpTensor_t* topk_idx, const epcclEpLayoutInfo_t* info,
                     const epcclEpHandleConfig_t* config, epcclStream_t stream) {
  if (out == nullptr) return {Code::invalid_argument, "handle is NULL"};
  *out = nullptr;
  EPCCL_ASSIGN(EpGroupPtr of, find_ep_group(group));
  EPCCL_ASSIGN(const ep::SlotRules rules, read_rules(layout, config, *of->group));
  auto made = std::make_shared<EpHandle>();
  made->handle = std::make_shared<ep::Handle>(of->group, rules);
  made->group = std::move(of);
  if (topk_idx != nullptr) EPCCL_TRY(update(*made, topk_idx, info, stream));
  *out = add_ep_handle(std::move(made));
  return {};
}

// The stream a call runs on: the caller's, or with send_only one of the handle's own.
Result<device::HostStream*> stream_of(EpHandle& handle, epcclStream_t stream, bool send_only) {
  EPCCL_ASSIGN(device::HostStream * queue, find_stream(stream));
  if (!send_only) return queue;
  if (queue != nullptr)
    return Status(Code::invalid_argument, "send_only with a created stream: that is asynchronous as it is");
  return handle.background_stream();
}

// Runs a dispatch or combine, unless the handle's last update failed, which every rank knows alike.
template <typename Call>
Status transfer(EpHandle& target, device::HostStream* queue, Call call,
                Status (*move)(ep::Handle&, const Call&)) {
  EPCCL_TRY(check_no_group());
  std::shared_ptr<runtime::CallProgress> progress;
  if (queue != nullptr) progress = target.started.add(*queue);
  call.progress = progress.get();
  const auto work = [handle = target.handle, call, move](Status& agreed) -> Status {
    if (!handle->failure().ok()) {
      agreed = Status(handle->failure()).with_context("the handle has no valid routing");
      return {};
    }
    return move(*handle, call);
  };
  return run(target.communicator(), queue, target.handle->group().options().timeout_ms, work,
             std::move(progress));
}

template <typename T>
T* data_of(const Tensor& tensor) {
  return tensor.given ? static_cast<T*>(tensor.data) : nullptr;
}

Status dispatch(epcclEpHandle_t handle, const epcclEpDispatchInputs_t* inputs,
                const epcclEpDispatchOutputs_t* outputs, const epcclEpDispatchConfig_t* config,
                epcclStream_t stream) {
  EPCCL_ASSIGN(const EpHandlePtr target, find_ep_handle(handle));
  const epcclEpDispatchInputs_t no_inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
  const epcclEpDispatchOutputs_t no_outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
  const epcclEpDispatchConfig_t defaults = EPCCL_EP_DISPATCH_CONFIG_INIT;
  EPCCL_ASSIGN(const auto in, read_struct("inputs", inputs, no_inputs));
  EPCCL_ASSIGN(const auto out, read_struct("outputs", outputs, no_outputs));
  EPCCL_ASSIGN(const auto options, read_struct("config", config, defaults));
  EPCCL_ASSIGN(device::HostStream * queue, stream_of(*target, stream, options.send_only != 0));

  EPCCL_ASSIGN(const Tensor tokens, read_tensor("inputs.tokens", in.tokens, true, 2, dispatch_types));
  EPCCL_ASSIGN(const Tensor weights,
               read_tensor("inputs.topk_weights", in.topk_weights, false, 2, float_types));
  EPCCL_ASSIGN(const Tensor scales, read_tensor("inputs.scales", in.scales, false, 2, float_types));
  EPCCL_ASSIGN(const Tensor received, read_tensor("outputs.tokens", out.tokens, true, 2, dispatch_types));
  EPCCL_ASSIGN(const Tensor received_topk,
               read_tensor("outputs.topk_idx", out.topk_idx, false, 2, index_types));
  EPCCL_ASSIGN(const Tensor received_scales,
               read_tensor("outputs.scales", out.scales, false, 2, float_types));
  const bool by_expert = target->handle->rules().layout == ep::SlotLayout::expert_major;
  EPCCL_ASSIGN(const Tensor received_weights,
               read_tensor("outputs.topk_weights", out.topk_weights, false, by_expert ? 1 : 2, float_types));
  if (tokens.columns() == 0 || tokens.columns() != received.columns())
    return error(Code::invalid_argument, "tokens have {} elements, rows of the output {}", tokens.columns(),
                 received.columns());

  ep::DispatchCall call;
  call.tokens = tokens.data;
  call.type = element_of(tokens.datatype);
  call.token_rows = tokens.rows();
  call.hidden = tokens.columns();
  call.weights = {data_of<float>(weights), weights.rows(), weights.columns()};
  call.scales = {data_of<float>(scales), scales.rows(), scales.columns()};
  call.received = received.data;
  call.received_rows = received.rows();
  call.received_type = element_of(received.datatype);
  call.received_weights = {data_of<float>(received_weights), received_weights.rows(),
                           received_weights.columns()};
  call.received_scales = {data_of<float>(received_scales), received_scales.rows(), received_scales.columns()};
  call.received_topk = {data_of<void>(received_topk), received_topk.rows(), received_topk.columns()};
  call.received_topk_wide = received_topk.datatype == epcclInt64;
  call.weighted = options.weighted != 0;
  return transfer(*target, queue, call, ep::dispatch);
}

Status combine(epcclEpHandle_t handle, const epcclEpCombineInputs_t* inputs,
               const epcclEpCombineOutputs_t* outputs, const epcclEpCombineConfig_t* config,
               epcclStream_t stream) {
  EPCCL_ASSIGN(const EpHandlePtr target, find_ep_handle(handle));
  const epcclEpCombineInputs_t no_inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
  const epcclEpCombineOutputs_t no_outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
  const epcclEpCombineConfig_t defaults = EPCCL_EP_COMBINE_CONFIG_INIT;
  EPCCL_ASSIGN(const auto in, read_struct("inputs", inputs, no_inputs));
  EPCCL_ASSIGN(const auto out, read_struct("outputs", outputs, no_outputs));
  EPCCL_ASSIGN(const auto options, read_struct("config", config, defaults));
  EPCCL_ASSIGN(device::HostStream * queue, stream_of(*target, stream, options.send_only != 0));

  const bool by_expert = target->handle->rules().layout == ep::SlotLayout::expert_major;
  EPCCL_ASSIGN(const Tensor tokens, read_tensor("inputs.tokens", in.tokens, true, 2, row_types));
  EPCCL_ASSIGN(const Tensor weights,
               read_tensor("inputs.topk_weights", in.topk_weights, false, by_expert ? 1 : 2, float_types));
  EPCCL_ASSIGN(const Tensor combined, read_tensor("outputs.tokens", out.tokens, true, 2, row_types));
  EPCCL_ASSIGN(const Tensor combined_weights,
               read_tensor("outputs.topk_weights", out.topk_weights, false, 2, float_types));
  if (tokens.columns() == 0 || tokens.columns() != combined.columns() || tokens.datatype != combined.datatype)
    return error(Code::invalid_argument, "rows of {} {} cannot be combined into tokens of {} {}",
                 tokens.columns(), datatype_name(tokens.datatype), combined.columns(),
                 datatype_name(combined.datatype));

  ep::CombineCall call;
  call.tokens = tokens.data;
  call.token_rows = tokens.rows();
  call.type = element_of(tokens.datatype);
  call.hidden = tokens.columns();
  call.weights = {data_of<float>(weights), weights.rows(), weights.columns()};
  call.combined = combined.data;
  call.combined_rows = combined.rows();
  call.combined_weights = {data_of<float>(combined_weights), combined_weights.rows(),
                           combined_weights.columns()};
  call.weighted = options.weighted != 0;
  return transfer(*target, queue, call, ep::combine);
}

Status get_stats(epcclEpHandle_t handle, epcclEpStats_t* out) {
  EPCCL_ASSIGN(const EpHandlePtr target, find_ep_handle(handle));
  if (out == nullptr) return {Code::invalid_argument, "stats is NULL"};
  const epcclEpStats_t defaults = EPCCL_EP_STATS_INIT;
  EPCCL_ASSIGN(epcclEpStats_t stats, read_struct("stats", out, defaults));
  const ep::Handle& of = *target->handle;
  if (!of.failure().ok()) return Status(of.failure()).with_context("the handle has no valid routing");
  const ep::LinkTraffic traffic = of.traffic();
  const auto strategy = of.strategy();
  stats.strategy = strategy == ep::Strategy::flat     ? EPCCL_EP_STRATEGY_FLAT
                   : strategy == ep::Strategy::gather ? EPCCL_EP_STRATEGY_GATHER
                                                      : EPCCL_EP_STRATEGY_DEDUP;
  stats.tokens_local = traffic.tokens_local;
  stats.tokens_node = traffic.tokens_node;
  stats.tokens_network = traffic.tokens_network;
  stats.dispatch_bytes_local = traffic.tokens_local * of.dispatch_row_bytes;
  stats.dispatch_bytes_node = traffic.tokens_node * of.dispatch_row_bytes;
  stats.dispatch_bytes_network = traffic.tokens_network * of.dispatch_row_bytes;
  stats.combine_bytes_network = traffic.returned_network * of.combine_row_bytes;
  write_struct(out, stats);
  return {};
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclEpCreateGroup(epcclEpGroup_t* group, epcclComm_t comm,
                                 const epcclEpGroupConfig_t* config) {
  return guarded([&] { return create_group(group, comm, config); });
}

epcclResult_t epcclEpGroupDestroy(epcclEpGroup_t group) {
  return guarded([&] { return remove_ep_group(group); });
}

epcclResult_t epcclEpCreateHandle(epcclEpHandle_t* handle, epcclEpGroup_t group, epcclEpLayout_t layout,
                                  const epcclEpTensor_t* topk_idx, const epcclEpLayoutInfo_t* layout_info,
                                  const epcclEpHandleConfig_t* config, epcclStream_t stream) {
  return guarded([&] { return create_handle(handle, group, layout, topk_idx, layout_info, config, stream); });
}

epcclResult_t epcclEpUpdateHandle(epcclEpHandle_t handle, const epcclEpTensor_t* topk_idx,
                                  const epcclEpLayoutInfo_t* layout_info, epcclStream_t stream) {
  return guarded([&]() -> epccl::Status {
    EPCCL_ASSIGN(const EpHandlePtr target, find_ep_handle(handle));
    return update(*target, topk_idx, layout_info, stream);
  });
}

epcclResult_t epcclEpHandleDestroy(epcclEpHandle_t handle) {
  return guarded([&] { return remove_ep_handle(handle).take_status(); });
}

epcclResult_t epcclEpDispatch(epcclEpHandle_t handle, const epcclEpDispatchInputs_t* inputs,
                              const epcclEpDispatchOutputs_t* outputs, const epcclEpDispatchConfig_t* config,
                              epcclStream_t stream) {
  return guarded([&] { return dispatch(handle, inputs, outputs, config, stream); });
}

epcclResult_t epcclEpCombine(epcclEpHandle_t handle, const epcclEpCombineInputs_t* inputs,
                             const epcclEpCombineOutputs_t* outputs, const epcclEpCombineConfig_t* config,
                             epcclStream_t stream) {
  return guarded([&] { return combine(handle, inputs, outputs, config, stream); });
}

epcclResult_t epcclEpGetStats(epcclEpHandle_t handle, epcclEpStats_t* stats) {
  return guarded([&] { return get_stats(handle, stats); });
}
