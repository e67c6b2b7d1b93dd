#include "algorithms/alltoall/flat.hpp"

#include <array>
#include <vector>

#include "algorithms/alltoall/local.hpp"
#include "algorithms/alltoall/send_window.hpp"
#include "algorithms/partners.hpp"

namespace epccl::algorithms {
plan::RankPlan build_flat(const topology::Cluster& cluster, const Exchange& exchange, int rank,
                          const Parameters& parameters) {
  plan::Builder builder(rank);
  for (const int source : remote_partners(cluster, rank, -1)) {
    const uint64_t bytes = exchange.bytes(source, rank);
    if (bytes == 0) continue;
    builder.recv(source, 0, builder.output(exchange.output_offset(rank, source)), bytes);
  }
  const std::vector<int> destinations = remote_partners(cluster, rank, 1);
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
