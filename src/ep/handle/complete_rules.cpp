#include "ep/handle/complete_rules.hpp"

#include <algorithm>
#include <cstdint>

#include "ep/handle/device_plans.hpp"
#include "ep/routing/top_k.hpp"

namespace epccl::ep {
namespace {

Status make_static(SlotRules& rules) {
  constexpr uint64_t most_entries =
      1 << 20;  // of a rank: every rank receives them, and has tables several times as large
  if (rules.max_topk > max_topk)
    return error(Code::invalid_argument, "static_topk {}: at most {} experts a token", rules.max_topk,
                 max_topk);
  if (uint64_t{rules.max_topk} * rules.max_tokens > most_entries)
    return error(Code::invalid_argument,
                 "static_topk {} with max_send_tokens_per_rank {}: tables of more than {} entries",
                 rules.max_topk, rules.max_tokens, most_entries);
  if (rules.layout == SlotLayout::flat)
    return {Code::invalid_argument,
            "static mode needs the rank-major or the expert-major layout: the flat one has no fixed size"};
  if (rules.layout == SlotLayout::expert_major && rules.capacity == 0)
    return {Code::invalid_argument, "static mode in the expert-major layout needs max_tokens_per_expert"};
  rules.pad = rules.capacity > 0;
  return {};
}

// Rows are numbered with 32 bits; half of that is left to rows beyond the padding.
Status check_zones(const SlotRules& rules, const Group& group) {
  uint64_t most = 0;
  for (int rank = 0; rank < group.communicator().ranks(); ++rank)
    most = std::max<uint64_t>(most, group.experts().count(rank));
  const uint64_t alignment = rules.alignment;
  const uint64_t zone = (std::max<uint64_t>(rules.capacity, 1) + alignment - 1) / alignment * alignment;
  if (most * zone > INT32_MAX)
    return error(
        Code::invalid_argument,
        "{} experts of a rank with {} rows each (max_tokens_per_expert {}, alignment {}) are more than "
        "{} rows",
        most, zone, rules.capacity, rules.alignment, INT32_MAX);
  return {};
}

}  // namespace

Status complete_rules(SlotRules& rules, const Group& group) {
  rules.max_tokens = group.options().max_tokens;
  if (rules.layout != SlotLayout::expert_major &&
      (rules.alignment > 1 || rules.capacity > 0 || rules.undefined_padding))
    return {Code::invalid_argument,
            "an alignment, a capacity of experts or undefined padding needs the expert-major layout"};
  if (rules.pad && rules.capacity == 0)
    return {Code::invalid_argument, "pad_to_capacity without max_tokens_per_expert"};
  if (rules.max_topk > 0) {
    EPCCL_TRY(make_static(rules));
    EPCCL_TRY(check_table_sizes(group.cluster(), rules, group.options().strategy));
  }
  return check_zones(rules, group);
}

}  // namespace epccl::ep
