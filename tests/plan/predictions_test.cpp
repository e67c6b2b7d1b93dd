// The cost model of the collectives against the plans that it speaks of: with all but one cost left out, what it predicts is what these
// plans do.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "algorithms/collectives/choose_form.hpp"
#include "plan/simulator.hpp"

namespace epccl::algorithms {
namespace {

using topology::Cluster;

constexpr double much = 1e30;

/// Nothing takes any time.
CostParameters free_of_cost() {
  CostParameters cost;
  cost.link_rate = cost.copy_rate = much;
  cost.network_latency = cost.message_overhead = cost.signal_latency = cost.parcel_overhead = 0;
  cost.cores_per_node = 1000;
  return cost;
}

struct Way {
  Collective kind;
  Form form;
  Variant variant;
  std::string text() const {
    return fmt::format("{} {} {}", to_string(kind), to_string(form), to_string(variant));
  }
};

CollectiveParameters parameters_of(const Way& way) {
  CollectiveParameters parameters;
  parameters.form = way.form;
  parameters.variant = way.variant;
  return parameters;
}

/// Bytes over the link of the busiest node, in its busier direction.
uint64_t busiest_link(const plan::Plan& built) {
  std::vector<uint64_t> out(static_cast<size_t>(built.cluster.nodes())), in(out);
  for (const plan::RankPlan& rank : built.ranks)
    for (const plan::Step& step : rank.steps) {
      const auto node = static_cast<size_t>(built.cluster.node_of(rank.rank));
      if (step.kind == plan::Kind::send) out[node] += step.total_bytes();
      if (step.kind == plan::Kind::recv) in[node] += step.total_bytes();
    }
  return std::max(std::ranges::max(out), std::ranges::max(in));
}

// (Not those of `relay`: there a node's turn comes late, and that counts as bytes.)
TEST(Predictions, CountTheBytesThatCrossTheBusiestLink) {
  using enum Collective;
  constexpr Form flat = Form::flat, two_level = Form::two_level;
  CostParameters cost = free_of_cost();
  cost.link_rate = 1;
  for (const int nodes : {2, 4, 8})
    for (const Way& way : std::initializer_list<Way>{{allgather, two_level, Variant::plain},
                                                     {allgather, flat, Variant::plain},
                                                     {reduce_scatter, two_level, Variant::plain},
                                                     {reduce_scatter, flat, Variant::plain},
                                                     {allreduce, two_level, Variant::plain},
                                                     {allreduce, two_level, Variant::tree},
                                                     {allreduce, two_level, Variant::split},
                                                     {allreduce, flat, Variant::plain},
                                                     {broadcast, two_level, Variant::plain},
                                                     {broadcast, two_level, Variant::tree},
                                                     {broadcast, flat, Variant::plain},
                                                     {reduce, two_level, Variant::plain},
                                                     {reduce, two_level, Variant::tree},
                                                     {reduce, flat, Variant::plain},
                                                     {gather, two_level, Variant::plain},
                                                     {scatter, two_level, Variant::plain}}) {
      const Cluster cluster = Cluster::uniform(nodes, 4);
      const CollectiveSpec call{way.kind, 1 << 20, 0, 4};
      const CollectiveParameters parameters = parameters_of(way);
      const double predicted = predict(cluster, call, parameters, cost);
      EXPECT_NEAR(predicted,
                  static_cast<double>(busiest_link(build_collective_everywhere(cluster, call, parameters))),
                  1e-3)
          << way.text() << " of " << nodes << " nodes";
    }
}

// Messages that come one after the other take a latency each, also where nodes are no power of two: there a tree's longest branch may lack
// the last step.
TEST(Predictions, CountTheMessagesThatFollowEachOther) {
  using enum Collective;
  CostParameters cost = free_of_cost();
  cost.network_latency = 1;
  plan::SimulationModel model;
  model.network_latency = 1;
  model.sender_overhead = model.receiver_overhead = model.copy_latency = model.signal_latency = 0;
  for (int nodes = 2; nodes <= 9; ++nodes)
    for (const Way& way : std::initializer_list<Way>{{allgather, Form::two_level, Variant::plain},
                                                     {reduce_scatter, Form::two_level, Variant::plain},
                                                     {allreduce, Form::two_level, Variant::plain},
                                                     {allreduce, Form::two_level, Variant::tree},
                                                     {allreduce, Form::two_level, Variant::split},
                                                     {broadcast, Form::two_level, Variant::plain},
                                                     {broadcast, Form::two_level, Variant::tree},
                                                     {broadcast, Form::two_level, Variant::relay},
                                                     {reduce, Form::two_level, Variant::tree},
                                                     {reduce, Form::two_level, Variant::relay},
                                                     {gather, Form::two_level, Variant::plain},
                                                     {scatter, Form::two_level, Variant::plain}}) {
      const Cluster cluster = Cluster::uniform(nodes, 2);
      const CollectiveSpec call{way.kind, 64, 0, 4};
      const CollectiveParameters parameters = parameters_of(way);
      const auto timeline = plan::simulate(build_collective_everywhere(cluster, call, parameters), model);
      ASSERT_TRUE(timeline.ok()) << timeline.status().message();
      const double predicted = predict(cluster, call, parameters, cost);
      const bool is_lopsided =
          way.variant == Variant::tree && !std::has_single_bit(static_cast<unsigned>(nodes));
      EXPECT_GT(predicted, timeline->total - 1e-3) << way.text() << " of " << nodes << " nodes";
      EXPECT_LT(predicted, timeline->total + (is_lopsided ? 1 : 0) + 1e-3)
          << way.text() << " of " << nodes << " nodes";
    }
}

// A root only receives, or only sends: of each message it has one end, and of the last one the other end is waited for as well.
TEST(Predictions, CountTheEndsOfMessages) {
  CostParameters cost = free_of_cost();
  cost.message_overhead = 1;
  const Cluster cluster = Cluster::uniform(5, 1);
  const auto predicted = [&](Collective kind) { return predict(cluster, {kind, 64, 0, 4}, {}, cost); };
  for (const Collective kind :
       {Collective::gather, Collective::scatter, Collective::broadcast, Collective::reduce})
    EXPECT_DOUBLE_EQ(predicted(kind), 0.5 * 4 + 0.5) << to_string(kind);
  EXPECT_DOUBLE_EQ(predicted(Collective::allgather), 4);
}

// Who has added up a large sum also writes it into the outputs of its node: in half the time that adding up takes.
TEST(Predictions, CountWhatACarrierHandsOut) {
  CostParameters cost = free_of_cost();
  cost.copy_rate = 1;
  constexpr uint64_t bytes = 1 << 20;
  const auto passes = [&](Collective kind) {
    return predict(Cluster::uniform(1, 8), {kind, bytes, 0, 4}, {}, cost) / bytes;
  };
  EXPECT_DOUBLE_EQ(passes(Collective::allreduce), 8 + 7 / 2.0);
  EXPECT_DOUBLE_EQ(passes(Collective::reduce), 8 + 1 / 2.0);
}

}  // namespace
}  // namespace epccl::algorithms
