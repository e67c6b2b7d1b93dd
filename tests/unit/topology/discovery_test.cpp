// Live discovery: that it works wherever the test runs, and its parts on made-up systems.
#include "topology/discover_machine.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "test_machine.hpp"
#include "topology/net_interfaces.hpp"
#include "topology/nvml.hpp"
#include "topology/verbs_ports.hpp"

namespace epccl::topology {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

TEST(Discovery, FindsThisMachinesNumaNodesAndCpus) {
  const auto machine = discover_machine();
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine->source, "live");
  EXPECT_FALSE(machine->name.empty());
  ASSERT_FALSE(machine->numa_nodes.empty());
  EXPECT_FALSE(machine->numa_nodes[0].cpus.empty());
  for (const Nic& nic : machine->nics) EXPECT_NE(nic.name, "lo");
}

TEST(Nvml, AbsentLibraryIsAnErrorAndChangesNothing) {
  MachineBuilder builder;
  EXPECT_FALSE(add_nvml_gpus(builder, "libthere-is-none.so.1").ok());
  EXPECT_FALSE(add_nvml_gpus(builder, "libc.so.6").ok()) << "a library without the functions";
  EXPECT_TRUE(builder.so_far().gpus.empty());
}

TEST(Nvml, JoinsGpusByBusIdAndAddsThoseThatPciDoesNotShow) {
  MachineBuilder builder;
  PciDevice device;
  device.bus_id = {0, 0x41, 0, 0};
  device.pci_class = 0x030200;
  Gpu known;
  known.bus_id = device.bus_id;
  known.pci = builder.add_pci_device(device).value();
  ASSERT_TRUE(builder.add_gpu(known, {}).ok());

  const Status status = add_nvml_gpus(builder, EPCCL_FAKE_NVML);
  ASSERT_TRUE(status.ok()) << status.message();
  const Machine machine = std::move(builder).build().value();
  EXPECT_EQ(gpu_ids(machine), (Strings{"0000:40:00.0", "0000:41:00.0", "0000:42:00.0"}))
      << "the fourth is not accessible";
  EXPECT_EQ(machine.gpus[0].pci, -1);
  EXPECT_EQ(machine.gpus[1].pci, 0);
  for (const Gpu& gpu : machine.gpus) {
    EXPECT_EQ(gpu.model, "Imaginary GPU");
    EXPECT_EQ(gpu.arch, "sm_90");
    EXPECT_EQ(gpu.vendor, Vendor::nvidia);
  }
}

TEST(Nvml, ReportsLinksToGpusAndSwitches) {
  MachineBuilder builder;
  ASSERT_TRUE(add_nvml_gpus(builder, EPCCL_FAKE_NVML).ok());
  const Machine machine = std::move(builder).build().value();
  ASSERT_EQ(machine.links.size(), 4u);
  EXPECT_EQ(machine.links[0].end, LinkEnd::gpu);
  EXPECT_EQ(machine.links[0].peer, 1);
  EXPECT_EQ(machine.links[0].count, 2);
  EXPECT_DOUBLE_EQ(machine.links[0].gb_per_s, 50);
  EXPECT_EQ(machine.links[1].end, LinkEnd::gpu_switch);
  EXPECT_EQ(machine.links[1].count, 1);
  ASSERT_EQ(machine.switches.size(), 1u) << "hidden switches are one";
  EXPECT_EQ(connection(machine, 0, 1).count, 2);
  EXPECT_EQ(connection(machine, 0, 2).count, 0);
}

TEST(Verbs, AbsentLibraryIsAnErrorAndChangesNothing) {
  MachineBuilder builder;
  EXPECT_FALSE(add_verbs_ports(builder, "libthere-is-none.so.1").ok());
  EXPECT_TRUE(builder.so_far().nics.empty());
}

