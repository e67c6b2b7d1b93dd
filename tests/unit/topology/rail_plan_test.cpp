// Rails of machines made for the purpose: who gets which NIC, at what rate, and what is said about it.
#include "topology/rail_plan.hpp"

#include <algorithm>
#include <random>
#include <tuple>

#include "sketch.hpp"
#include "topology/fair_rates.hpp"
#include "topology/rail_printer.hpp"

namespace epccl::topology {
namespace {

using Ints = std::vector<int>;
using Lists = std::vector<Ints>;

RailPlan plan_of(const Machine& machine, int ranks, int nodes = 2) {
  auto plan = plan_rails(machine, nodes, ranks);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(plan).value() : RailPlan{};
}

Lists nics_of(const RailPlan& plan) {
  Lists nics;
  for (const RailPlace& place : plan.places) nics.push_back(place.nics);
  return nics;
}

std::vector<RailReason> reasons_of(const RailPlan& plan) {
  std::vector<RailReason> reasons;
  for (const RailPlace& place : plan.places) reasons.push_back(place.reason);
  return reasons;
}

void expect_says(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
}

/// GPUs and NICs of 100 Gbit/s behind one switch.
Machine one_switch(int gpus, int nics) {
  OneBridge sketch;
  const int near = sketch.new_switch(sketch.bridge);
  for (int i = 0; i < gpus; ++i) sketch.gpu(near, sketch.node);
  for (int i = 0; i < nics; ++i) sketch.nic(near, sketch.node, 100'000);
  return sketch.build();
}

TEST(FairRates, ABottleneckGivesEqualSharesAndTheRestGoesToOthers) {
  // Link 0 carries flows 0 and 1, link 1 flows 1 and 2.
  EXPECT_EQ(fair_rates({{0}, {0, 1}, {1}}, {10, 100}), (std::vector<double>{5, 5, 95}));
  EXPECT_EQ(fair_rates({{0}, {}}, {10}), (std::vector<double>{10, 0})) << "nothing limits the second";
  EXPECT_TRUE(fair_rates({}, {}).empty());
}

TEST(DealNics, TurnsStripesAndWhatIsLeftOver) {
  EXPECT_EQ(deal_nics({7, 8}, 4), (Lists{{7}, {8}, {7}, {8}}));
  EXPECT_EQ(deal_nics({4, 5, 6, 7}, 2), (Lists{{4, 5}, {6, 7}})) << "neighbours together";
  EXPECT_EQ(deal_nics({4, 5, 6}, 2), (Lists{{4, 6}, {5, 6}})) << "the third is everybody's";
  EXPECT_EQ(deal_nics({}, 2), (Lists{{}, {}}));
  EXPECT_TRUE(deal_nics({1}, 0).empty());
}

TEST(RailPlan, OneGpuWithTwoNicsStripesOverBoth) {
  const RailPlan plan = plan_of(one_switch(1, 2), 1);
  EXPECT_EQ(nics_of(plan), (Lists{{0, 1}}));
  EXPECT_EQ(plan.places[0].reason, RailReason::striped);
  EXPECT_DOUBLE_EQ(plan.places[0].gb_per_s, 25);
  EXPECT_EQ(plan.places[0].path, PathClass::pix);
  EXPECT_FALSE(plan.places[0].through_cpu);
  expect_says(plan.places[0].why, "stripes over 0000:04:00.0 and 0000:05:00.0");
}

TEST(RailPlan, StripesDoNotPromiseMoreThanTheGpusLink) {
  OneBridge sketch;
  const int near = sketch.new_switch(sketch.bridge);
  sketch.gpu(near, sketch.node);  // its link has 30 GB/s
  for (int i = 0; i < 2; ++i) sketch.nic(near, sketch.node, 200'000);
  const RailPlan plan = plan_of(sketch.build(), 1);
  EXPECT_DOUBLE_EQ(plan.places[0].gb_per_s, 30) << "two NICs could carry 50";
  ASSERT_EQ(plan.notes.size(), 1u);
  expect_says(plan.notes[0], "30.0 GB/s for GPU 0");
}

TEST(RailPlan, PortsOfOneCardShareItsLink) {
  OneBridge sketch;
  const int near = sketch.new_switch(sketch.bridge);
  sketch.gpu(near, sketch.node);
  PciDevice card;
  card.bus_id = {0, 0x50, 0, 0};
  card.parent = near;
  card.gb_per_s = 16;
  for (const uint8_t function : {0, 1}) {
    card.bus_id.function = function;
    Nic nic;
    nic.pci = sketch.builder.add_pci_device(card).value();
    nic.speed_mbit = 100'000;
    ASSERT_TRUE(sketch.builder.add_nic(std::move(nic)).ok());
  }
  const RailPlan plan = plan_of(sketch.build(), 1);
  EXPECT_EQ(plan.places[0].nics.size(), 2u);
  EXPECT_DOUBLE_EQ(plan.places[0].gb_per_s, 16) << "not 25";
}

TEST(RailPlan, SeveralGpusOnOneNicShareItsRate) {
  const RailPlan plan = plan_of(one_switch(4, 1), 4);
  EXPECT_EQ(nics_of(plan), (Lists{{0}, {0}, {0}, {0}}));
  for (const RailPlace& place : plan.places) {
    EXPECT_EQ(place.reason, RailReason::shared);
    EXPECT_DOUBLE_EQ(place.gb_per_s, 3.125);
    EXPECT_DOUBLE_EQ(place.alone_gb_per_s, 12.5);
  }
  expect_says(plan.places[1].why, "with GPU 0, GPU 2 and GPU 3: no other is as near");
  ASSERT_EQ(plan.rails.size(), 1u);
  EXPECT_EQ(plan.rails[0].locals, (Ints{0, 1, 2, 3}));
  EXPECT_DOUBLE_EQ(plan.node_gb_per_s, 12.5);
}

TEST(RailPlan, MoreGpusThanNicsAreUnevenAndThatIsSaid) {
  const RailPlan plan = plan_of(one_switch(3, 2), 3);
  EXPECT_EQ(nics_of(plan), (Lists{{0}, {1}, {0}}));
  EXPECT_EQ(reasons_of(plan), (std::vector{RailReason::shared, RailReason::turn, RailReason::shared}));
  EXPECT_DOUBLE_EQ(plan.places[1].gb_per_s, 12.5);
  EXPECT_DOUBLE_EQ(plan.places[2].gb_per_s, 6.25);
  expect_says(plan.places[0].why, "there are more GPUs than NICs near them");
  ASSERT_EQ(plan.notes.size(), 1u);
  expect_says(plan.notes[0], "6.2 to 12.5 GB/s");
}

TEST(RailPlan, ALeftOverNicIsSharedSoThatNoRailIsSlower) {
  const RailPlan plan = plan_of(one_switch(2, 3), 2);
  EXPECT_EQ(nics_of(plan), (Lists{{0, 2}, {1, 2}}));
  for (const RailPlace& place : plan.places) {
    EXPECT_EQ(place.reason, RailReason::partly_shared);
    EXPECT_DOUBLE_EQ(place.gb_per_s, 18.75);
    EXPECT_DOUBLE_EQ(place.alone_gb_per_s, 25);
  }
}

TEST(RailPlan, FewerRanksThanGpusHaveMoreNicsEach) {
  const Machine machine = one_switch(4, 4);
  EXPECT_EQ(nics_of(plan_of(machine, 4)), (Lists{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(nics_of(plan_of(machine, 2)), (Lists{{0, 1}, {2, 3}}));
  EXPECT_EQ(nics_of(plan_of(machine, 1)), (Lists{{0, 1, 2, 3}}));
}

TEST(RailPlan, MoreRanksThanGpusShareTheGpuAndItsNics) {
  const RailPlan plan = plan_of(one_switch(2, 2), 4);
  EXPECT_EQ(nics_of(plan), (Lists{{0}, {1}, {0}, {1}}));
  EXPECT_EQ(plan.places[2].gpu, 0);
  EXPECT_DOUBLE_EQ(plan.places[2].gb_per_s, 6.25);
}

/// What a rank of a communicator uses that has `ranks` on this node.
Ints nics_of_rank(const Machine& machine, int ranks, int local, std::optional<BusId> gpu = std::nullopt) {
  const auto place = place_of_rank(machine, 2, ranks, local, gpu);
  EXPECT_TRUE(place.ok()) << place.status().message();
  return place.ok() ? place->nics : Ints{};
}

// As data parallelism has them beside expert parallelism: eight communicators, each with the same GPU of every node.
TEST(PlaceOfRank, CommunicatorsOfOneRankANodeUseTheNicsOfTheirGpus) {
  for (const char* name : {"nccl-oci-h100.xml", "nccl-azure-ndv4.xml"}) {
    const Machine machine = load(name);
    const Lists all = nics_of(plan_of(machine, static_cast<int>(machine.gpus.size())));
    for (size_t gpu = 0; gpu < all.size(); ++gpu)
      EXPECT_EQ(nics_of_rank(machine, 1, 0, machine.gpus[gpu].bus_id), all[gpu]) << name << ", GPU " << gpu;
  }
}

TEST(PlaceOfRank, PositionsDoNotMatterWhereTheGpuIsKnown) {
  const Machine machine = one_switch(4, 4);
  for (const int local : {0, 1}) EXPECT_EQ(nics_of_rank(machine, 2, local, machine.gpus[3].bus_id), Ints{3});
  EXPECT_EQ(place_of_rank(machine, 2, 2, 1, machine.gpus[3].bus_id)->gpu, 3);
}

TEST(PlaceOfRank, ARankWhoseGpuIsNotKnownHasThatOfItsPosition) {
  const Machine machine = one_switch(4, 4);
  EXPECT_EQ(nics_of_rank(machine, 4, 2), Ints{2});
  EXPECT_EQ(nics_of_rank(machine, 2, 1), (Ints{2, 3}));
  EXPECT_EQ(nics_of_rank(machine, 4, 2, BusId{7, 7, 7, 0}), Ints{2})
      << "a GPU that the machine does not show";
  EXPECT_EQ(place_of_rank(machine, 2, 2, 2, std::nullopt).status().code(), Code::invalid_argument);
}

TEST(RailPlan, WithoutNicsEverythingGoesThroughTheHost) {
  const RailPlan plan = plan_of(one_switch(2, 0), 2);
  EXPECT_EQ(reasons_of(plan), (std::vector{RailReason::no_nic, RailReason::no_nic}));
  EXPECT_TRUE(plan.rails.empty());
  EXPECT_EQ(plan.node_gb_per_s, 0) << "not known";
  EXPECT_TRUE(plan.places[0].through_cpu);
  expect_says(plan.places[0].why, "through host memory and the host's own network");
  const auto groups = rail_groups(plan);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].locals, (Ints{0, 1}));
}

TEST(RailPlan, ANicThatIsDownIsPassedOverAndNamed) {
  OneBridge sketch;
  const int near = sketch.new_switch(sketch.bridge);
  sketch.gpu(near, sketch.node);
  sketch.nic(near, sketch.node, 100'000, false);
  sketch.nic(sketch.bridge, sketch.node, 100'000);
  const RailPlan plan = plan_of(sketch.build(), 1);
  EXPECT_EQ(nics_of(plan), (Lists{{1}}));
  EXPECT_TRUE(plan.places[0].through_cpu);
  expect_says(plan.places[0].why, "0000:04:00.0 is nearer but down");
  ASSERT_EQ(plan.unused.size(), 1u);
  EXPECT_EQ(plan.unused[0].nic, 0);
  EXPECT_EQ(plan.unused[0].why, "down");
}

TEST(RailPlan, AManagementPortIsNotUsedAndThatIsSaid) {
  OneBridge sketch;
  const int near = sketch.new_switch(sketch.bridge);
  sketch.gpu(near, sketch.node);
  sketch.nic(near, sketch.node, 1000);
  sketch.nic(sketch.bridge, sketch.node, 100'000);
  const RailPlan plan = plan_of(sketch.build(), 1);
  EXPECT_EQ(nics_of(plan), (Lists{{1}}));
  expect_says(plan.places[0].why, "nearer but less than a tenth as fast");
  ASSERT_EQ(plan.unused.size(), 1u);
  expect_says(plan.unused[0].why, "less than a tenth");
}

TEST(RailPlan, AVirtualMachineWithoutSwitchesPairsWithinNumaNodes) {
  Sketch sketch;
  for (const int node : {sketch.numa(0), sketch.numa(1)}) {
    for (int i = 0; i < 2; ++i) sketch.gpu(sketch.pci(PciKind::host_bridge, -1, node, 0), node);
    for (int i = 0; i < 2; ++i) sketch.nic(sketch.pci(PciKind::host_bridge, -1, node, 0), node, 100'000);
  }
  const RailPlan plan = plan_of(sketch.build(), 4);
  EXPECT_EQ(nics_of(plan), (Lists{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(plan.places[3].path, PathClass::node);
  ASSERT_FALSE(plan.notes.empty());
  expect_says(plan.notes[0], "no PCIe switch is visible (a virtual machine?)");
}

TEST(RailPlan, AVirtualMachineThatShowsNothingPairsInOrder) {
  Sketch sketch;
  for (int i = 0; i < 4; ++i) sketch.gpu(sketch.pci(PciKind::host_bridge, -1, -1, 0), -1);
  for (int i = 0; i < 4; ++i) sketch.nic(sketch.pci(PciKind::host_bridge, -1, -1, 0), -1, 100'000);
  const RailPlan plan = plan_of(sketch.build(), 4);
  EXPECT_EQ(nics_of(plan), (Lists{{0}, {1}, {2}, {3}}));
  expect_says(plan.places[2].why, "it is not known where");
}

TEST(RailPlan, AGpuFarFromANicLearnsOfANeighbourThatIsNear) {
  Sketch sketch;
  const int node0 = sketch.numa(0), node1 = sketch.numa(1);
  const int near = sketch.pci(PciKind::pci_switch, sketch.pci(PciKind::host_bridge, -1, node0), node0);
  sketch.gpu(near, node0);
  sketch.nic(near, node0, 100'000);
  sketch.gpu(sketch.pci(PciKind::host_bridge, -1, node1), node1);
  const auto gpus = sketch.builder.so_far().gpus;
  ASSERT_TRUE(
      sketch.builder.add_link(gpus[1].bus_id, LinkKind::nvlink, LinkEnd::gpu, gpus[0].bus_id.to_string(), 4)
          .ok());
  const RailPlan plan = plan_of(sketch.build(), 2);
  EXPECT_EQ(plan.places[0].better_relay, -1);
  EXPECT_EQ(plan.places[1].better_relay, 0);
  expect_says(plan.places[1].why, "GPU 0, one link away");
}

TEST(RailPlan, RanksWithoutGpusHaveTheFastestNicsDealtOut) {
  OneBridge sketch;
  for (const int64_t mbit : {100'000, 25'000, 100'000}) sketch.nic(sketch.bridge, sketch.node, mbit);
  const Machine machine = sketch.build();
  EXPECT_EQ(nics_of(plan_of(machine, 3)), (Lists{{0}, {2}, {0}}));
  const RailPlan one = plan_of(machine, 1);
  EXPECT_EQ(nics_of(one), (Lists{{0, 2}}));
  EXPECT_EQ(one.places[0].reason, RailReason::any);
  ASSERT_EQ(one.unused.size(), 1u);
  EXPECT_EQ(one.unused[0].why, "slower than the fastest");
}

TEST(RailPlan, ARankWithoutAGpuGetsNoMoreThanTheLinkOfItsNic) {
  OneBridge sketch;
  sketch.nic(sketch.bridge, sketch.node, 400'000);  // its PCIe link has 30 GB/s, not 50
  EXPECT_DOUBLE_EQ(plan_of(sketch.build(), 1).places[0].gb_per_s, 30);
}

TEST(RailPlan, RanksWithoutGpusShareTheLinksAboveTheirNics) {
  OneBridge sketch;
  const int near = sketch.pci(PciKind::pci_switch, sketch.bridge, sketch.node, 16);
  for (int i = 0; i < 2; ++i) sketch.nic(near, sketch.node, 200'000);
  const Machine machine = sketch.build();
  const RailPlan plan = plan_of(machine, 2);
  EXPECT_DOUBLE_EQ(plan.node_gb_per_s, 16) << "not 50";
  EXPECT_DOUBLE_EQ(plan.places[0].gb_per_s, 8);
  EXPECT_DOUBLE_EQ(plan.places[0].alone_gb_per_s, 16);
  ASSERT_FALSE(plan.notes.empty());
  expect_says(plan.notes[0],
              "2 ranks' PCIe links on the way carry less than the NICs: 16.0 GB/s for local rank 0");
}

TEST(RailPlan, RatesThatDifferAreToldApart) {
  OneBridge sketch;
  for (const int64_t mbit : {100'000, 98'000}) {
    const int near = sketch.new_switch(sketch.bridge);
    sketch.gpu(near, sketch.node);
    sketch.nic(near, sketch.node, mbit);
  }
  const RailPlan plan = plan_of(sketch.build(), 2);
  ASSERT_EQ(plan.notes.size(), 1u);
  expect_says(plan.notes[0], "12.2 to 12.5 GB/s");
  OneBridge close;
  for (const int64_t mbit : {10'000, 9'850}) {
    const int near = close.new_switch(close.bridge);
    close.gpu(near, close.node);
    close.nic(near, close.node, mbit);
  }
  expect_says(plan_of(close.build(), 2).notes.at(0), "1.23 to 1.25 GB/s");
}

TEST(RailPlan, AgreesWithPlacesAndAssignments) {
  for (const char* name :
       {"nccl-aws-p4d.xml", "nccl-azure-ndv4.xml", "nccl-oci-h100.xml", "rccl-8x-mi250x.xml",
        "hwloc-dgx2.xml", "hwloc-juwels-booster-4a100-4hdr.xml", "hwloc-corona-mi.xml"}) {
    const Machine machine = load(name);
    const int gpus = static_cast<int>(machine.gpus.size());
    const Ints assigned = assign_nics(machine);
    for (int ranks = 1; ranks <= 2 * gpus; ++ranks) {
      const RailPlan plan = plan_of(machine, ranks);
      const auto places = place_ranks(machine, ranks);
      for (size_t local = 0; local < places.size(); ++local) {
        const auto& nics = plan.places[local].nics;
        EXPECT_EQ(places[local].gpu, plan.places[local].gpu) << name;
        EXPECT_EQ(places[local].nic(), nics.empty() ? -1 : nics.front()) << name;
        const bool all_used = ranks >= gpus;
        EXPECT_TRUE(!all_used || places[local].nic() == assigned[local % assigned.size()]) << name;
      }
    }
  }
}

/// A machine of up to 3 NUMA nodes with host bridges, switches, GPUs and NICs anywhere, rates and links down as they come.
Machine random_machine(std::mt19937& random) {
  const auto up_to = [&](uint32_t most) { return static_cast<int>(random() % (most + 1)); };
  Sketch sketch;
  std::vector<std::pair<int, int>> spots;  // PCI device, NUMA node
  for (int node = up_to(2); node >= 0; --node) {
    const int numa = sketch.numa(node);
    const int bridge = sketch.pci(PciKind::host_bridge, -1, numa, 0);
    spots.emplace_back(bridge, numa);
    for (int i = up_to(2); i > 0; --i)
      spots.emplace_back(sketch.pci(PciKind::pci_switch, bridge, numa), numa);
  }
  const auto spot = [&] { return spots[random() % spots.size()]; };
  constexpr int64_t rates[] = {0, 1000, 100'000, 200'000, 400'000};
  for (int i = up_to(8); i > 0; --i) std::apply([&](int pci, int numa) { sketch.gpu(pci, numa); }, spot());
  for (int i = up_to(8); i > 0; --i)
    std::apply([&](int pci, int numa) { sketch.nic(pci, numa, rates[random() % 5], random() % 4 != 0); },
               spot());
  return sketch.build();
}

/// What must hold of any plan.
void check_plan(const Machine& machine, const RailPlan& plan) {
  std::vector<double> carried(machine.nics.size(), 0);
  EXPECT_EQ(plan.rails.size() + plan.unused.size(), machine.nics.size())
      << "each NIC is used, or said not to be";
  for (const RailPlace& place : plan.places) {
    EXPECT_FALSE(place.why.empty());
    EXPECT_LE(place.gb_per_s, place.alone_gb_per_s * (1 + 1e-9));
    EXPECT_EQ(place.nics.empty(), machine.nics.empty());
    const auto nearest = place.gpu < 0 ? fastest_nics(machine) : nearest_nics(machine, place.gpu);
    for (const int nic : place.nics) EXPECT_NE(std::ranges::find(nearest, nic), nearest.end());
    if (place.nics.size() == 1) carried[static_cast<size_t>(place.nics[0])] += place.gb_per_s;
  }
  for (const Rail& rail : plan.rails) {
    EXPECT_LE(carried[static_cast<size_t>(rail.nic)], rail.gb_per_s * (1 + 1e-9))
        << "no NIC carries more than it can";
    for (const int local : rail.locals) {
      const auto& nics = plan.places[static_cast<size_t>(local)].nics;
      EXPECT_NE(std::ranges::find(nics, rail.nic), nics.end());
    }
  }
  std::vector<int> grouped;
  double total = 0;
  for (const RailGroup& group : rail_groups(plan)) {
    grouped.insert(grouped.end(), group.locals.begin(), group.locals.end());
    total += group.gb_per_s;
  }
  std::ranges::sort(grouped);
  ASSERT_EQ(grouped.size(), plan.places.size()) << "each rank is in one group";
  for (size_t i = 0; i < grouped.size(); ++i) EXPECT_EQ(grouped[i], static_cast<int>(i));
  EXPECT_NEAR(total, plan.node_gb_per_s, 1e-6);
  EXPECT_FALSE(format_rail_plan(machine, plan).empty());
}

TEST(RailPlan, HoldsWhatItPromisesOnAnyMachine) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300 && !::testing::Test::HasFailure(); ++round) {
    const Machine machine = random_machine(random);
    const int ranks = 1 + static_cast<int>(random() % 12);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + std::to_string(machine.gpus.size()) + " GPUs, " +
                 std::to_string(machine.nics.size()) + " NICs, " + std::to_string(ranks) + " ranks");
    check_plan(machine, plan_of(machine, ranks));
  }
}

TEST(RailPlan, GroupsAreNicsThatShareUsers) {
  const auto groups = rail_groups(plan_of(one_switch(3, 2), 3));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].nics, Ints{0});
  EXPECT_EQ(groups[0].locals, (Ints{0, 2}));
  EXPECT_DOUBLE_EQ(groups[0].gb_per_s, 12.5);
  EXPECT_EQ(groups[1].locals, Ints{1});
  const auto joined = rail_groups(plan_of(one_switch(2, 3), 2));
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0].nics, (Ints{0, 1, 2}));
  EXPECT_DOUBLE_EQ(joined[0].gb_per_s, 37.5);
}

TEST(RailPlan, RefusesNothing) {
  EXPECT_EQ(plan_rails(Machine{}, 0, 1).status().code(), Code::invalid_argument);
  EXPECT_EQ(plan_rails(Machine{}, 1, 0).status().code(), Code::invalid_argument);
  EXPECT_EQ(plan_of(Machine{}, 2, 1).places.size(), 2u) << "an unknown machine has a plan, without NICs";
}

TEST(RailPlanPrinter, TextAndJsonHaveEveryPlace) {
  const Machine machine = load("nccl-oci-h100.xml");
  const RailPlan plan = plan_of(machine, 8, 4);
  const std::string text = format_rail_plan(machine, plan);
  expect_says(text, "Rail plan: 4 nodes x 8 ranks, 16 of 16 NICs in use, 360.0 GB/s a node\n");
  expect_says(text, "  7      GPU7  mlx5_16+mlx5_17  PXB   45.0  stripes over mlx5_16 and mlx5_17");
  expect_says(text, "  mlx5_17  22.5  7\n");
  const auto json = rail_plan_json(plan);
  EXPECT_EQ(json["places"].size(), 8u);
  EXPECT_EQ(json["places"][3]["nics"], (Ints{6, 7}));
  EXPECT_EQ(json["places"][3]["reason"], "striped");
  EXPECT_EQ(json["rails"][15]["locals"], Ints{7});
}

}  // namespace
}  // namespace epccl::topology
