// placement.h, what needs no communicator.
#include <array>
#include <cmath>

#include "api/device/which_device.hpp"
#include "api/ep/ep_arguments.hpp"
#include "api/handles/last_error.hpp"
#include "ep/placement/placement.hpp"
#include "ep/placement/slot_choice.hpp"
#include "epccl/placement.h"

namespace epccl::api {
namespace {

struct Placed {
  topology::Cluster cluster;
  ep::PlacementRules rules;
  size_t slots() const {
    return static_cast<size_t>(cluster.ranks()) * static_cast<size_t>(rules.slots_per_rank);
  }
};

Result<Placed> read_config(const epcclEpPlacementConfig_t* given) {
  if (given == nullptr) return error(Code::invalid_argument, "config is NULL");
  const epcclEpPlacementConfig_t defaults = EPCCL_EP_PLACEMENT_CONFIG_INIT;
  EPCCL_ASSIGN(const epcclEpPlacementConfig_t config, read_struct("config", given, defaults));
  if (config.num_ranks < 1 || config.num_ranks > ep::most_slots)
    return error(Code::invalid_argument, "num_ranks is {}: 1 to {} can be", config.num_ranks, ep::most_slots);
  for (const auto& [name, value] :
       {std::pair("num_experts", config.num_experts), std::pair("slots_per_rank", config.slots_per_rank),
        std::pair("num_expert_groups", config.num_expert_groups)})
    if (value > ep::most_slots)
      return error(Code::invalid_argument, "{} is {}: at most {} can be", name, value, ep::most_slots);
  std::vector<uint64_t> nodes(config.num_ranks);
  if (config.rank_to_node != nullptr) std::copy_n(config.rank_to_node, config.num_ranks, nodes.begin());
  EPCCL_ASSIGN(topology::Cluster cluster, topology::Cluster::from_host_ids(nodes));
  ep::PlacementRules rules;
  rules.experts = static_cast<int>(config.num_experts);
  rules.slots_per_rank = static_cast<int>(config.slots_per_rank);
  rules.groups = static_cast<int>(std::max(1U, config.num_expert_groups));
  rules.tolerance = config.tolerance;
  if (config.max_moves != UINT32_MAX) rules.max_moves = config.max_moves;
  EPCCL_TRY(check_rules(cluster, rules));
  return Placed{std::move(cluster), rules};
}

Status check_load(std::span<const double> load) {
  double sum = 0;
  for (size_t expert = 0; expert < load.size(); ++expert) {
    if (!(load[expert] >= 0) || !std::isfinite(load[expert]))
      return error(Code::invalid_argument, "load of expert {} is {}", expert, load[expert]);
    sum += load[expert];
  }
  if (!std::isfinite(sum)) return {Code::invalid_argument, "the loads' sum is not finite"};
  return {};
}

double ratio(const ep::Balance& balance) {
  return balance.mean > 0 ? balance.fullest / balance.mean : 0;
}

Status place(const epcclEpPlacementConfig_t* config, const double* load, const int* before, int* after,
             epcclEpPlacementInfo_t* out) {
  EPCCL_ASSIGN(const Placed of, read_config(config));
  if (load == nullptr) return {Code::invalid_argument, "load is NULL"};
  if (after == nullptr) return {Code::invalid_argument, "after is NULL"};
  const epcclEpPlacementInfo_t nothing = EPCCL_EP_PLACEMENT_INFO_INIT;
  EPCCL_ASSIGN(epcclEpPlacementInfo_t info, read_struct("info", out, nothing));
  const std::span loads(load, static_cast<size_t>(of.rules.experts));
  EPCCL_TRY(check_load(loads));
  const std::vector<int> was(before, before == nullptr ? nullptr : before + of.slots());
  if (before != nullptr) EPCCL_TRY(check_placement(of.cluster, of.rules, was));
  EPCCL_ASSIGN(const std::vector<int> made, place_experts(of.cluster, of.rules, loads, was));
  std::ranges::copy(made, after);
  if (out == nullptr) return {};
  info.balance_before = was.empty() ? 0 : ratio(balance_of(of.cluster, of.rules, loads, was));
  info.balance_after = ratio(balance_of(of.cluster, of.rules, loads, made));
  const ep::Moves moves = was.empty() ? ep::Moves{} : moves_between(of.cluster, of.rules, was, made);
  info.moves = static_cast<unsigned>(moves.all);
  info.moves_network = static_cast<unsigned>(moves.network);
  write_sized(out, info);
  return {};
}

template <typename Index>
Status pick(ep::SlotChooser& chooser, const Tensor& experts, const Tensor& slots) {
  const size_t entries = experts.rows() * experts.columns();
  return chooser.choose(std::span(static_cast<const Index*>(experts.data), entries),
                        std::span(static_cast<Index*>(slots.data), entries));
}

Status pick_slots(const epcclEpPlacementConfig_t* config, const int* placement, int rank,
                  epcclEpSlotChoice_t choice, const epcclEpTensor_t* topk_idx,
                  const epcclEpTensor_t* slot_idx) {
  EPCCL_ASSIGN(const Placed of, read_config(config));
  if (placement == nullptr) return {Code::invalid_argument, "placement is NULL"};
  const std::span slots(placement, of.slots());
  EPCCL_TRY(check_placement(of.cluster, of.rules, slots));
  if (rank < 0 || rank >= of.cluster.ranks())
    return error(Code::invalid_argument, "rank is {}, of {}", rank, of.cluster.ranks());
  const int value = choice;
  if (value != EPCCL_EP_SLOTS_EVEN && value != EPCCL_EP_SLOTS_NEAR)
    return error(Code::invalid_argument, "choice {} is unknown", value);
  EPCCL_ASSIGN(const Tensor experts, read_tensor("topk_idx", topk_idx, true, 2, index_types));
  EPCCL_ASSIGN(const Tensor chosen, read_tensor("slot_idx", slot_idx, true, 2, index_types));
  if (experts.sizes != chosen.sizes || experts.datatype != chosen.datatype)
    return {Code::invalid_argument, "topk_idx and slot_idx are not of one size and datatype"};
  EPCCL_TRY(need_host_memory("topk_idx", experts.address));
  EPCCL_TRY(need_host_memory("slot_idx", chosen.address));
  if (experts.address != chosen.address) EPCCL_TRY(check_apart(std::array{&experts, &chosen}, 1));
  ep::SlotChooser chooser(of.cluster, of.rules.slots_per_rank, slots, of.rules.experts, rank,
                          value == EPCCL_EP_SLOTS_NEAR ? ep::SlotChoice::near : ep::SlotChoice::even);
  return experts.datatype == epcclInt32 ? pick<int32_t>(chooser, experts, chosen)
                                        : pick<int64_t>(chooser, experts, chosen);
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclEpPlaceExperts(const epcclEpPlacementConfig_t* config, const double* load,
                                  const int* before, int* after, epcclEpPlacementInfo_t* info) {
  return guarded([&] { return place(config, load, before, after, info); });
}

epcclResult_t epcclEpPickSlots(const epcclEpPlacementConfig_t* config, const int* placement, int rank,
                               epcclEpSlotChoice_t choice, const epcclEpTensor_t* topk_idx,
                               const epcclEpTensor_t* slot_idx) {
  return guarded([&] { return pick_slots(config, placement, rank, choice, topk_idx, slot_idx); });
}
