// Predicted times against the floors that bytes and rates set.
#include "topo/forecast.hpp"

#include <algorithm>

#include "run_tool.hpp"
#include "sketch.hpp"
#include "topo/forecast_plans.hpp"

namespace epccl::tools {
namespace {

using topology::Machine;

topology::RailPlan plan_of(const Machine& machine, int nodes, int ranks) {
  auto plan = topology::plan_rails(machine, nodes, ranks);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(plan).value() : topology::RailPlan{};
}

/// As the library has them where nothing is set.
runtime::CommConfig defaults() {
  auto config = runtime::read_comm_config({});
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? std::move(config).value() : runtime::CommConfig{};
}

std::string said(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

Forecast forecast_of(const Machine& machine, int nodes, int ranks,
                     const runtime::CommConfig& config = defaults()) {
  auto forecast = make_forecast(machine, plan_of(machine, nodes, ranks), config);
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
  expect_says(said(model.assumptions), "network rates that are not known: 12.5 GB/s a link");
}

TEST(Forecast, IsNeverFasterThanTheBytesAllow) {
  for (const char* name :
       {"nccl-aws-p4d.xml", "nccl-azure-ndv4.xml", "nccl-oci-h100.xml", "rccl-8x-mi250x.xml",
        "hwloc-juwels-booster-4a100-4hdr.xml", "hwloc-corona-mi.xml"}) {
    const Machine machine = topology::load(name);
    const int local = static_cast<int>(machine.gpus.size());
    for (const int nodes : {2, 4}) {
      const topology::RailPlan plan = plan_of(machine, nodes, local);
      const auto forecast = make_forecast(machine, plan, defaults());
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
  // Ranks of host memory on sockets: a message costs 15 us of CPU time, more than a NIC for each needs for its bytes.
  topology::OneBridge sketch;
  for (int i = 0; i < 8; ++i) sketch.nic(sketch.bridge, sketch.node, 100'000);
  runtime::CommConfig config = defaults();
  config.parameters.chunk_bytes = 512 << 10;  // a message a node
  const Forecast forecast = forecast_of(sketch.build(), 16, 8, config);
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

TEST(ClusterModel, ANodesLinksHaveTheRateThatIsSet) {
  const Machine known = topology::load("nccl-oci-h100.xml"), unknown = topology::load("hwloc-dgx2.xml");
  const ClusterModel oci = cluster_model(known, plan_of(known, 2, 8), 4e9);
  EXPECT_EQ(oci.simulation.link_rates, std::vector<double>(8, 0.5e9));
  expect_says(said(oci.assumptions), "4 GB/s a node, as EPCCL_LINK_RATE says, not the 360 of the rail plan");
  const ClusterModel dgx = cluster_model(unknown, plan_of(unknown, 2, 16), 4e9);
  EXPECT_EQ(dgx.simulation.link_rates, std::vector<double>{4e9});
  EXPECT_EQ(said(dgx.assumptions).find("not known: 12.5"), std::string::npos);
}

TEST(ClusterModel, RanksShareTheCoresThatTheMachineHas) {
  topology::OneBridge sketch;
  sketch.nic(sketch.bridge, sketch.node, 100'000);
  Machine machine = sketch.build();
  const ClusterModel unknown = cluster_model(machine, plan_of(machine, 2, 8));
  EXPECT_EQ(unknown.simulation.cores_per_node, 0);
  EXPECT_EQ(unknown.cores, 8);
  expect_says(said(unknown.assumptions), "a core for every rank: the machine's cores are not known");
  machine.numa_nodes[0].cpus = {0, 1, 2};
  const ClusterModel known = cluster_model(machine, plan_of(machine, 2, 8));
  EXPECT_EQ(known.simulation.cores_per_node, 3);
  EXPECT_EQ(known.cores, 3);
  expect_says(said(known.assumptions), "8 ranks take turns on 3 cores");
  const ClusterModel enough = cluster_model(machine, plan_of(machine, 2, 2));
  EXPECT_EQ(enough.cores, 2);
  EXPECT_EQ(said(enough.assumptions).find("core"), said(enough.assumptions).find("core for"))
      << "nothing to say";
}

TEST(ClusterModel, LinksOfALaterArchitectureAreGuessedAndThatIsSaid) {
  topology::Sketch sketch;
  const int node = sketch.numa(0);
  for (int i = 0; i < 2; ++i) sketch.gpu(sketch.pci(topology::PciKind::host_bridge, -1, node), node);
  const auto gpus = sketch.builder.so_far().gpus;
  for (const topology::Gpu& gpu : gpus) sketch.builder.find_gpu(gpu.bus_id)->arch = "sm_120";
  ASSERT_TRUE(sketch.builder
                  .add_link(gpus[0].bus_id, topology::LinkKind::nvlink, topology::LinkEnd::gpu,
                            gpus[1].bus_id.to_string(), 18)
                  .ok());
  const Machine machine = sketch.build();
  const ClusterModel model = cluster_model(machine, plan_of(machine, 2, 2));
  EXPECT_DOUBLE_EQ(model.simulation.peer_copy_rates[0][1], 900e9);
  expect_says(said(model.assumptions),
              "links of sm_120, whose rate is not known: 50 GB/s each, as those of sm_103 have");
  EXPECT_EQ(said(model.assumptions).find("no links between GPUs"), std::string::npos);
}

/// Two ranks a node, of host memory, and a NIC.
Machine host_machine() {
  topology::OneBridge sketch;
  sketch.nic(sketch.bridge, sketch.node, 100'000);
  return sketch.build();
}

TEST(Forecast, IsOfThePlansThatTheLibraryRuns) {
  runtime::CommConfig config = defaults();
  const auto chunks = [&](const Machine& machine, int nodes, int ranks) {
    const Forecast forecast = forecast_of(machine, nodes, ranks, config);
    EXPECT_FALSE(forecast.predictions.empty());
    return forecast.predictions.front().chunk_bytes;
  };
  const Machine gpus = topology::load("nccl-oci-h100.xml");
  EXPECT_EQ(chunks(host_machine(), 2, 2), uint64_t{128} << 10);
  EXPECT_EQ(chunks(gpus, 2, 8), uint64_t{1} << 20) << "queues of GPUs run it";
  // 16 MiB x 8 blocks in chunks of 1016 KiB, as many as fit four times into a ring of scratch.
  EXPECT_EQ(forecast_of(gpus, 2, 8).predictions[2].two_stage_messages, 128u);
  config.parameters.chunk_bytes = config.engine_chunk_bytes = 256 << 10;
  EXPECT_EQ(chunks(host_machine(), 2, 2), uint64_t{256} << 10) << "as EPCCL_CHUNK_SIZE says";
  EXPECT_EQ(chunks(gpus, 2, 8), uint64_t{256} << 10);
}

TEST(Forecast, SaysWhatTheLibraryTakes) {
  runtime::CommConfig config = defaults();
  const Machine machine = host_machine();
  const Forecast chosen = forecast_of(machine, 8, 4, config);
  for (const Prediction& it : chosen.predictions) {
    const auto choice = algorithms::choose(topology::Cluster::uniform(8, 4), {it.bytes_per_pair},
                                           {.cores_per_node = 4}, config.parameters, nullptr, -1);
    EXPECT_EQ(it.library, choice.algorithm) << it.bytes_per_pair;
  }
  config.algorithm = algorithms::Algorithm::two_stage;
  const Forecast forced = forecast_of(machine, 8, 4, config);
  for (const Prediction& it : forced.predictions) EXPECT_EQ(it.library, algorithms::Algorithm::two_stage);
  expect_says(format_forecast(forced), "taken: the library takes: EPCCL_ALGO=two_stage\n");
  EXPECT_EQ(forecast_json(forced)["alltoall"][0]["library"], "two_stage");
}

TEST(Forecast, LargerChunksAreTakenWherePlansWouldHaveTooManySteps) {
  const Forecast forecast = forecast_of(host_machine(), 32, 2);
  const Prediction &small = forecast.predictions.front(), &large = forecast.predictions.back();
  EXPECT_EQ(small.chunk_bytes, small.library_chunk_bytes);
  EXPECT_GT(large.chunk_bytes, large.library_chunk_bytes);
  expect_says(format_forecast(forecast), "chunks of 128 KiB as the library, but of ");
  const auto by_flat = [](const Prediction& it) { return it.two_stage_seconds / it.flat_seconds; };
  const Prediction& whole = forecast.predictions[1];  // by the library's own chunks
  EXPECT_EQ(whole.chunk_bytes, whole.library_chunk_bytes);
  EXPECT_LT(by_flat(large), 1.1 * by_flat(whole)) << "rounding of many small messages adds nothing";
}

// 512 KiB a chunk where the library has 128: its four messages cost four times as much as one.
TEST(Forecast, LargerChunksCostWhatThoseDoThatTheyStandFor) {
  const Forecast own = forecast_of(host_machine(), 28, 1), larger = forecast_of(host_machine(), 63, 1);
  const auto of_a_peer = [](const Forecast& forecast) {
    const Prediction& it = forecast.predictions[2];
    return it.two_stage_seconds / (forecast.nodes - 1);
  };
  ASSERT_EQ(own.predictions[2].chunk_bytes, own.predictions[2].library_chunk_bytes);
  ASSERT_EQ(larger.predictions[2].chunk_bytes, 4 * larger.predictions[2].library_chunk_bytes);
  EXPECT_NEAR(of_a_peer(larger) / of_a_peer(own), 1, 0.05);
  EXPECT_EQ(larger.predictions[2].two_stage_messages * 27, own.predictions[2].two_stage_messages * 62);
}

TEST(Forecast, OneMessageUnderWayIsNotRoundedUp) {
  // The simulator's own grain made 2.7 times as much of it as flat takes.
  const Forecast forecast = forecast_of(topology::load("nccl-oci-h100.xml"), 16, 8);
  EXPECT_LT(forecast.predictions[2].two_stage_seconds, 1.05 * forecast.predictions[2].flat_seconds);
}

TEST(ForecastPlans, StepsAreEstimatedBeforeTheyAreBuilt) {
  for (const auto& [nodes, local] : {std::pair(2, 1), {2, 2}, {3, 4}, {5, 8}, {20, 1}, {1, 8}}) {
    const auto cluster = topology::Cluster::uniform(nodes, local);
    for (const uint64_t bytes : {uint64_t{1} << 10, uint64_t{64} << 10, uint64_t{1} << 20}) {
      for (int variant = 0; variant < 8; ++variant) {
        algorithms::Parameters parameters;
        parameters.push = (variant & 1) != 0;
        parameters.direct = (variant & 2) != 0;
        parameters.carriers = (variant & 4) != 0 ? 1 : 0;
        for (const auto algorithm : algorithms::all_algorithms) {
          const auto plan = build_alltoall_everywhere(
              algorithm, cluster, algorithms::Exchange::uniform(cluster.ranks(), bytes), parameters);
          size_t steps = 0;
          for (const auto& rank : plan.ranks) steps += rank.steps.size();
          const double estimate = estimated_steps(algorithm, cluster, bytes, parameters);
          const std::string what = fmt::format("{} x {}, {} bytes, {}, variant {}", nodes, local, bytes,
                                               to_string(algorithm), variant);
          EXPECT_GE(estimate, static_cast<double>(steps)) << what;
          EXPECT_LE(estimate, 4.0 * static_cast<double>(steps) + 64.0 * cluster.ranks()) << what;
        }
      }
    }
  }
}

TEST(Forecast, RefusesMoreStepsThanItCanSimulateAndSaysWhatWouldDo) {
  const Machine machine = topology::load("nccl-oci-h100.xml");
  const auto refused = [&](int nodes, int ranks) {
    const auto forecast = make_forecast(machine, plan_of(machine, nodes, ranks), defaults());
    EXPECT_FALSE(forecast.ok());
    return forecast.status().message();
  };
  expect_says(refused(1000, 1),
              "plans of 1000 x 1 ranks have 3999000 steps at least, and up to 1000000 are simulated; "
              "up to 500 nodes of 1 ranks would do");
  expect_says(refused(1000, 8), "nodes of 8 ranks would do");
  expect_says(refused(1'000'000, 1), "up to 500 nodes");
  expect_says(refused(2, 126), "126 ranks on one node need");
  runtime::CommConfig tiny = defaults();
  tiny.parameters.chunk_bytes = tiny.engine_chunk_bytes = 1;
  const auto plans = plans_for(topology::Cluster::uniform(2, 8), 64 << 20, 8, true, tiny);
  ASSERT_TRUE(plans.ok()) << plans.status().message();
  EXPECT_GT(plans->coarseness, 1000u);
}

}  // namespace
}  // namespace epccl::tools
