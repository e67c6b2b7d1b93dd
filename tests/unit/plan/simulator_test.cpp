// The simulator against times that can be worked out by hand.
#include "plan/simulator.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

constexpr double picosecond = 1e-12;

/// Round numbers: 1 GB/s, so that a byte takes a nanosecond; no cost but those a test sets.
SimulationModel plain_model() {
  SimulationModel model;
  model.network_rate = 1e9;
  model.network_latency = 0;
  model.sender_overhead = 0;
  model.receiver_overhead = 0;
  model.copy_latency = 0;
  model.copy_row_latency = 0;
  model.copy_rate = 1e9;
  model.node_copy_rate = 1e12;
  model.signal_latency = 0;
  return model;
}

Timeline run(const Plan& plan, const SimulationModel& model) {
  const auto timeline = simulate(plan, model);
  EXPECT_TRUE(timeline.ok()) << timeline.status().message();
  return timeline.ok() ? *timeline : Timeline{};
}

struct Message {
  int source, destination;
  uint64_t bytes;
};

/// Nodes of one rank each; all messages start at once.
Plan messages(int nodes, const std::vector<Message>& all) {
  SmallPlan plan(std::vector<int>(static_cast<size_t>(nodes), 1));
  uint32_t tag = 0;
  for (const Message& it : all) {
    plan[it.source].send(it.destination, tag, plan[it.source].input(0), it.bytes);
    plan[it.destination].recv(it.source, tag++, plan[it.destination].output(0), it.bytes);
  }
  return plan.take();
}

// --- Network

TEST(Network, OneMessageTakesOverheadsLatencyAndBytesOverRate) {
  SimulationModel model = plain_model();
  model.network_latency = 5e-6;
  model.sender_overhead = 1e-6;
  model.receiver_overhead = 2e-6;
  const Timeline timeline = run(messages(2, {{0, 1, 1000}}), model);
  EXPECT_NEAR(timeline.ranks[0][0].end, 2e-6, picosecond) << "the send: overhead and bytes";
  EXPECT_NEAR(timeline.total, 1e-6 + 1e-6 + 5e-6 + 2e-6, picosecond);
  EXPECT_EQ(timeline.egress[0].bytes, 1000u);
  EXPECT_EQ(timeline.ingress[1].bytes, 1000u);
  EXPECT_EQ(timeline.egress[1].bytes, 0u);
  EXPECT_NEAR(timeline.egress[0].busy, 1e-6, picosecond);
}

TEST(Network, AMessageOfNothingTakesTheLatency) {
  SimulationModel model = plain_model();
  model.network_latency = 5e-6;
  EXPECT_NEAR(run(messages(2, {{0, 1, 0}}), model).total, 5e-6, picosecond);
}

TEST(Network, TwoFlowsIntoOneNodeShareItsIngress) {
  const Timeline timeline = run(messages(3, {{0, 2, 1000}, {1, 2, 3000}}), plain_model());
  // Both get half until the first is through; then the second has 2000 bytes left and all of the link.
  EXPECT_NEAR(timeline.ranks[0][0].end, 2e-6, picosecond);
  EXPECT_NEAR(timeline.ranks[1][0].end, 4e-6, picosecond);
  EXPECT_NEAR(timeline.ingress[2].busy, 4e-6, picosecond);
}

TEST(Network, TwoFlowsOutOfOneNodeShareItsEgress) {
  const Timeline timeline = run(messages(3, {{2, 0, 1000}, {2, 1, 3000}}), plain_model());
  EXPECT_NEAR(timeline.ranks[2][0].end, 2e-6, picosecond);
  EXPECT_NEAR(timeline.ranks[2][1].end, 4e-6, picosecond);
}

TEST(Network, LinksAreFullDuplex) {
  EXPECT_NEAR(run(messages(2, {{0, 1, 1000}, {1, 0, 1000}}), plain_model()).total, 1e-6, picosecond);
}

