#include "ep/routing_plans.hpp"

namespace epccl::ep {

void RoutingPlans::use(algorithms::TokenExchange exchange, uint32_t turn_blocks, bool keep) {
  exchange_ = std::move(exchange);
  turn_blocks_ = turn_blocks;
  device_plans_.forget(keep);
  if (keep) return;
  dispatch_plans_.clear();
  combine_plans_.clear();
}

algorithms::TokenParameters RoutingPlans::parameters(uint64_t row_bytes) const {
  const auto& config = group_.communicator().config().parameters;
  algorithms::TokenParameters parameters;
  parameters.row_bytes = row_bytes;
  parameters.scratch_bytes = config.scratch_bytes;
  parameters.send_window = config.send_window;
  parameters.turn_blocks = turn_blocks_;
  return parameters;
}

plan::RankPlan RoutingPlans::build_dispatch(uint64_t row_bytes, bool contiguous_input) const {
  algorithms::TokenParameters with = parameters(row_bytes);
  with.contiguous_input = contiguous_input;
  return algorithms::build_dispatch(group_.cluster(), exchange_, group_.rank(), with);
}

plan::RankPlan RoutingPlans::build_combine(uint64_t row_bytes) const {
  return algorithms::build_combine(group_.cluster(), exchange_, group_.rank(), parameters(row_bytes));
}

void RoutingPlans::need_sums() {
  if (exchange_.sums == nullptr) add_sums_(exchange_);
}

const runtime::CompiledPlan& RoutingPlans::dispatch_plan(uint64_t row_bytes, bool contiguous_input) {
  const std::pair key{row_bytes, contiguous_input};
  if (const auto it = dispatch_plans_.find(key); it != dispatch_plans_.end()) {
    it->second.use_tables(exchange_.tables);  // in static mode a plan outlives its routing
    return it->second;
  }
  const auto plan = build_dispatch(row_bytes, contiguous_input);
  return dispatch_plans_.emplace(key, runtime::compile(plan, group_.cluster())).first->second;
}

const runtime::CompiledPlan& RoutingPlans::combine_plan(uint64_t row_bytes) {
  need_sums();
  if (const auto it = combine_plans_.find(row_bytes); it != combine_plans_.end()) {
    it->second.use_tables(exchange_.sums);
    return it->second;
  }
  const auto plan = build_combine(row_bytes);
  return combine_plans_.emplace(row_bytes, runtime::compile(plan, group_.cluster())).first->second;
}

Result<DevicePlans::Ready> RoutingPlans::dispatch_on_device(uint64_t row_bytes, bool contiguous_input,
                                                            const TablesRoom& room,
                                                            runtime::KernelCalls& kernels) {
  return device_plans_.prepare({false, row_bytes, contiguous_input}, exchange_.tables, room, kernels,
                               [&] { return build_dispatch(row_bytes, contiguous_input); });
}

Result<DevicePlans::Ready> RoutingPlans::combine_on_device(uint64_t row_bytes, const TablesRoom& room,
                                                           runtime::KernelCalls& kernels) {
  need_sums();
  return device_plans_.prepare({true, row_bytes}, exchange_.sums, room, kernels,
                               [&] { return build_combine(row_bytes); });
}

}  // namespace epccl::ep
