#include "api/groups/simulate.hpp"

#include <algorithm>
#include <map>

#include "api/handles/last_error.hpp"

namespace epccl::api {
namespace {

/// Of one communicator's part in a group.
struct Estimate {
  double sending = 0, receiving = 0;  // which overlap
  bool any_message = false, over_network = false;
  double collectives = 0;
};

// As far as this rank can know: what its peers do with others is not in its group.
void add_message(Estimate& estimate, const runtime::Communicator& communicator,
                 const runtime::P2pOperation& operation) {
  const algorithms::CostParameters& cost = communicator.cost();
  const auto bytes = static_cast<double>(operation.bytes);
  const bool remote = !communicator.cluster().same_node(communicator.rank(), operation.peer);
  const double seconds = remote ? cost.message_overhead + bytes / cost.known_link_rate()
                                : cost.signal_latency + bytes / cost.copy_rate;
  (operation.is_send ? estimate.sending : estimate.receiving) += seconds;
  estimate.any_message = true;
  estimate.over_network |= remote;
}

double seconds_of(const Estimate& estimate, const runtime::Communicator& communicator) {
  double seconds = estimate.collectives;
  if (estimate.any_message) seconds += std::max(estimate.sending, estimate.receiving);
  if (estimate.over_network) seconds += communicator.cost().network_latency;
  return seconds;
}

Status simulate_end(epcclSimInfo_t* given) {
  if (given == nullptr) return {Code::invalid_argument, "simInfo is NULL"};
  // Versioned by size; the time is in the first version.
  if (given->size < sizeof(epcclSimInfo_t) || given->magic != EPCCL_SIM_INFO_MAGIC)
    return error(Code::invalid_argument,
                 "simInfo has size {} and magic {:#x}: use EPCCL_SIM_INFO_INITIALIZER", given->size,
                 given->magic);
  return group_simulate_end(given->estimatedTime);
}

}  // namespace

Result<double> predict_group(std::span<const Item> items) {
  std::map<const runtime::Communicator*, Estimate> estimates;
  for (const Item& item : items) {
    Estimate& estimate = estimates[item.communicator.get()];
    if (const auto* operation = std::get_if<runtime::P2pOperation>(&item.what)) {
      add_message(estimate, *item.communicator, *operation);
    } else {
      const auto& predict = std::get<CollectiveWork>(item.what).predict;
      if (!predict)
        return Status(Code::invalid_usage, "the group has a call that the cost model cannot predict");
      estimate.collectives += predict();
    }
  }
  double longest = 0;
  for (const auto& [communicator, estimate] : estimates)
    longest = std::max(longest, seconds_of(estimate, *communicator));
  return longest;
}

}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclGroupSimulateEnd(epcclSimInfo_t* simInfo) {
  return guarded([&] { return simulate_end(simInfo); });
}
