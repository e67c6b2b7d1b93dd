// Path classes and the choice of NICs, on machines made for the purpose.
#include "sketch.hpp"

namespace epccl::topology {
namespace {

using Ints = std::vector<int>;

TEST(PathClass, GrowsWithWhatIsCrossed) {
  Sketch sketch;
  const int node0 = sketch.numa(0), node1 = sketch.numa(1);
  const int bridge = sketch.pci(PciKind::host_bridge, -1, node0);
  const int upper = sketch.pci(PciKind::pci_switch, bridge, node0);
  const int lower = sketch.pci(PciKind::pci_switch, upper, node0);
  sketch.gpu(lower, node0);                                        // 0
  sketch.gpu(lower, node0);                                        // 1
  sketch.gpu(upper, node0);                                        // 2
  sketch.gpu(bridge, node0);                                       // 3
  sketch.gpu(sketch.pci(PciKind::host_bridge, -1, node0), node0);  // 4
  sketch.gpu(sketch.pci(PciKind::host_bridge, -1, node1), node1);  // 5
  const Machine machine = sketch.build();
  const std::vector<PathClass> expected{PathClass::loc, PathClass::pix,  PathClass::pxb,
                                        PathClass::phb, PathClass::node, PathClass::sys};
  for (int gpu = 0; gpu < 6; ++gpu) {
    EXPECT_EQ(gpu_path(machine, 0, gpu), expected[static_cast<size_t>(gpu)]) << gpu;
    EXPECT_EQ(gpu_path(machine, gpu, 0), expected[static_cast<size_t>(gpu)]) << "and back: " << gpu;
  }
}

TEST(PathClass, WithoutPciNumaNodesDecide) {
  MachineBuilder builder;
  Gpu gpu;
  for (int i = 0; i < 4; ++i) {
    gpu.bus_id.bus = static_cast<uint8_t>(i);
    gpu.numa = i == 3 ? -1 : i / 2;
    ASSERT_TRUE(builder.add_gpu(gpu, {}).ok());
  }
  const Machine machine = std::move(builder).build().value();
  EXPECT_EQ(gpu_path(machine, 0, 1), PathClass::node);
  EXPECT_EQ(gpu_path(machine, 0, 2), PathClass::sys);
  EXPECT_EQ(gpu_path(machine, 3, 3), PathClass::loc);
  EXPECT_EQ(gpu_path(machine, 2, 3), PathClass::sys) << "unknown is taken for far";
}

TEST(Connection, TakesTheGpuWithFewerLinksIntoTheFabric) {
  OneBridge sketch;
  for (int i = 0; i < 3; ++i) sketch.gpu(sketch.bridge, sketch.node);
  const auto& gpus = sketch.builder.so_far().gpus;
  const BusId a = gpus[0].bus_id, b = gpus[1].bus_id;
  ASSERT_TRUE(sketch.builder.add_link(a, LinkKind::nvlink, LinkEnd::gpu_switch, "s0", 4).ok());
  ASSERT_TRUE(sketch.builder.add_link(a, LinkKind::nvlink, LinkEnd::gpu_switch, "s1", 2).ok());
  ASSERT_TRUE(sketch.builder.add_link(b, LinkKind::nvlink, LinkEnd::gpu_switch, "s1", 3).ok());
  const Machine machine = sketch.build();
  EXPECT_EQ(connection(machine, 0, 1).count, 3);
  EXPECT_EQ(connection(machine, 0, 2).count, 0);
}

TEST(Connection, CountsALinkThatOnlyOneSideLists) {
  OneBridge sketch;
  sketch.gpu(sketch.bridge, sketch.node);
  sketch.gpu(sketch.bridge, sketch.node);
  const auto& gpus = sketch.builder.so_far().gpus;
  ASSERT_TRUE(
      sketch.builder.add_link(gpus[0].bus_id, LinkKind::xgmi, LinkEnd::gpu, gpus[1].bus_id.to_string(), 2)
          .ok());
  const Machine machine = sketch.build();
  EXPECT_EQ(connection(machine, 0, 1).count, 2);
  EXPECT_EQ(connection(machine, 1, 0).count, 2);
  EXPECT_EQ(gpu_path(machine, 1, 0), PathClass::nvl);
}

TEST(NearestNics, PreferThePathThenTheRate) {
  OneBridge sketch;
  const int near = sketch.new_switch(sketch.bridge);
  sketch.gpu(near, sketch.node);
  sketch.nic(near, sketch.node, 50'000);            // 0
  sketch.nic(near, sketch.node, 100'000);           // 1
  sketch.nic(sketch.bridge, sketch.node, 200'000);  // 2
  const Machine machine = sketch.build();
  EXPECT_EQ(nearest_nics(machine, 0), Ints{1});
}

TEST(NearestNics, AManagementPortBesideTheGpuIsNoMatchForAFabricPort) {
  OneBridge sketch;
  const int near = sketch.new_switch(sketch.bridge);
  sketch.gpu(near, sketch.node);
  sketch.nic(near, sketch.node, 1000);
  sketch.nic(sketch.bridge, sketch.node, 100'000);
  const Machine machine = sketch.build();
  EXPECT_EQ(nearest_nics(machine, 0), Ints{1});
}

TEST(NearestNics, LeaveOutPortsThatAreDownWhileOthersAreUp) {
  OneBridge sketch;
  const int near = sketch.new_switch(sketch.bridge);
  sketch.gpu(near, sketch.node);
  sketch.nic(near, sketch.node, 100'000, false);
  sketch.nic(sketch.bridge, sketch.node, 100'000);
  Machine machine = sketch.build();
  EXPECT_EQ(nearest_nics(machine, 0), Ints{1});
  machine.nics[1].up = false;
  EXPECT_EQ(nearest_nics(machine, 0), Ints{0}) << "all are down: the closest";
}

TEST(AssignNics, GpusOfASwitchTakeTurns) {
  OneBridge sketch;
  for (int i = 0; i < 2; ++i) {
    const int near = sketch.new_switch(sketch.bridge);
    for (int k = 0; k < 4; ++k) sketch.gpu(near, sketch.node);
    for (int k = 0; k < 2; ++k) sketch.nic(near, sketch.node, 100'000);
  }
  EXPECT_EQ(assign_nics(sketch.build()), (Ints{0, 1, 0, 1, 2, 3, 2, 3}));
}

TEST(PlaceRanks, MoreRanksThanGpusShareThem) {
  OneBridge sketch;
  for (int i = 0; i < 2; ++i) {
    sketch.gpu(sketch.bridge, sketch.node);
    sketch.nic(sketch.bridge, sketch.node, 100'000);
  }
  const auto places = place_ranks(sketch.build(), 5);
  Ints gpus, nics;
  for (const LocalPlace& place : places) {
    gpus.push_back(place.gpu);
    nics.push_back(place.nic());
  }
  EXPECT_EQ(gpus, (Ints{0, 1, 0, 1, 0}));
  EXPECT_EQ(nics, (Ints{0, 1, 0, 1, 0}));
}

TEST(PlaceRanks, WithoutGpusTheFastestNicsAreShared) {
  OneBridge sketch;
  for (const int64_t mbit : {100'000, 25'000, 100'000}) sketch.nic(sketch.bridge, sketch.node, mbit);
  const auto places = place_ranks(sketch.build(), 3);
  Ints nics;
  for (const LocalPlace& place : places) {
    EXPECT_EQ(place.gpu, -1);
    nics.push_back(place.nic());
  }
  EXPECT_EQ(nics, (Ints{0, 2, 0}));
  EXPECT_EQ(place_ranks(Machine{}, 2).at(1).nic(), -1) << "nothing to place on";
}

}  // namespace
}  // namespace epccl::topology
