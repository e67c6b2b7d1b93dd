// What the simulator predicts for the flat forms where every rank has a NIC of its own, held by a table in data/. A form in which
// all ranks of a node send to the same receivers at the same time leaves most NICs idle: that shows here.
//
//   EPCCL_RENEW_TABLES=1 build/bin/test_algorithms --gtest_filter='FlatTimes.*'
// writes the table anew when a change is meant.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "algorithms/collectives/collective.hpp"
#include "plan/simulator.hpp"

namespace epccl::algorithms {
namespace {

constexpr double nic_rate = 12.5e9;

plan::SimulationModel nic_for_each_rank(int local) {
  plan::SimulationModel model;
  model.link_rates.assign(static_cast<size_t>(local), nic_rate);
  for (int position = 0; position < local; ++position) model.link_of_local.push_back(position);
  model.node_copy_rate = 10e9 * local;
  return model;
}

double simulated_seconds(Collective kind, int nodes, int local, uint64_t bytes) {
  const auto cluster = topology::Cluster::from_sizes(std::vector<int>(static_cast<size_t>(nodes), local));
  const CollectiveSpec call{.kind = kind, .bytes = bytes, .unit = 4};
  CollectiveParameters parameters;
  parameters.form = Form::flat;
  parameters.scratch_bytes = 64 << 20;
  EXPECT_TRUE(check(cluster, call, parameters).ok());
  const auto timeline =
      plan::simulate(build_collective_everywhere(cluster, call, parameters), nic_for_each_rank(local));
  EXPECT_TRUE(timeline.ok()) << timeline.status().message();
  return timeline.ok() ? timeline->total : 0;
}

TEST(FlatTimes, AreThoseOfTheTable) {
  std::string made = "collective       nodes x ranks   bytes of a block   microseconds\n";
  for (const Collective kind : {Collective::allgather, Collective::reduce_scatter, Collective::allreduce})
    for (const auto& [nodes, local] : {std::pair{2, 4}, {2, 8}, {4, 8}})
      for (const uint64_t block : {uint64_t{16} << 10, uint64_t{512} << 10}) {
        // An allreduce is called with all blocks together.
        const uint64_t bytes =
            kind == Collective::allreduce ? block * static_cast<uint64_t>(nodes * local) : block;
        made += fmt::format("{:<16} {:>13} {:>18} {:>14.1f}\n", to_string(kind),
                            fmt::format("{} x {}", nodes, local), block,
                            1e6 * simulated_seconds(kind, nodes, local, bytes));
      }
  if (std::getenv("EPCCL_RENEW_TABLES") != nullptr) std::ofstream(EPCCL_FLAT_TIMES, std::ios::binary) << made;
  std::ifstream file(EPCCL_FLAT_TIMES, std::ios::binary);
  const std::string held{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(made, held) << "if this is meant, renew the table: see the head of this file";
}

TEST(FlatTimes, OfAnAllgatherAreNearWhatTheNicsAllow) {
  constexpr int nodes = 4, local = 8;
  constexpr uint64_t bytes = 4 << 20;
  const double least = (nodes - 1) * local * static_cast<double>(bytes) / nic_rate;
  EXPECT_LT(simulated_seconds(Collective::allgather, nodes, local, bytes), 1.2 * least);
}

}  // namespace
}  // namespace epccl::algorithms