TEST(Network, WhatABottleneckLeavesGoesToOthers) {
  // Node 3's ingress has three flows at 1/3; one of them comes from node 0, whose other flow gets 2/3.
  const Timeline timeline =
      run(messages(5, {{0, 3, 1000}, {1, 3, 1000}, {2, 3, 1000}, {0, 4, 2000}}), plain_model());
  for (const int source : {0, 1, 2})
    EXPECT_NEAR(timeline.ranks[static_cast<size_t>(source)][0].end, 3e-6, picosecond);
  EXPECT_NEAR(timeline.ranks[0][1].end, 3e-6, picosecond);
}

TEST(Network, WhatABottleneckLeavesIsItselfSharedFairly) {
  // Node 3's ingress gives a third to each of three flows. That leaves 2/3 of the egress of nodes 0 and 1 for
  // their flows to node 4, whose ingress allows 1/2 each.
  const Timeline timeline =
      run(messages(5, {{0, 3, 1000}, {1, 3, 1000}, {2, 3, 1000}, {0, 4, 1500}, {1, 4, 1500}}), plain_model());
  EXPECT_NEAR(timeline.ranks[0][1].end, 3e-6, picosecond);
  EXPECT_NEAR(timeline.ranks[1][1].end, 3e-6, picosecond);
}

TEST(Network, FlowsOfOneRouteShareByFlow) {
  // Three flows in one ingress, two of them from the same node: a third each.
  const Timeline timeline = run(messages(3, {{0, 2, 1000}, {0, 2, 1000}, {1, 2, 1000}}), plain_model());
  EXPECT_NEAR(timeline.total, 3e-6, picosecond);
  EXPECT_NEAR(timeline.ranks[1][0].end, 3e-6, picosecond);
}

TEST(Network, GrainDelaysButNeverLosesBytes) {
  SimulationModel model = plain_model();
  model.network_grain = 1e-6;
  const Timeline timeline = run(messages(3, {{0, 2, 1100}, {1, 2, 3000}}), model);
  EXPECT_NEAR(timeline.ranks[0][0].end, 3e-6, picosecond) << "2.2 us, rounded up";
  EXPECT_EQ(timeline.ingress[2].bytes, 4100u);
  EXPECT_NEAR(timeline.total, 5e-6, picosecond) << "1.5 us at half rate less 3 us, then 1.5 us, rounded up";
}

TEST(Network, RecvIsCompleteOnlyOnceStarted) {
  SmallPlan plan({1, 1});
  plan[0].send(1, 0, plan[0].input(0), 1000);
  const uint32_t copy = plan[1].copy(0, plan[1].input(0), plan[1].output(5000), 4000);
  plan[1].recv(0, 0, plan[1].output(0), 1000, After{copy});
  const Timeline timeline = run(plan.take(), plain_model());
  EXPECT_NEAR(timeline.ranks[1][1].start, 4e-6, picosecond);
  EXPECT_NEAR(timeline.ranks[1][1].end, 4e-6, picosecond);
}

TEST(Network, AlltoallTakesTheBytesOfTheBusiestLinkOverItsRate) {
  const Timeline timeline = run(two_stage(4, 3, 100, 9), plain_model());
  const double wire = 3.0 * 9 * 100 / 1e9;
  for (int node = 0; node < 4; ++node) {
    EXPECT_EQ(timeline.egress[static_cast<size_t>(node)].bytes, 2700u);
    EXPECT_EQ(timeline.ingress[static_cast<size_t>(node)].bytes, 2700u);
    EXPECT_NEAR(timeline.egress[static_cast<size_t>(node)].busy,
                timeline.ingress[static_cast<size_t>(node)].busy, picosecond);
    EXPECT_EQ(timeline.memory[static_cast<size_t>(node)].bytes,
              timeline.links.copied_in_node[static_cast<size_t>(node)]);
  }
  EXPECT_GE(timeline.total, wire);
  EXPECT_NEAR(timeline.egress[0].busy, wire, 100 * picosecond) << "the link is never idle";
}

// --- CPU and memory

