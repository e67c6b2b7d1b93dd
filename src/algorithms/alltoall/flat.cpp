#include "algorithms/alltoall/flat.hpp"

#include <array>
#include <vector>

#include "algorithms/alltoall/local.hpp"
#include "algorithms/alltoall/send_window.hpp"

namespace epccl::algorithms {
namespace {

/// All ranks of other nodes: by distance of the nodes (`direction` 1: to higher numbers, -1: to lower), and within a node by
/// distance from the rank's own local position. So in each step every rank has a partner of its own: no receiver is
/// everybody's first, nor is any NIC of its node.
std::vector<int> remote_ranks(const topology::Cluster& cluster, int rank, int direction) {
  const int nodes = cluster.nodes(), node = cluster.node_of(rank), local = cluster.local_of(rank);
  std::vector<int> order;
  for (int distance = 1; distance < nodes; ++distance) {
    const int other = (node + nodes + direction * distance) % nodes;
    const int size = cluster.local_size(other);
    for (int step = 0; step < size; ++step)
      order.push_back(cluster.rank_at(other, (local % size + size + direction * step) % size));
  }
  return order;
}

}  // namespace

plan::RankPlan build_flat(const topology::Cluster& cluster, const Exchange& exchange, int rank,
                          const Parameters& parameters) {
  plan::Builder builder(rank);
  for (const int source : remote_ranks(cluster, rank, -1)) {
    const uint64_t bytes = exchange.bytes(source, rank);
    if (bytes == 0) continue;
    builder.recv(source, 0, builder.output(exchange.output_offset(rank, source)), bytes);
  }
  const std::vector<int> destinations = remote_ranks(cluster, rank, 1);
  uint64_t total = 0;
  for (const int destination : destinations) total += exchange.bytes(rank, destination);
  SendWindow window(parameters.send_window, total);
  for (const int destination : destinations) {
    const uint64_t bytes = exchange.bytes(rank, destination);
    if (bytes == 0) continue;
    const std::array after{window.wait_for(bytes)};
    window.add(
        builder.send(destination, 0, builder.input(exchange.input_offset(rank, destination)), bytes, after),
        bytes);
  }
  append_local_exchange(builder, cluster, exchange, rank, parameters);
  return std::move(builder).take();
}

}  // namespace epccl::algorithms