#ifdef EPCCL_FAKE_VERBS
TEST(Verbs, CompletesKnownPortsAndAddsOthers) {
  MachineBuilder builder;
  Nic known;
  known.rdma_device = "mlx5_0";
  known.port = 1;
  known.interface = "ib0";
  ASSERT_TRUE(builder.add_nic(known).ok());
  const Status status = add_verbs_ports(builder, EPCCL_FAKE_VERBS);
  ASSERT_TRUE(status.ok()) << status.message();
  const Machine machine = std::move(builder).build().value();
  ASSERT_EQ(machine.nics.size(), 2u);
  EXPECT_EQ(machine.nics[0].interface, "ib0");
  EXPECT_EQ(machine.nics[0].speed_mbit, 200'000);
  EXPECT_EQ(machine.nics[0].kind, NicKind::infiniband);
  EXPECT_EQ(machine.nics[0].guid, 0x0800380001bff8dcu);
  EXPECT_TRUE(machine.nics[0].up);
  EXPECT_EQ(machine.nics[1].port, 2);
  EXPECT_EQ(machine.nics[1].kind, NicKind::ethernet);
  EXPECT_FALSE(machine.nics[1].up);
  ASSERT_EQ(machine.notes.size(), 1u);
  EXPECT_NE(machine.notes[0].find("broken cannot be opened"), std::string::npos);
}
#endif

/// A directory like /sys/class/net, removed at the end.
class FakeSysfs {
 public:
  FakeSysfs() : root_(testing::TempDir() + "epccl-sysfs-" + std::to_string(getpid())) {
    fs::create_directories(root_);
  }
  ~FakeSysfs() { fs::remove_all(root_); }

  struct Interface {
    std::string speed = "", operstate = "up", type = "1", pci = "", extra = "";
  };
  void add(const std::string& name, unsigned index, const Interface& about) {
    const fs::path directory = root_ / "net" / name;
    fs::create_directories(directory);
    std::ofstream(directory / "ifindex") << index << "\n";
    std::ofstream(directory / "type") << about.type << "\n";
    std::ofstream(directory / "operstate") << about.operstate << "\n";
    if (!about.speed.empty()) std::ofstream(directory / "speed") << about.speed << "\n";
    if (!about.extra.empty()) fs::create_directories(directory / about.extra);
    if (!about.pci.empty()) {
      fs::create_directories(root_ / "devices" / about.pci / "virtio2");
      fs::create_directory_symlink(fs::absolute(root_ / "devices" / about.pci / "virtio2"),
                                   directory / "device");
    }
    indices_[name] = index;
  }
  const std::map<std::string, unsigned>& indices() const { return indices_; }
  std::map<std::string, unsigned>& indices() { return indices_; }
  std::string path() const { return (root_ / "net").string(); }

 private:
  fs::path root_;
  std::map<std::string, unsigned> indices_;
};

TEST(NetInterfaces, KeepsWhatCanCarryTraffic) {
  FakeSysfs sysfs;
  sysfs.add("lo", 1, {.operstate = "unknown", .type = "772"});
  sysfs.add("eth0", 2, {.speed = "25000", .pci = "0000:00:03.0"});
  sysfs.add("eth1", 3, {.speed = "-1", .operstate = "down", .pci = "0000:00:04.0"});
  sysfs.add("ib0", 4, {.speed = "200000", .type = "32", .pci = "0000:00:05.0"});
  sysfs.add("veth7", 5, {.speed = "10000"});
  sysfs.add("docker0", 6, {.speed = "10000", .extra = "bridge"});
  sysfs.add("veth8", 7, {.speed = "10000", .extra = "master"});
  sysfs.add("ifb0", 8, {.operstate = "down"});
  sysfs.add("tun0", 9, {.type = "65534"});
  MachineBuilder builder;
  ASSERT_TRUE(add_net_interfaces(builder, sysfs.path(), sysfs.indices()).ok());
  const Machine machine = std::move(builder).build().value();
  ASSERT_EQ(nic_names(machine), (Strings{"eth0", "eth1", "ib0", "veth7"}));
  EXPECT_EQ(machine.nics[0].speed_mbit, 25000);
  EXPECT_EQ(machine.nics[0].bus_id->to_string(), "0000:00:03.0") << "through the virtio device";
  EXPECT_FALSE(machine.nics[1].up);
  EXPECT_EQ(machine.nics[1].speed_mbit, 0) << "-1 means unknown";
  EXPECT_EQ(machine.nics[2].kind, NicKind::infiniband);
  EXPECT_EQ(machine.nics[3].kind, NicKind::ethernet);
}

TEST(NetInterfaces, CompletesANicThatWasFoundBefore) {
  FakeSysfs sysfs;
  sysfs.add("ib0", 4, {.speed = "200000", .operstate = "down", .type = "32", .pci = "0000:00:05.0"});
  MachineBuilder builder;
  Nic nic;
  nic.rdma_device = "mlx5_0";
  nic.interface = "ib0";
  ASSERT_TRUE(builder.add_nic(nic).ok());
  ASSERT_TRUE(add_net_interfaces(builder, sysfs.path(), sysfs.indices()).ok());
  const Machine machine = std::move(builder).build().value();
  ASSERT_EQ(nic_names(machine), Strings{"mlx5_0"});
  EXPECT_EQ(machine.nics[0].speed_mbit, 200000);
  EXPECT_TRUE(machine.nics[0].up) << "an RDMA port works without an address on its interface";
}

TEST(NetInterfaces, SysfsOfAnotherNamespaceIsNotBelieved) {
  FakeSysfs sysfs;
  sysfs.add("eth0", 2, {.speed = "25000", .pci = "0000:00:03.0"});
  sysfs.indices()["eth0"] = 77;  // the interface of that name here is another one
  MachineBuilder builder;
  Nic seen;
  seen.interface = "eth0";
  seen.speed_mbit = 25000;
  ASSERT_TRUE(builder.add_nic(seen).ok());
  seen.interface = "eth9";  // not in this namespace at all
  ASSERT_TRUE(builder.add_nic(seen).ok());
  ASSERT_TRUE(add_net_interfaces(builder, sysfs.path(), sysfs.indices()).ok());
  const Machine machine = std::move(builder).build().value();
  ASSERT_EQ(nic_names(machine), Strings{"eth0"});
  EXPECT_EQ(machine.nics[0].speed_mbit, 0);
  EXPECT_FALSE(machine.nics[0].bus_id.has_value());
}

}  // namespace
}  // namespace epccl::topology