/// Every rank of one node copies `bytes`, `copies` times, in steps of their own.
Plan copies(int ranks, int number, uint64_t bytes) {
  SmallPlan plan({ranks});
  for (int rank = 0; rank < ranks; ++rank)
    for (int i = 0; i < number; ++i) plan[rank].copy(i, plan[rank].input(0), plan[rank].output(0), bytes);
  return plan.take();
}

TEST(Memory, OneCopyTakesAlphaRowsAndBytes) {
  SimulationModel model = plain_model();
  model.copy_latency = 1e-6;
  model.copy_row_latency = 1e-7;
  SmallPlan plan({1});
  for (uint64_t row = 0; row < 5; ++row)
    plan[0].copy(0, plan[0].input(200 * row), plan[0].output(100 * row), 100);
  EXPECT_NEAR(run(plan.take(), model).total, 1e-6 + 4e-7 + 5e-7, picosecond);
}

TEST(Memory, ARankDoesOneThingAtATime) {
  EXPECT_NEAR(run(copies(1, 3, 1000), plain_model()).total, 3e-6, picosecond);
}

TEST(Memory, RanksOfANodeShareItsBandwidth) {
  SimulationModel model = plain_model();
  EXPECT_NEAR(run(copies(4, 1, 1000), model).total, 1e-6, picosecond);
  model.node_copy_rate = 2e9;
  const Timeline timeline = run(copies(4, 1, 1000), model);
  EXPECT_NEAR(timeline.total, 2e-6, picosecond);
  EXPECT_EQ(timeline.memory[0].bytes, 4000u);
  EXPECT_NEAR(timeline.memory[0].busy, 2e-6, picosecond);
}

TEST(Memory, RanksShareCoresFirstComeFirstServed) {
  SimulationModel model = plain_model();
  model.cores_per_node = 2;
  const Timeline timeline = run(copies(4, 1, 1000), model);
  EXPECT_NEAR(timeline.ranks[1][0].end, 1e-6, picosecond);
  EXPECT_NEAR(timeline.ranks[2][0].start, 1e-6, picosecond);
  EXPECT_NEAR(timeline.total, 2e-6, picosecond);
}

TEST(Memory, MessageOverheadsOccupyTheCpu) {
  SimulationModel model = plain_model();
  model.sender_overhead = 1e-6;
  SmallPlan plan({1, 1, 1});
  for (const int peer : {1, 2}) {
    plan[0].send(peer, 0, plan[0].input(0), 100);
    plan[peer].recv(0, 0, plan[peer].output(0), 100);
  }
  const Timeline timeline = run(plan.take(), model);
  EXPECT_NEAR(timeline.ranks[0][1].start, 1e-6, picosecond);
  EXPECT_NEAR(timeline.total, 2.1e-6, picosecond);
}

TEST(Signal, IsSeenAfterItsLatency) {
  SimulationModel model = plain_model();
  model.signal_latency = 3e-7;
  SmallPlan plan({2});
  const uint32_t copy = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 1000);
  plan[0].post(0, 0, 1, After{copy});
  const uint32_t wait = plan[1].wait(0, 0, 0, 1);
  plan[1].copy(2, {0, Buffer::scratch, 0}, plan[1].output(0), 1000, After{wait});
  const Timeline timeline = run(plan.take(), model);
  EXPECT_NEAR(timeline.ranks[1][0].start, 0, picosecond);
  EXPECT_NEAR(timeline.ranks[1][0].end, 1.3e-6, picosecond);
  EXPECT_NEAR(timeline.total, 2.3e-6, picosecond);
}

// --- The whole

TEST(Simulation, IsTheSameEveryTime) {
  const Plan plan = two_stage(5, 3, 77, 2);
  const Timeline first = run(plan, {}), second = run(plan, {});
  EXPECT_EQ(first.total, second.total);
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    for (size_t index = 0; index < plan.ranks[rank].steps.size(); ++index) {
      EXPECT_EQ(first.ranks[rank][index].start, second.ranks[rank][index].start);
      EXPECT_EQ(first.ranks[rank][index].end, second.ranks[rank][index].end);
    }
}

