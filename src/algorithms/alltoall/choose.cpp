#include "algorithms/alltoall/choose.hpp"

#include <algorithm>

namespace epccl::algorithms {
namespace {

/// What the busiest node does for what it sends to others.
struct Sending {
  double messages = 0, copied_bytes = 0, latency = 0;
};

// Sockets copy in and out once more.
Sending sending_flat(const topology::Cluster& cluster, double remote_bytes) {
  const double local = cluster.max_local_size(), ranks = cluster.ranks();
  return {local * (ranks - local), remote_bytes, 0};
}

Sending sending_two_stage(const topology::Cluster& cluster, double block, double remote_bytes, int carriers,
                          const CostParameters& cost, const Parameters& parameters) {
  const double local = cluster.max_local_size(), nodes = cluster.nodes();
  const double groups = carriers == 0 ? local : std::min<double>(carriers, local);
  const double message_bytes = local * local * block / groups;
  const auto chunk = static_cast<double>(parameters.chunk_bytes);
  const double hops = groups < local ? 2 : 1;
  return {groups * (nodes - 1) * std::max(1.0, message_bytes / chunk), (hops + 1) * remote_bytes,
          // The last chunk's second hop is not hidden.
          hops * cost.signal_latency + std::min(message_bytes, chunk) / cost.copy_rate};
}

Sending sending(Algorithm algorithm, const topology::Cluster& cluster, double block, double remote_bytes,
                int carriers, const CostParameters& cost, const Parameters& parameters) {
  switch (algorithm) {
    case Algorithm::flat:
      return sending_flat(cluster, remote_bytes);
    case Algorithm::two_stage:
      return sending_two_stage(cluster, block, remote_bytes, carriers, cost, parameters);
  }
  __builtin_unreachable();
}

}  // namespace

// Time of the busiest node: its wire and its cores, which overlap, but never wholly, and the latencies in a row.
//   wire   bytes that leave the node / link rate
//   cores  messages * overhead + copied bytes / copy rate, over the cores
double predict(Algorithm algorithm, int carriers, const topology::Cluster& cluster, const Workload& workload,
               const CostParameters& cost, const Parameters& parameters) {
  const double local = cluster.max_local_size(), ranks = cluster.ranks();
  const auto block = static_cast<double>(workload.bytes_per_pair);
  const double remote_bytes = local * (ranks - local) * block;
  const double wire = remote_bytes / cost.known_link_rate();
  const Sending it = sending(algorithm, cluster, block, remote_bytes, carriers, cost, parameters);
  const double copies = (local * local * block + it.copied_bytes) / cost.copy_rate;
  const double switches = 2 * local * cost.signal_latency;
  const double cores =
      (it.messages * cost.message_overhead + copies + switches) / std::max(cost.cores_per_node, 0.01);
  return overlapped(wire, cores) + cost.signal_latency + it.latency +
         (cluster.nodes() > 1 ? cost.network_latency : 0);
}

bool carrying_pays(const GroupSends& sends, const CostParameters& cost) {
  const auto messages = static_cast<double>(sends.messages);
  const double direct = messages * cost.message_overhead;
  // Once into the parcel, once out of what the lane brought.
  const double carried = sends.nodes * cost.message_overhead + messages * cost.parcel_overhead +
                         2 * static_cast<double>(sends.bytes) / cost.copy_rate + 2 * cost.signal_latency;
  return carried < margin * direct;
}

Choice choose(const topology::Cluster& cluster, const Workload& workload, const CostParameters& cost,
              const Parameters& parameters, const Algorithm* forced, int forced_carriers) {
  Choice choice;
  choice.flat_seconds = predict(Algorithm::flat, 0, cluster, workload, cost, parameters);
  std::vector<int> candidates{0};
  // Shared messages pay where they are few and small: one chunk each. Larger ones go straight from the input.
  const auto node_pair_bytes = workload.bytes_per_pair * static_cast<uint64_t>(cluster.max_local_size()) *
                               static_cast<uint64_t>(cluster.max_local_size());
  for (int carriers = 1; carriers < cluster.max_local_size(); carriers *= 2)
    if (node_pair_bytes / static_cast<uint64_t>(carriers) <= parameters.chunk_bytes)
      candidates.push_back(carriers);
  if (forced_carriers >= 0) candidates = {forced_carriers};
  bool first = true;
  for (const int carriers : candidates) {
    const double seconds = predict(Algorithm::two_stage, carriers, cluster, workload, cost, parameters);
    if (!first && seconds >= choice.two_stage_seconds) continue;
    choice.two_stage_seconds = seconds;
    choice.carriers = carriers;
    first = false;
  }
  if (forced != nullptr)
    choice.algorithm = *forced;
  else if (cluster.nodes() > 1 && choice.two_stage_seconds < margin * choice.flat_seconds)
    choice.algorithm = Algorithm::two_stage;
  // Messages of several chunks: the second hop runs in rounds, and waking every rank for each of them costs more than letting
  // the relay write.
  const auto local = static_cast<uint64_t>(cluster.max_local_size());
  choice.push = parameters.direct && workload.bytes_per_pair * local * local > 2 * parameters.chunk_bytes;
  switch (choice.algorithm) {
    case Algorithm::flat:
      choice.seconds = choice.flat_seconds;
      break;
    case Algorithm::two_stage:
      choice.seconds = choice.two_stage_seconds;
      break;
  }
  return choice;
}

}  // namespace epccl::algorithms
