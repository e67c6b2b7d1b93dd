// What each recorded machine must give, from the content of its file.
#include "test_machine.hpp"

namespace epccl::topology {
namespace {

using Strings = std::vector<std::string>;
using Ints = std::vector<int>;

TEST(RecordedMachine, AwsP4dHasTwoGpusAndOneEfaDeviceBehindEachSwitch) {
  const Machine machine = load("nccl-aws-p4d.xml");
  EXPECT_EQ(gpu_ids(machine), (Strings{"0000:10:1c.0", "0000:10:1d.0", "0000:20:1c.0", "0000:20:1d.0",
                                       "0000:90:1c.0", "0000:90:1d.0", "0000:a0:1c.0", "0000:a0:1d.0"}));
  EXPECT_EQ(nic_names(machine), (Strings{"0000:10:1b.0", "0000:20:1b.0", "0000:90:1b.0", "0000:a0:1b.0"}));
  EXPECT_EQ(gpu_numa_nodes(machine), (Ints{0, 0, 0, 0, 1, 1, 1, 1}));
  for (const Gpu& gpu : machine.gpus) {
    EXPECT_EQ(gpu.vendor, Vendor::nvidia);
    EXPECT_EQ(gpu.arch, "sm_80");
  }
  for (const Nic& nic : machine.nics) EXPECT_EQ(nic.kind, NicKind::efa);

  EXPECT_EQ(assigned_nics(machine),
            (Strings{"0000:10:1b.0", "0000:10:1b.0", "0000:20:1b.0", "0000:20:1b.0", "0000:90:1b.0",
                     "0000:90:1b.0", "0000:a0:1b.0", "0000:a0:1b.0"}));
  EXPECT_EQ(paths_to_assigned_nics(machine), Strings(8, "PIX"));
  EXPECT_EQ(gpu_path(machine, 0, 1), PathClass::pix);
  EXPECT_EQ(gpu_path(machine, 0, 2), PathClass::phb);
  EXPECT_EQ(gpu_path(machine, 3, 4), PathClass::sys);
  EXPECT_TRUE(machine.links.empty()) << "the file lists none";
}

TEST(RecordedMachine, AwsP4dHasTwoNumaNodesOf48Cpus) {
  const Machine machine = load("nccl-aws-p4d.xml");
  ASSERT_EQ(machine.numa_nodes.size(), 2u);
  EXPECT_EQ(format_cpu_list(machine.numa_nodes[0].cpus), "0-23,48-71");
  EXPECT_EQ(format_cpu_list(machine.numa_nodes[1].cpus), "24-47,72-95");
  // 8 GT/s, 16 lanes, 128 of 130 bits
  EXPECT_NEAR(machine.pci_devices[static_cast<size_t>(machine.gpus[0].pci)].gb_per_s, 15.75, 0.01);
}

TEST(RecordedMachine, AzureNdv4SharesTwoNicsBetweenTwoGpusOfASwitch) {
  const Machine machine = load("nccl-azure-ndv4.xml");
  EXPECT_EQ(gpu_ids(machine), (Strings{"0001:00:00.0", "0002:00:00.0", "0003:00:00.0", "0004:00:00.0",
                                       "000b:00:00.0", "000c:00:00.0", "000d:00:00.0", "000e:00:00.0"}));
  EXPECT_EQ(gpu_numa_nodes(machine), (Ints{1, 1, 0, 0, 3, 3, 2, 2}));
  ASSERT_EQ(machine.nics.size(), 8u);
  for (const Nic& nic : machine.nics) EXPECT_EQ(nic.kind, NicKind::infiniband);

  EXPECT_EQ(nearest_nics(machine, 0), (Ints{0, 1}));
  EXPECT_EQ(nearest_nics(machine, 1), (Ints{0, 1}));
  EXPECT_EQ(assigned_nics(machine), (Strings{"0101:00:00.0", "0102:00:00.0", "0103:00:00.0", "0104:00:00.0",
                                             "0105:00:00.0", "0106:00:00.0", "0107:00:00.0", "0108:00:00.0"}))
      << "GPUs of a switch take turns at its NICs";
  EXPECT_EQ(paths_to_assigned_nics(machine), Strings(8, "PIX"));
}

TEST(RecordedMachine, AzureNdv4HasFourNumaNodesOf24Cpus) {
  const Machine machine = load("nccl-azure-ndv4.xml");
  ASSERT_EQ(machine.numa_nodes.size(), 4u);
  Strings cpus;
  for (const NumaNode& node : machine.numa_nodes) cpus.push_back(format_cpu_list(node.cpus));
  EXPECT_EQ(cpus, (Strings{"0-23", "24-47", "48-71", "72-95"}));
}

TEST(RecordedMachine, OciH100HasEightGpusWith18LinksIntoFourSwitches) {
  const Machine machine = load("nccl-oci-h100.xml");
  EXPECT_EQ(gpu_ids(machine), (Strings{"0000:0f:00.0", "0000:2d:00.0", "0000:44:00.0", "0000:5b:00.0",
                                       "0000:89:00.0", "0000:a8:00.0", "0000:c0:00.0", "0000:d8:00.0"}));
  EXPECT_EQ(gpu_numa_nodes(machine), (Ints{0, 0, 0, 0, 1, 1, 1, 1}));
  Strings switches;
  for (const GpuSwitch& known : machine.switches) switches.push_back(known.id);
  EXPECT_EQ(switches, (Strings{"0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0"}));
  ASSERT_EQ(machine.links.size(), 32u);
  for (const GpuLink& link : machine.links) {
    EXPECT_EQ(link.end, LinkEnd::gpu_switch);
    EXPECT_EQ(link.count, link.peer == 1 || link.peer == 2 ? 5 : 4)
        << "GPU " << link.gpu << " switch " << link.peer;
  }
  for (int a = 0; a < 8; ++a) {
    EXPECT_EQ(machine.gpus[static_cast<size_t>(a)].arch, "sm_90");
    for (int b = 0; b < 8; ++b) {
      EXPECT_EQ(gpu_path(machine, a, b), a == b ? PathClass::loc : PathClass::nvl);
      if (a == b) continue;
      const GpuConnection links = connection(machine, a, b);
      EXPECT_EQ(links.count, 18);
      EXPECT_TRUE(links.switched);
      EXPECT_DOUBLE_EQ(links.gb_per_s, 450);
    }
  }
}

TEST(RecordedMachine, OciH100HasADualPortNicNextToEachGpu) {
  const Machine machine = load("nccl-oci-h100.xml");
  EXPECT_EQ(nic_names(machine),
            (Strings{"mlx5_0", "mlx5_1", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9",
                     "mlx5_10", "mlx5_12", "mlx5_13", "mlx5_14", "mlx5_15", "mlx5_16", "mlx5_17"}));
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    EXPECT_EQ(machine.nics[i].port, i % 2 == 0 ? 1 : 2);
    EXPECT_EQ(machine.nics[i].speed_mbit, 180000);
    EXPECT_EQ(machine.nics[i].kind, NicKind::ethernet);
  }
  EXPECT_EQ(machine.nics[0].guid, 0x9a70500003ae6d94u);
  EXPECT_EQ(nearest_nics(machine, 2), (Ints{4, 5})) << "both ports of the NIC beside it";
  EXPECT_EQ(assigned_nics(machine),
            (Strings{"mlx5_0", "mlx5_3", "mlx5_5", "mlx5_7", "mlx5_9", "mlx5_12", "mlx5_14", "mlx5_16"}));
  EXPECT_EQ(paths_to_assigned_nics(machine), Strings(8, "PXB"));
  EXPECT_EQ(gpu_nic_path(machine, 0, 2), PathClass::phb);
  EXPECT_EQ(gpu_nic_path(machine, 0, 8), PathClass::sys);
  EXPECT_EQ(format_cpu_list(machine.numa_nodes.at(0).cpus), "0-55,112-167");
  EXPECT_EQ(format_cpu_list(machine.numa_nodes.at(1).cpus), "56-111,168-223");
}

TEST(RecordedMachine, RcclMi250xHasThreeXgmiNeighboursPerGpu) {
  const Machine machine = load("rccl-8x-mi250x.xml");
  EXPECT_EQ(gpu_ids(machine), (Strings{"0000:c1:00.0", "0000:c5:00.0", "0000:c9:00.0", "0000:cd:00.0",
                                       "0000:d1:00.0", "0000:d5:00.0", "0000:d9:00.0", "0000:dd:00.0"}));
  for (const Gpu& gpu : machine.gpus) {
    EXPECT_EQ(gpu.vendor, Vendor::amd);
    EXPECT_EQ(gpu.arch, "gfx90a");
  }
  std::vector<Ints> neighbours(8);
  for (const GpuLink& link : machine.links) {
    EXPECT_EQ(link.kind, LinkKind::xgmi);
    EXPECT_EQ(link.end, LinkEnd::gpu);
    EXPECT_EQ(link.count, 1);
    neighbours[static_cast<size_t>(link.gpu)].push_back(link.peer);
  }
  EXPECT_EQ(neighbours,
            (std::vector<Ints>{
                {1, 2, 6}, {0, 3, 5}, {0, 3, 4}, {1, 2, 7}, {2, 5, 6}, {1, 4, 7}, {0, 4, 7}, {3, 5, 6}}));
  EXPECT_EQ(gpu_path(machine, 0, 6), PathClass::nvl);
  EXPECT_EQ(gpu_path(machine, 0, 7), PathClass::phb) << "no direct link";
}

TEST(RecordedMachine, RcclMi250xHasOneNumaNodeAndOneGigabitNic) {
  const Machine machine = load("rccl-8x-mi250x.xml");
  ASSERT_EQ(machine.numa_nodes.size(), 1u);
  EXPECT_EQ(format_cpu_list(machine.numa_nodes[0].cpus), "0-127");
  ASSERT_EQ(nic_names(machine), Strings{"eth0"});
  EXPECT_EQ(machine.nics[0].interface, "eth0");
  EXPECT_EQ(machine.nics[0].rdma_device, "");
  EXPECT_EQ(machine.nics[0].speed_mbit, 1000);
  EXPECT_EQ(machine.nics[0].kind, NicKind::ethernet);
  EXPECT_EQ(assigned_nics(machine), Strings(8, "eth0"));
  EXPECT_EQ(paths_to_assigned_nics(machine), Strings(8, "PHB"));
}

TEST(RecordedMachine, Dgx2HasSixteenGpusWithSixLinksIntoTwelveSwitches) {
  const Machine machine = load("hwloc-dgx2.xml");
  EXPECT_EQ(machine.name, "NVIDIA DGX-2H");
  EXPECT_EQ(gpu_ids(machine), (Strings{"0000:34:00.0", "0000:36:00.0", "0000:39:00.0", "0000:3b:00.0",
                                       "0000:57:00.0", "0000:59:00.0", "0000:5c:00.0", "0000:5e:00.0",
                                       "0000:b7:00.0", "0000:b9:00.0", "0000:bc:00.0", "0000:be:00.0",
                                       "0000:e0:00.0", "0000:e2:00.0", "0000:e5:00.0", "0000:e7:00.0"}));
  EXPECT_EQ(gpu_numa_nodes(machine), (Ints{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(machine.gpus[0].model, "Tesla V100-SXM3-32GB-H");
  EXPECT_EQ(machine.gpus[0].arch, "sm_70");
  ASSERT_EQ(machine.switches.size(), 12u);
  EXPECT_EQ(machine.switches[0].id, "0000:61:00.0");
  EXPECT_EQ(machine.switches[4].id, "0000:66:00.0") << "its PCI class reads 0, its subtype says NVSwitch";
  EXPECT_EQ(machine.switches[11].id, "0000:c7:00.0");
  for (const GpuSwitch& known : machine.switches) EXPECT_GE(known.pci, 0);

  ASSERT_EQ(machine.links.size(), 16u * 6);
  for (const GpuLink& link : machine.links) {
    EXPECT_EQ(link.end, LinkEnd::gpu_switch);
    EXPECT_EQ(link.count, 1);
    EXPECT_DOUBLE_EQ(link.gb_per_s, 25);
    EXPECT_EQ(link.peer / 6, link.gpu / 8) << "each half of the machine has its own six switches";
  }
  EXPECT_EQ(connection(machine, 0, 15).count, 6);
  EXPECT_EQ(gpu_path(machine, 0, 15), PathClass::nvl);
}

TEST(RecordedMachine, Dgx2PciPathsCountSwitches) {
  const Machine machine = load("hwloc-dgx2.xml");
  const auto pci = [&](int a, int b) {
    const Gpu &x = machine.gpus[static_cast<size_t>(a)], &y = machine.gpus[static_cast<size_t>(b)];
    return pci_path(machine, x.pci, x.numa, y.pci, y.numa);
  };
  EXPECT_EQ(pci(0, 1), PathClass::pix);
  EXPECT_EQ(pci(0, 2), PathClass::pxb);
  EXPECT_EQ(pci(0, 4), PathClass::node);
  EXPECT_EQ(pci(0, 8), PathClass::sys);
  EXPECT_TRUE(machine.nics.empty()) << "the file has none";
  EXPECT_EQ(assign_nics(machine), Ints(16, -1));
  ASSERT_EQ(machine.numa_nodes.size(), 2u);
  EXPECT_EQ(format_cpu_list(machine.numa_nodes[1].cpus), "24-25") << "recorded with a restricted set of CPUs";
  EXPECT_EQ(machine.numa_nodes[0].memory_bytes >> 30, 754u);
}

TEST(RecordedMachine, JuwelsBoosterHasAnInfinibandPortBesideEachGpu) {
  const Machine machine = load("hwloc-juwels-booster-4a100-4hdr.xml");
  EXPECT_EQ(machine.name, "") << "the firmware's filler is no name";
  EXPECT_EQ(gpu_ids(machine), (Strings{"0000:03:00.0", "0000:44:00.0", "0000:84:00.0", "0000:c4:00.0"}))
      << "by PCI class: no driver had named them, and the console's VGA controller is none";
  EXPECT_EQ(gpu_numa_nodes(machine), (Ints{3, 1, 7, 5}));
  for (const Gpu& gpu : machine.gpus) EXPECT_EQ(gpu.arch, "sm_80");
  EXPECT_EQ(nic_names(machine),
            (Strings{"mlx5_1", "mlx5_0", "mlx5_3", "mlx5_2", "enp225s0f0", "enp225s0f1"}));
  EXPECT_EQ(machine.nics[0].interface, "ib1");
  EXPECT_EQ(machine.nics[0].kind, NicKind::infiniband);
  EXPECT_EQ(machine.nics[0].port, 1);
  EXPECT_TRUE(machine.nics[0].up);
  EXPECT_EQ(machine.nics[0].guid, 0x0800380001bff8dcu);
  EXPECT_EQ(machine.nics[4].kind, NicKind::ethernet);
  EXPECT_EQ(assigned_nics(machine), (Strings{"mlx5_1", "mlx5_0", "mlx5_3", "mlx5_2"}));
  EXPECT_EQ(paths_to_assigned_nics(machine), Strings(4, "PIX"));
  EXPECT_EQ(machine.numa_nodes.size(), 8u);
  EXPECT_TRUE(machine.links.empty()) << "the file lists none";
}

TEST(RecordedMachine, CoronaHasFourGpusFarFromItsOneInfinibandPort) {
  const Machine machine = load("hwloc-corona-mi.xml");
  EXPECT_EQ(gpu_ids(machine), (Strings{"0000:13:00.0", "0000:23:00.0", "0000:53:00.0", "0000:73:00.0"}))
      << "VGA controllers that OpenCL calls GPUs; the console's VGA controller is none";
  EXPECT_EQ(gpu_numa_nodes(machine), (Ints{1, 2, 5, 7}));
  for (const Gpu& gpu : machine.gpus) {
    EXPECT_EQ(gpu.vendor, Vendor::amd);
    EXPECT_EQ(gpu.model, "Vega 20");
  }
  EXPECT_EQ(nic_names(machine), (Strings{"enp3s0f0", "enp3s0f1", "mlx5_0"}));
  EXPECT_EQ(machine.nics[2].interface, "hsi0");
  EXPECT_EQ(assigned_nics(machine), Strings(4, "mlx5_0"));
  EXPECT_EQ(paths_to_assigned_nics(machine), Strings(4, "SYS"));
  EXPECT_EQ(machine.numa_nodes.size(), 8u);
}

TEST(RecordedMachine, ReferencesOfEveryFileAreInRange) {
  for (const char* name :
       {"nccl-aws-p4d.xml", "nccl-azure-ndv4.xml", "nccl-oci-h100.xml", "rccl-8x-mi250x.xml",
        "hwloc-dgx2.xml", "hwloc-juwels-booster-4a100-4hdr.xml", "hwloc-corona-mi.xml"}) {
    const Machine machine = load(name);
    const int devices = static_cast<int>(machine.pci_devices.size());
    for (int i = 0; i < devices; ++i)
      EXPECT_LT(machine.pci_devices[static_cast<size_t>(i)].parent, i) << name;
    for (const Gpu& gpu : machine.gpus) {
      ASSERT_GE(gpu.pci, 0) << name;
      EXPECT_EQ(machine.pci_devices.at(static_cast<size_t>(gpu.pci)).bus_id, gpu.bus_id) << name;
    }
    EXPECT_TRUE(machine.notes.empty()) << name << ": " << machine.notes.front();
    EXPECT_NE(machine.source.find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace epccl::topology