TEST(Simulation, StepsFollowTheirDependencies) {
  const Plan plan = two_stage(4, 2, 100, 1);
  const Timeline timeline = run(plan, {});
  for (const RankPlan& rank : plan.ranks) {
    const auto& times = timeline.ranks[static_cast<size_t>(rank.rank)];
    for (size_t index = 0; index < rank.steps.size(); ++index) {
      EXPECT_LE(times[index].start, times[index].end);
      EXPECT_LE(times[index].end, timeline.total);
      for (const uint32_t dependency : rank.dependencies_of(rank.steps[index]))
        EXPECT_LE(times[dependency].end, times[index].start);
    }
  }
}

TEST(Simulation, StopsAtADeadlockAndNamesTheFirstStep) {
  SmallPlan plan({2});
  for (const int rank : {0, 1}) {
    const uint32_t wait = plan[rank].wait(0, 1 - rank, 0, 1);
    plan[rank].post(0, 0, 1, After{wait});
  }
  const auto timeline = simulate(plan.take());
  ASSERT_FALSE(timeline.ok());
  EXPECT_NE(timeline.status().message().find("rank 0 step 0 (wait peer=1"), std::string::npos);
  EXPECT_NE(timeline.status().message().find("deadlock"), std::string::npos);
}

TEST(Simulation, AutomaticGrainOfLargePlansChangesLittle) {
  // 60 x 59 pairs of nodes and 60 x 59 x 16 messages: too much to share out at every event.
  std::vector<Message> all;
  for (int round = 0; round < 16; ++round)
    for (int source = 0; source < 60; ++source)
      for (int destination = 0; destination < 60; ++destination)
        if (source != destination) all.push_back({source, destination, 100000});
  const Timeline timeline =
      run(messages(60, all), SimulationModel{.network_rate = 1e9, .network_latency = 0});
  const double wire = 59 * 16 * 100000 / 1e9;
  EXPECT_GE(timeline.total, wire * (1 - 1e-9));
  EXPECT_LE(timeline.total, wire * 1.02);
  EXPECT_EQ(timeline.ingress[7].bytes, uint64_t{59} * 16 * 100000);
}

// --- Several links a node

/// Two nodes of two ranks; all messages start at once.
Plan messages_of_pairs(const std::vector<Message>& all) {
  SmallPlan plan({2, 2});
  uint32_t tag = 0;
  for (const Message& it : all) {
    plan[it.source].send(it.destination, tag, plan[it.source].input(0), it.bytes);
    plan[it.destination].recv(it.source, tag++, plan[it.destination].output(0), it.bytes);
  }
  return plan.take();
}

TEST(Rails, RanksOnLinksOfTheirOwnDoNotShare) {
  SimulationModel model = plain_model();
  const Plan plan = messages_of_pairs({{0, 2, 1000}, {1, 3, 3000}});
  EXPECT_NEAR(run(plan, model).total, 4e-6, picosecond) << "one link: 4000 bytes through it";
  model.link_rates = {1e9, 1e9};
  const Timeline timeline = run(plan, model);
  EXPECT_NEAR(timeline.ranks[0][0].end, 1e-6, picosecond);
  EXPECT_NEAR(timeline.ranks[1][0].end, 3e-6, picosecond);
  ASSERT_EQ(timeline.links_per_node, 2);
  ASSERT_EQ(timeline.egress.size(), 4u);
  EXPECT_EQ(timeline.egress[0].bytes, 1000u);
  EXPECT_EQ(timeline.egress[1].bytes, 3000u);
  EXPECT_EQ(timeline.ingress[3].bytes, 3000u);
  EXPECT_EQ(timeline.egress[2].bytes, 0u);
}

TEST(Rails, EachLinkHasItsRate) {
  SimulationModel model = plain_model();
  model.link_rates = {1e9, 0.5e9};
  const Timeline timeline = run(messages_of_pairs({{0, 2, 1000}, {1, 3, 1000}}), model);
  EXPECT_NEAR(timeline.ranks[0][0].end, 1e-6, picosecond);
  EXPECT_NEAR(timeline.ranks[1][0].end, 2e-6, picosecond);
}

