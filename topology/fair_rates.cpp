#include "topology/fair_rates.hpp"

#include <algorithm>
#include <limits>

namespace epccl::topology {

std::vector<double> fair_rates(const std::vector<std::vector<size_t>>& flows,
                               const std::vector<double>& capacities) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<double> rates(flows.size(), 0), free = capacities;
  std::vector<bool> settled(flows.size(), false);
  while (true) {
    std::vector<size_t> users(capacities.size(), 0);
    for (size_t flow = 0; flow < flows.size(); ++flow)
      if (!settled[flow])
        for (const size_t link : flows[flow]) ++users[link];
    double smallest = infinite;
    size_t bottleneck = capacities.size();
    for (size_t link = 0; link < capacities.size(); ++link) {
      if (users[link] == 0) continue;
      const double share = std::max(free[link], 0.0) / static_cast<double>(users[link]);
      if (share >= smallest) continue;
      smallest = share;
      bottleneck = link;
    }
    if (bottleneck == capacities.size()) return rates;
    for (size_t flow = 0; flow < flows.size(); ++flow) {
      if (settled[flow] || std::ranges::find(flows[flow], bottleneck) == flows[flow].end()) continue;
      settled[flow] = true;
      rates[flow] = smallest;
      for (const size_t link : flows[flow]) free[link] -= smallest;
    }
  }
}

}  // namespace epccl::topology
