#include "ep/handle/routing_plans.hpp"

namespace epccl::ep {

void RoutingPlans::use(algorithms::TokenExchange exchange, uint32_t turn_blocks, uint64_t send_window,
                       bool keep) {
  exchange_ = std::move(exchange);
  turn_blocks_ = turn_blocks;
  send_window_ = send_window;
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
  parameters.send_window = send_window_;
  parameters.turn_blocks = turn_blocks_;
  return parameters;
}

plan::RankPlan RoutingPlans::build_dispatch(const DispatchKind& kind) const {
  algorithms::TokenParameters with = parameters(kind.row_bytes);
  with.contiguous_input = kind.contiguous_input;
  with.fetch = kind.fetch;
  return algorithms::build_dispatch(group_.cluster(), exchange_, group_.rank(), with);
}

plan::RankPlan RoutingPlans::build_combine(uint64_t row_bytes) const {
  return algorithms::build_combine(group_.cluster(), exchange_, group_.rank(), parameters(row_bytes));
}

void RoutingPlans::need_sums() {
  if (exchange_.sums == nullptr) add_sums_(exchange_);
}

const runtime::CompiledPlan& RoutingPlans::dispatch_plan(const DispatchKind& kind) {
  if (kind.fetch && exchange_.fetched_tables == nullptr) add_fetched_(exchange_);
  if (const auto it = dispatch_plans_.find(kind); it != dispatch_plans_.end()) {
    // In static mode a plan outlives its routing.
    it->second.use_tables(kind.fetch ? exchange_.fetched_tables : exchange_.tables);
    return it->second;
  }
  const auto plan = build_dispatch(kind);
  return dispatch_plans_.emplace(kind, runtime::compile(plan, group_.cluster())).first->second;
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
  return device_plans_.prepare({false, row_bytes, contiguous_input}, exchange_.tables, room, kernels, [&] {
    return build_dispatch({row_bytes, contiguous_input});
  });
}

Result<DevicePlans::Ready> RoutingPlans::combine_on_device(uint64_t row_bytes, const TablesRoom& room,
                                                           runtime::KernelCalls& kernels) {
  need_sums();
  return device_plans_.prepare({true, row_bytes}, exchange_.sums, room, kernels,
                               [&] { return build_combine(row_bytes); });
}

}  // namespace epccl::ep
