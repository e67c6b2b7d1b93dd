// ep.h: argument checks, then one call inward.
#include <utility>

#include "api/ep/ep_calls.hpp"
#include "api/handles/arguments.hpp"
#include "api/handles/last_error.hpp"
#include "base/settings.hpp"
#include "ep/handle/complete_rules.hpp"
#include "ep/routing/expert_map.hpp"

namespace epccl::api {
namespace {

Result<ep::GroupOptions> read_options(const epcclEpGroupConfig_t* given) {
  if (given == nullptr)
    return error(Code::invalid_argument, "config is NULL: num_experts and the limits are needed");
  const epcclEpGroupConfig_t defaults = EPCCL_EP_GROUP_CONFIG_INIT;
  EPCCL_ASSIGN(const epcclEpGroupConfig_t config, read_struct("config", given, defaults));
  ep::GroupOptions options;
  options.experts = config.num_experts;
  // What cannot be a number of experts says nothing of how long the array is; it is refused on all ranks alike.
  if (config.expert_to_rank != nullptr && config.num_experts <= ep::ExpertMap::most_experts)
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
  EPCCL_TRY(check_no_ep_in_group());
  std::shared_ptr<ep::Group> made;
  EPCCL_TRY(run_ep(communicator, [&](Status& agreed) -> Status {
    EPCCL_ASSIGN(made, ep::Group::create(*communicator, options, agreed));
    return {};
  }));
  *out = add_ep_group(std::make_shared<EpGroup>(std::move(made), communicator, comm));
  return {};
}

static_assert(static_cast<int>(ep::SlotLayout::expert_major) == EPCCL_EP_LAYOUT_EXPERT_MAJOR &&
              static_cast<int>(ep::SlotLayout::rank_major) == EPCCL_EP_LAYOUT_RANK_MAJOR &&
              static_cast<int>(ep::SlotLayout::flat) == EPCCL_EP_LAYOUT_FLAT);

Result<ep::SlotRules> read_rules(epcclEpLayout_t layout, const epcclEpHandleConfig_t* given,
                                 const ep::Group& group) {
  const epcclEpHandleConfig_t defaults = EPCCL_EP_HANDLE_CONFIG_INIT;
  EPCCL_ASSIGN(const epcclEpHandleConfig_t config, read_struct("config", given, defaults));
  const int value = layout;
  if (value < EPCCL_EP_LAYOUT_EXPERT_MAJOR || value > EPCCL_EP_LAYOUT_FLAT)
    return error(Code::invalid_argument, "layout {} is unknown", value);
  ep::SlotRules rules;
  rules.layout = static_cast<ep::SlotLayout>(value);
  rules.alignment = std::max(config.dispatch_output_per_expert_alignment, 1U);
  rules.capacity = config.max_tokens_per_expert;
  rules.pad = config.pad_to_capacity != 0;
  rules.max_topk = config.static_topk;
  rules.undefined_padding = config.undefined_padding != 0;
  EPCCL_TRY(ep::complete_rules(rules, group));
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

Status get_stats(epcclEpHandle_t handle, epcclEpStats_t* out) {
  EPCCL_ASSIGN(const EpHandlePtr target, find_usable_ep_handle(handle));
  if (out == nullptr) return {Code::invalid_argument, "stats is NULL"};
  const epcclEpStats_t defaults = EPCCL_EP_STATS_INIT;
  EPCCL_ASSIGN(epcclEpStats_t stats, read_struct("stats", out, defaults));
  ep::Handle& of = *target->handle;
  EPCCL_TRY(routing_failure(of));
  EPCCL_TRY(of.need_lists());
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
  write_sized(out, stats);
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
    EPCCL_ASSIGN(const EpHandlePtr target, find_usable_ep_handle(handle));
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
