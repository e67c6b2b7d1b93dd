#include "algorithms/alltoall/flat.hpp"

#include <array>

#include "algorithms/alltoall/local.hpp"
#include "algorithms/alltoall/send_window.hpp"

namespace epccl::algorithms {

plan::RankPlan build_flat(const topology::Cluster& cluster, const Exchange& exchange, int rank,
                          const Parameters& parameters) {
  plan::Builder builder(rank);
  const int ranks = cluster.ranks();
  const int node = cluster.node_of(rank);
  // Peers at growing distance: in step k, every rank sends to another one, so no receiver is everybody's first.
  for (int distance = 1; distance < ranks; ++distance) {
    const int source = (rank + ranks - distance) % ranks;
    const uint64_t bytes = exchange.bytes(source, rank);
    if (cluster.node_of(source) == node || bytes == 0) continue;
    builder.recv(source, 0, builder.output(exchange.output_offset(rank, source)), bytes);
  }
  uint64_t total = 0;
  for (int destination = 0; destination < ranks; ++destination)
    if (cluster.node_of(destination) != node) total += exchange.bytes(rank, destination);
  SendWindow window(parameters.send_window, total);
  for (int distance = 1; distance < ranks; ++distance) {
    const int destination = (rank + distance) % ranks;
    const uint64_t bytes = exchange.bytes(rank, destination);
    if (cluster.node_of(destination) == node || bytes == 0) continue;
    const std::array after{window.wait_for(bytes)};
    window.add(
        builder.send(destination, 0, builder.input(exchange.input_offset(rank, destination)), bytes, after),
        bytes);
  }
  append_local_exchange(builder, cluster, exchange, rank, parameters);
  return std::move(builder).take();
}

}  // namespace epccl::algorithms
