// The reader of hwloc XML against the hwloc library itself, on files the library reads.
#include <hwloc.h>

#include <memory>

#include "test_machine.hpp"
#include "topology/hwloc_live.hpp"
#include "topology/hwloc_machine.hpp"

namespace epccl::topology {
namespace {

/// The machine as the library reads the file; GPU links are not part of it.
Machine load_with_library(const std::string& name) {
  hwloc_topology_t raw = nullptr;
  EXPECT_EQ(hwloc_topology_init(&raw), 0);
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> topology(raw, hwloc_topology_destroy);
  EXPECT_EQ(hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL), 0);
  EXPECT_EQ(hwloc_topology_set_xml(raw, data_file(name).c_str()), 0);
  EXPECT_EQ(hwloc_topology_load(raw), 0);
  MachineBuilder builder;
  EXPECT_TRUE(add_hwloc_objects(hwloc_tree(raw), builder).ok());
  auto machine = std::move(builder).build();
  EXPECT_TRUE(machine.ok());
  return std::move(machine).value();
}

std::string bus_id_of_parent(const Machine& machine, const PciDevice& device) {
  return device.parent < 0 ? "" : machine.pci_devices[static_cast<size_t>(device.parent)].bus_id.to_string();
}

class HwlocLibrary : public testing::TestWithParam<const char*> {};

TEST_P(HwlocLibrary, GivesTheSameMachine) {
  const Machine ours = load(GetParam()), theirs = load_with_library(GetParam());
  EXPECT_EQ(ours.name, theirs.name);
  ASSERT_EQ(ours.numa_nodes.size(), theirs.numa_nodes.size());
  for (size_t i = 0; i < ours.numa_nodes.size(); ++i) {
    EXPECT_EQ(ours.numa_nodes[i].os_index, theirs.numa_nodes[i].os_index);
    EXPECT_EQ(ours.numa_nodes[i].cpus, theirs.numa_nodes[i].cpus);
    EXPECT_EQ(ours.numa_nodes[i].memory_bytes, theirs.numa_nodes[i].memory_bytes);
  }
  ASSERT_EQ(ours.pci_devices.size(), theirs.pci_devices.size());
  for (size_t i = 0; i < ours.pci_devices.size(); ++i) {
    const PciDevice &a = ours.pci_devices[i], &b = theirs.pci_devices[i];
    EXPECT_EQ(a.bus_id, b.bus_id);
    EXPECT_EQ(a.kind, b.kind) << a.bus_id.to_string();
    EXPECT_EQ(a.pci_class, b.pci_class) << a.bus_id.to_string();
    EXPECT_EQ(a.vendor, b.vendor);
    EXPECT_EQ(a.device, b.device);
    EXPECT_EQ(a.numa, b.numa) << a.bus_id.to_string();
    EXPECT_NEAR(a.gb_per_s, b.gb_per_s, 1e-4);
    EXPECT_EQ(bus_id_of_parent(ours, a), bus_id_of_parent(theirs, b));
  }
  EXPECT_EQ(gpu_ids(ours), gpu_ids(theirs));
  EXPECT_EQ(gpu_numa_nodes(ours), gpu_numa_nodes(theirs));
  EXPECT_EQ(nic_names(ours), nic_names(theirs));
  EXPECT_EQ(assigned_nics(ours), assigned_nics(theirs));
  EXPECT_EQ(paths_to_assigned_nics(ours), paths_to_assigned_nics(theirs));
}

INSTANTIATE_TEST_SUITE_P(Files, HwlocLibrary,
                         testing::Values("hwloc-corona-mi.xml", "hwloc-dgx2.xml",
                                         "hwloc-juwels-booster-4a100-4hdr.xml"));

}  // namespace
}  // namespace epccl::topology
