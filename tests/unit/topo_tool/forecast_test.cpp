// Predicted times against the floors that bytes and rates set.
#include "topo/forecast.hpp"

#include "run_tool.hpp"
#include "sketch.hpp"

namespace epccl::tools {
namespace {

using topology::Machine;

topology::RailPlan plan_of(const Machine& machine, int nodes, int ranks) {
  auto plan = topology::plan_rails(machine, nodes, ranks);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(plan).value() : topology::RailPlan{};
}

Forecast forecast_of(const Machine& machine, int nodes, int ranks) {
  auto forecast = make_forecast(machine, plan_of(machine, nodes, ranks));
  EXPECT_TRUE(forecast.ok()) << forecast.status().message();
  return forecast.ok() ? std::move(forecast).value() : Forecast{};
}

TEST(ClusterModel, HasALinkForEachGroupOfNicsAndTheRateOfEachPairOfGpus) {
  const Machine machine = topology::load("nccl-oci-h100.xml");
  const ClusterModel model = cluster_model(machine, plan_of(machine, 2, 8));
  EXPECT_TRUE(model.rdma);
  EXPECT_EQ(model.simulation.link_rates, std::vector<double>(8, 45e9));
  EXPECT_EQ(model.simulation.link_of_local, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_DOUBLE_EQ(model.simulation.peer_copy_rates[0][7], 450e9) << "18 NVLinks";
  EXPECT_EQ(model.simulation.peer_copy_rates[3][3], 0) << "its own memory";
}

TEST(ClusterModel, GpusThatShareANicShareALink) {
  const Machine machine = topology::load("nccl-aws-p4d.xml");
  const ClusterModel model = cluster_model(machine, plan_of(machine, 2, 8));
  EXPECT_EQ(model.simulation.link_rates.size(), 4u);
  EXPECT_EQ(model.simulation.link_of_local, (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_NEAR(model.simulation.peer_copy_rates[0][1], 15.75e9, 0.01e9) << "PCIe: no links are recorded";
}

TEST(ClusterModel, WhatIsNotKnownIsAssumedAndSaid) {
  const Machine machine = topology::load("hwloc-dgx2.xml");
  const ClusterModel model = cluster_model(machine, plan_of(machine, 2, 16));
  EXPECT_FALSE(model.rdma);
  EXPECT_EQ(model.simulation.link_rates, std::vector<double>{12.5e9});
  std::string all;
  for (const std::string& assumption : model.assumptions) all += assumption + "\n";
  expect_says(all, "network rates that are not known: 12.5 GB/s a link");
}

TEST(Forecast, IsNeverFasterThanTheBytesAllow) {
  for (const char* name :
       {"nccl-aws-p4d.xml", "nccl-azure-ndv4.xml", "nccl-oci-h100.xml", "rccl-8x-mi250x.xml",
        "hwloc-juwels-booster-4a100-4hdr.xml", "hwloc-corona-mi.xml"}) {
    const Machine machine = topology::load(name);
    const int local = static_cast<int>(machine.gpus.size());
    for (const int nodes : {2, 4}) {
      const topology::RailPlan plan = plan_of(machine, nodes, local);
      const auto forecast = make_forecast(machine, plan);
      ASSERT_TRUE(forecast.ok()) << forecast.status().message();
      ASSERT_EQ(forecast->predictions.size(), forecast_sizes().size());
      for (const Prediction& it : forecast->predictions) {
        const double remote = static_cast<double>(it.bytes_per_pair) * local * local * (nodes - 1);
        const double floor = remote / (plan.node_gb_per_s * 1e9) * (1 - 1e-6);
        EXPECT_GE(it.flat_seconds, floor) << name << " " << it.bytes_per_pair;
        EXPECT_GE(it.two_stage_seconds, floor) << name << " " << it.bytes_per_pair;
        EXPECT_LE(it.flat_seconds, floor * 1.6 + 20e-6) << name << ": every rail is busy all the time";
        EXPECT_EQ(it.flat_messages, static_cast<uint64_t>(local * (nodes - 1)));
      }
    }
  }
}

TEST(Forecast, TwoStageWinsWhereMessagesAreSmallAndCostMuch) {
  // Ranks of host memory on sockets: a message costs 15 us of CPU time.
  topology::OneBridge sketch;
  sketch.nic(sketch.bridge, sketch.node, 100'000);
  const Forecast forecast = forecast_of(sketch.build(), 16, 8);
  EXPECT_LT(forecast.predictions.front().two_stage_seconds, forecast.predictions.front().flat_seconds);
}

TEST(Forecast, OfOneNodeIsCopiesOnly) {
  const Forecast forecast = forecast_of(topology::load("nccl-oci-h100.xml"), 1, 8);
  for (const Prediction& it : forecast.predictions) {
    EXPECT_EQ(it.flat_messages, 0u);
    const double copies = static_cast<double>(it.bytes_per_pair) * (7 / 450e9 + 1 / 500e9);
    EXPECT_GE(it.flat_seconds, copies * (1 - 1e-6));
    EXPECT_LE(it.flat_seconds, copies * 2.1 + 50e-6);
  }
}

TEST(Forecast, RefusesMoreRanksThanItCanSimulateQuickly) {
  const Machine machine = topology::load("nccl-oci-h100.xml");
  const auto forecast = make_forecast(machine, plan_of(machine, 129, 8));
  EXPECT_EQ(forecast.status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace epccl::tools
