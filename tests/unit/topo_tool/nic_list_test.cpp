// --nics: what is said of each port, with a library that has devices where this machine may have none.
#include "topo/nic_list.hpp"

#include "run_tool.hpp"
#include "sketch.hpp"

namespace epccl::tools {
namespace {

using topology::RdmaDevice;

#ifdef EPCCL_FAKE_VERBS
TEST(RdmaDevices, AreAskedForEverything) {
  const auto devices = topology::query_rdma_devices(EPCCL_FAKE_VERBS);
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  ASSERT_EQ(devices->size(), 2u);
  const RdmaDevice& device = devices->front();
  EXPECT_EQ(device.name, "mlx5_0");
  EXPECT_EQ(device.guid, 0x0800380001bff8dcu);
  EXPECT_EQ(device.firmware, "20.31.1014");
  EXPECT_EQ(device.max_queue_pairs, 1000);
  ASSERT_EQ(device.ports.size(), 2u);
  EXPECT_EQ(device.ports[0].state, "active");
  EXPECT_EQ(device.ports[0].link_layer, "InfiniBand");
  EXPECT_EQ(device.ports[0].speed_mbit, 200000);
  EXPECT_EQ(device.ports[0].mtu, 2048);
  EXPECT_EQ(device.ports[0].mtu_max, 4096);
  EXPECT_EQ(device.ports[0].lid, 0x2a);
  ASSERT_EQ(device.ports[0].gids.size(), 1u);
  EXPECT_EQ(device.ports[0].gids[0].type, "IB");
}

TEST(RdmaDevices, GidsKeepTheirIndexAndEmptyOnesAreLeftOut) {
  const auto devices = topology::query_rdma_devices(EPCCL_FAKE_VERBS);
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  const auto& port = devices->front().ports.at(1);
  EXPECT_EQ(port.state, "down");
  ASSERT_EQ(port.gids.size(), 2u);
  EXPECT_EQ(port.gids[0].address, "fe80::1");
  EXPECT_EQ(port.gids[0].type, "RoCE v1");
  EXPECT_EQ(port.gids[1].index, 1);
  EXPECT_EQ(port.gids[1].address, "::ffff:10.0.0.1");
  EXPECT_EQ(port.gids[1].type, "RoCE v2");
}

TEST(RdmaDevices, OneThatCannotBeOpenedIsListedAndSaysSo) {
  const auto devices = topology::query_rdma_devices(EPCCL_FAKE_VERBS);
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  EXPECT_EQ(devices->back().name, "broken");
  EXPECT_TRUE(devices->back().ports.empty());
  ASSERT_EQ(devices->back().not_asked.size(), 1u);
  expect_says(devices->back().not_asked[0], "cannot be opened");
}

/// A GPU, and beside it port 1 of mlx5_0.
topology::Machine machine_with_a_port() {
  topology::OneBridge sketch;
  const int near = sketch.new_switch(sketch.bridge);
  sketch.gpu(near, sketch.node);
  topology::Nic nic;
  nic.rdma_device = "mlx5_0";
  nic.interface = "ib0";
  nic.port = 1;
  nic.pci = sketch.pci(topology::PciKind::endpoint, near, sketch.node);
  EXPECT_TRUE(sketch.builder.add_nic(std::move(nic)).ok());
  return sketch.build();
}

TEST(NicList, JoinsDevicesToTheMachineAndItsGpus) {
  const std::string text =
      format_nics(machine_with_a_port(), topology::query_rdma_devices(EPCCL_FAKE_VERBS), {1500});
  for (const char* part :
       {"NIC 0: mlx5_0 port 1\n", "    state         active\n", "    rate          200 Gbit/s\n",
        "    interface     ib0\n", "    NUMA node     0\n", "    nearest GPUs  GPU 0 (PIX)\n",
        "    MTU           2048 (at most 4096)\n", "    LID           42\n",
        "    GID           0: fe80::1  IB\n",
        "    limits        1000 queue pairs, 4096 completions a queue\n", "    firmware      20.31.1014\n",
        "RDMA device broken was not asked: it cannot be opened"})
    expect_says(text, part);
}

TEST(NicList, SaysTheSameToPrograms) {
  const auto json = nics_json(machine_with_a_port(), topology::query_rdma_devices(EPCCL_FAKE_VERBS), {1500});
  const auto& nic = json.at("nics").at(0);
  EXPECT_EQ(nic.at("name"), "mlx5_0");
  EXPECT_EQ(nic.at("port"), 1);
  EXPECT_EQ(nic.at("state"), "active");
  EXPECT_EQ(nic.at("rate_mbit"), 200000);
  EXPECT_EQ(nic.at("interface"), "ib0");
  EXPECT_EQ(nic.at("numa_node"), 0);
  EXPECT_EQ(nic.at("nearest_gpus").dump(), R"([{"gpu":0,"path":"PIX"}])");
  EXPECT_FALSE(nic.contains("mtu")) << "the device's counts";
  const auto& rdma = nic.at("rdma");
  EXPECT_EQ(rdma.at("mtu"), 2048);
  EXPECT_EQ(rdma.at("lid"), 42);
  EXPECT_EQ(rdma.at("gids").dump(), R"([{"index":0,"address":"fe80::1","type":"IB"}])");
  EXPECT_EQ(rdma.at("max_queue_pairs"), 1000);
  ASSERT_EQ(json.at("not_asked").size(), 1u);
  expect_says(json.at("not_asked").at(0), "broken: it cannot be opened");
}
#endif

TEST(NicList, WithoutALibraryTheMachineIsStillShown) {
  topology::OneBridge sketch;
  topology::Nic nic;
  nic.interface = "eth0";
  nic.speed_mbit = 25'000;
  nic.up = false;
  ASSERT_TRUE(sketch.builder.add_nic(std::move(nic)).ok());
  const std::string text =
      format_nics(sketch.build(), topology::query_rdma_devices("/nonexistent/libibverbs.so"), {9000});
  expect_says(text, "NIC 0: eth0\n    state         down\n    rate          25 Gbit/s\n");
  expect_says(text, "    NUMA node     not known\n");
  expect_says(text, "    MTU           9000\n");
  expect_says(text, "RDMA devices were not asked: ");
  expect_says(text, "/nonexistent/libibverbs.so");
}

TEST(NicList, TellsProgramsWhatIsNotKnown) {
  topology::OneBridge sketch;
  topology::Nic nic;
  nic.interface = "eth0";
  nic.up = false;
  ASSERT_TRUE(sketch.builder.add_nic(std::move(nic)).ok());
  const auto json =
      nics_json(sketch.build(), topology::query_rdma_devices("/nonexistent/libibverbs.so"), {9000});
  const auto& only = json.at("nics").at(0);
  EXPECT_EQ(only.at("state"), "down");
  EXPECT_EQ(only.at("rate_mbit"), 0);
  EXPECT_EQ(only.at("numa_node"), -1);
  EXPECT_EQ(only.at("mtu"), 9000);
  EXPECT_FALSE(only.contains("rdma"));
  expect_says(json.at("not_asked").at(0), "/nonexistent/libibverbs.so");
}

TEST(NicList, OfAMachineWithNothingSaysSo) {
  const std::string text = format_nics({}, std::vector<RdmaDevice>{}, {});
  expect_says(text, "No network device is visible here.");
  expect_says(text, "No RDMA device");
}

TEST(NicList, TheToolShowsRecordedMachinesAndThisOne) {
  const Outcome recorded = run_tool(xml("nccl-oci-h100.xml") + "--nics");
  EXPECT_EQ(recorded.exit_code, 0);
  expect_says(recorded.output, "NIC 15: mlx5_17 port 2\n");
  expect_says(recorded.output, "    nearest GPUs  GPU 7 (PXB)\n");
  expect_says(recorded.output, "RDMA devices were not asked: the machine is a recorded one");
  EXPECT_EQ(run_tool("--nics").exit_code, 0);
  const Outcome json = run_tool(xml("nccl-oci-h100.xml") + "--nics --json");
  EXPECT_EQ(json.exit_code, 0);
  const auto parsed = nlohmann::json::parse(json.output, nullptr, false);
  ASSERT_FALSE(parsed.is_discarded()) << json.output;
  EXPECT_EQ(parsed.at("nics").at(15).at("name"), "mlx5_17");
  EXPECT_EQ(parsed.at("not_asked").at(0), "the machine is a recorded one");
}

}  // namespace
}  // namespace epccl::tools
