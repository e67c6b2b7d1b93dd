// Machines made for a test.
#pragma once

#include "test_machine.hpp"

namespace epccl::topology {

/// Builds PCI trees briefly. Positions are what the functions return.
class Sketch {
 public:
  int numa(int os_index) {
    NumaNode node;
    node.os_index = os_index;
    return builder.add_numa_node(std::move(node)).value();
  }
  int pci(PciKind kind, int parent, int numa_node, double gb_per_s = 30) {
    PciDevice device;
    device.bus_id = {0, next_bus_++, 0, 0};
    device.kind = kind;
    device.parent = parent;
    device.numa = numa_node;
    device.gb_per_s = gb_per_s;
    return builder.add_pci_device(device).value();
  }
  void gpu(int parent, int numa_node) {
    Gpu gpu;
    gpu.pci = pci(PciKind::endpoint, parent, numa_node);
    gpu.bus_id = builder.so_far().pci_devices[static_cast<size_t>(gpu.pci)].bus_id;
    EXPECT_TRUE(builder.add_gpu(std::move(gpu), {}).ok());
  }
  void nic(int parent, int numa_node, int64_t mbit, bool up = true) {
    Nic nic;
    nic.pci = pci(PciKind::endpoint, parent, numa_node);
    nic.speed_mbit = mbit;
    nic.up = up;
    EXPECT_TRUE(builder.add_nic(std::move(nic)).ok());
  }
  Machine build() { return std::move(builder).build().value(); }

  MachineBuilder builder;

 private:
  uint8_t next_bus_ = 1;
};

/// One host bridge with `switches` switches below it.
struct OneBridge : Sketch {
  int node = numa(0);
  int bridge = pci(PciKind::host_bridge, -1, node);
  int new_switch(int parent) { return pci(PciKind::pci_switch, parent, node); }
};

}  // namespace epccl::topology
