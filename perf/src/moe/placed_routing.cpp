#include "perf/src/moe/placed_routing.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "epccl/placement.h"

namespace epccl::perf::moe {
namespace {

class PlacedRouting final : public Routing {
 public:
  PlacedRouting(const Options& options, const Routing& experts, std::vector<int> node_of)
      : experts_(experts), node_of_(std::move(node_of)), placement_(node_of_.size() * options.slots) {
    config_.num_experts = options.shape.experts;
    config_.num_ranks = static_cast<unsigned>(node_of_.size());
    config_.slots_per_rank = options.slots;
    config_.rank_to_node = node_of_.data();
    const RoutingRule& rule = options.shape.routing;
    if (rule.kind == RoutingRule::Kind::groups) config_.num_expert_groups = rule.groups;
  }

  Status place(uint32_t tokens) {
    std::vector<double> load(config_.num_experts);
    for (size_t rank = 0; rank < node_of_.size(); ++rank)
      for (const int64_t expert : experts_.table(static_cast<int>(rank), tokens).experts)
        if (expert >= 0) ++load[static_cast<size_t>(expert)];
    if (epcclEpPlaceExperts(&config_, load.data(), nullptr, placement_.data(), nullptr) != epcclSuccess)
      return error(Code::invalid_argument, "--slots {}: {}", config_.slots_per_rank,
                   epcclGetLastError(nullptr));
    return {};
  }

  // Copies take turns from the table's beginning: what is longer begins alike.
  TopkTable table(int rank, uint32_t tokens) const override {
    TopkTable table = experts_.table(rank, tokens);
    const std::array<size_t, 2> sizes{table.tokens, table.topk};
    epcclEpTensor_t tensor = EPCCL_EP_TENSOR_INIT;
    tensor.ndim = 2;
    tensor.datatype = epcclInt64;
    tensor.data = table.experts.data();
    tensor.sizes = sizes.data();
    if (epcclEpPickSlots(&config_, placement_.data(), rank, EPCCL_EP_SLOTS_EVEN, &tensor, &tensor) !=
        epcclSuccess)
      std::ranges::fill(table.experts, -1);  // not for what has been placed
    return table;
  }

 private:
  const Routing& experts_;
  const std::vector<int> node_of_;
  std::vector<int> placement_;
  epcclEpPlacementConfig_t config_ = EPCCL_EP_PLACEMENT_CONFIG_INIT;
};

}  // namespace

Result<std::unique_ptr<Routing>> place_routing(const Options& options, const Routing& routing,
                                               std::vector<int> node_of) {
  auto placed = std::make_unique<PlacedRouting>(options, routing, std::move(node_of));
  EPCCL_TRY(placed->place(*std::ranges::max_element(options.tokens)));
  return std::unique_ptr<Routing>(std::move(placed));
}

}  // namespace epccl::perf::moe
