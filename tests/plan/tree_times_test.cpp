// What trees over nodes are for, in the simulator, with the cost model's constants of a network: a message takes 30 us, and 7.5 us of
// a core at either end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>

#include "algorithms/collectives/collective.hpp"
#include "plan/simulator.hpp"

namespace epccl::algorithms {
namespace {

double microseconds(Collective kind, int nodes, Variant variant) {
  const topology::Cluster cluster = topology::Cluster::uniform(nodes, 8);
  CollectiveParameters parameters;
  parameters.variant = variant;
  plan::SimulationModel model;
  model.network_latency = 30e-6;
  model.sender_overhead = model.receiver_overhead = 7.5e-6;
  const auto timeline =
      plan::simulate(build_collective_everywhere(cluster, {kind, 64, 0, 4}, parameters), model);
  EXPECT_TRUE(timeline.ok()) << timeline.status().message();
  return timeline.ok() ? 1e6 * timeline->total : 0;
}

TEST(TreeTimes, GrowWithTheLogarithmOfNodes) {
  for (const Collective kind : {Collective::broadcast, Collective::reduce, Collective::allreduce})
    for (const int nodes : {4, 8, 16, 64, 128}) {
      const double tree = microseconds(kind, nodes, Variant::tree),
                   star = microseconds(kind, nodes, Variant::plain);
      fmt::print("{:<9} {:>3} nodes: {:7.1f} us by a tree, {:7.1f} us without\n", to_string(kind), nodes,
                 tree, star);
      const int steps = std::bit_width(static_cast<unsigned>(nodes)) - 1;
      EXPECT_LT(tree, 50.0 * steps) << to_string(kind) << " of " << nodes << " nodes";
      const double gain = nodes < 64 ? 0 : nodes < 128 ? 1.5 : 3;
      EXPECT_LT(gain * tree, star) << to_string(kind) << " of " << nodes << " nodes";
    }
}

}  // namespace
}  // namespace epccl::algorithms