TEST(Rails, AMessageAcrossRailsIsLimitedByTheSlowerEnd) {
  SimulationModel model = plain_model();
  model.link_rates = {1e9, 0.5e9};
  EXPECT_NEAR(run(messages_of_pairs({{0, 3, 1000}}), model).total, 2e-6, picosecond);
  // Both leave by links of their own and arrive by the slow one.
  EXPECT_NEAR(run(messages_of_pairs({{0, 3, 1000}, {1, 3, 1000}}), model).total, 4e-6, picosecond);
}

TEST(Rails, RanksMayShareALinkOfSeveral) {
  SimulationModel model = plain_model();
  model.link_rates = {1e9, 1e9};
  model.link_of_local = {1, 1};
  const Timeline timeline = run(messages_of_pairs({{0, 2, 1000}, {1, 3, 1000}}), model);
  EXPECT_NEAR(timeline.total, 2e-6, picosecond);
  EXPECT_EQ(timeline.egress[0].bytes, 0u);
  EXPECT_EQ(timeline.egress[1].bytes, 2000u);
}

TEST(Memory, CopiesBetweenPeersHaveTheRateOfTheirPair) {
  SimulationModel model = plain_model();
  model.peer_copy_rates = {{0, 0.25e9}, {0.5e9, 0}};
  SmallPlan plan({2});
  plan[0].copy(0, plan[0].input(0), plan[0].output(0), 1000);
  plan[0].copy(0, plan[0].input(0), plan[1].output(0), 1000);
  plan[1].copy(0, plan[0].input(0), plan[1].output(1000), 1000);
  plan[1].copy(0, plan[1].input(0), plan[0].output(1000), 1000);
  const Timeline timeline = run(plan.take(), model);
  EXPECT_NEAR(timeline.ranks[0][0].end, 1e-6, picosecond) << "its own memory";
  EXPECT_NEAR(timeline.ranks[0][1].end, 5e-6, picosecond) << "to rank 1, four times slower";
  EXPECT_NEAR(timeline.ranks[1][0].end, 4e-6, picosecond) << "the direction counts, not who copies";
  EXPECT_NEAR(timeline.ranks[1][1].end, 6e-6, picosecond) << "the other way, twice";
  EXPECT_EQ(timeline.memory[0].bytes, 4000u) << "bytes stay exact";
}

TEST(Simulation, RefusesModelsThatMakeNoSense) {
  const Plan plan = messages(2, {{0, 1, 8}});
  const auto code = [&plan](auto change) {
    SimulationModel model;
    change(model);
    return simulate(plan, model).status().code();
  };
  EXPECT_EQ(code([](SimulationModel& model) { model.network_rate = 0; }), Code::invalid_argument);
  EXPECT_EQ(code([](SimulationModel& model) { model.copy_rate = -1; }), Code::invalid_argument);
  EXPECT_EQ(code([](SimulationModel& model) { model.node_copy_rate = std::nan(""); }),
            Code::invalid_argument);
  EXPECT_EQ(code([](SimulationModel& model) { model.network_latency = -1e-9; }), Code::invalid_argument);
  EXPECT_EQ(code([](SimulationModel& model) { model.signal_latency = std::nan(""); }),
            Code::invalid_argument);
  EXPECT_EQ(code([](SimulationModel& model) { model.cores_per_node = -1; }), Code::invalid_argument);
  EXPECT_EQ(code([](SimulationModel& model) { model.link_rates = {1e9, 0}; }), Code::invalid_argument);
  EXPECT_EQ(code([](SimulationModel& model) { model.link_of_local = {1}; }), Code::invalid_argument);
  EXPECT_EQ(code([](SimulationModel& model) { model.peer_copy_rates = {{0, -1}}; }), Code::invalid_argument);
}

}  // namespace
}  // namespace epccl::plan::testing
