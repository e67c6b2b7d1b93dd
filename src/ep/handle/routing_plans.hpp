// The plans of a handle's routing, each made when a call first asks for rows of its length.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "algorithms/ep/dispatch.hpp"
#include "base/status.hpp"
#include "ep/handle/device_plans.hpp"
#include "ep/handle/group.hpp"
#include "plan/plan.hpp"
#include "runtime/executor/compiled_plan.hpp"

namespace epccl::ep {

class RoutingPlans {
 public:
  using Add = std::function<void(algorithms::TokenExchange&)>;
  /// They add to an exchange what only combines need, and what dispatches need that fetch.
  RoutingPlans(const Group& group, Add add_sums, Add add_fetched)
      : group_(group), add_sums_(std::move(add_sums)), add_fetched_(std::move(add_fetched)) {}

  /// The routing is another. `send_window`: bytes a rank has under way to other nodes. `keep`: plans that were made serve it as well.
  void use(algorithms::TokenExchange exchange, uint32_t turn_blocks, uint64_t send_window, bool keep);
  /// On a device, kernels have made its tables, all but their counts.
  void tables_are(const runtime::TablesThere& there, DevicePlans::HandOutsOf hand_outs) {
    device_plans_.tables_are(there, std::move(hand_outs));
  }
  /// Of the routing; empty before there is one.
  const algorithms::TokenExchange& exchange() const { return exchange_; }

  /// What tells dispatches of one routing apart.
  struct DispatchKind {
    uint64_t row_bytes = 0;
    bool contiguous_input = false;
    bool fetch = false;  // see TokenParameters
    friend auto operator<=>(const DispatchKind&, const DispatchKind&) = default;
  };
  const runtime::CompiledPlan& dispatch_plan(const DispatchKind& kind);
  const runtime::CompiledPlan& combine_plan(uint64_t row_bytes);

  /// The same for a device's queues, with their tables in `room`.
  Result<DevicePlans::Ready> dispatch_on_device(uint64_t row_bytes, bool contiguous_input,
                                                const TablesRoom& room, runtime::KernelCalls& kernels);
  Result<DevicePlans::Ready> combine_on_device(uint64_t row_bytes, const TablesRoom& room,
                                               runtime::KernelCalls& kernels);

 private:
  algorithms::TokenParameters parameters(uint64_t row_bytes) const;
  plan::RankPlan build_dispatch(const DispatchKind& kind) const;
  plan::RankPlan build_combine(uint64_t row_bytes) const;
  /// Not before a combine asks: a dispatch need not wait for them.
  void need_sums();

  const Group& group_;
  const Add add_sums_, add_fetched_;
  algorithms::TokenExchange exchange_;
  uint32_t turn_blocks_ = 1;
  uint64_t send_window_ = 0;
  std::map<DispatchKind, runtime::CompiledPlan> dispatch_plans_;
  std::map<uint64_t, runtime::CompiledPlan> combine_plans_;
  DevicePlans device_plans_;
};

}  // namespace epccl::ep
