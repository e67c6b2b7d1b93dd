// How bus ids, CPU sets and link speeds are written.
#include <gtest/gtest.h>

#include <tuple>

#include "topology/bus_id.hpp"
#include "topology/cpu_list.hpp"
#include "topology/pci_ids.hpp"
#include "topology/verbs_ports.hpp"

namespace epccl::topology {
namespace {

TEST(BusId, ReadsTheKernelsAndDriversForms) {
  EXPECT_EQ(BusId::parse("0000:3b:1d.7"), (BusId{0, 0x3b, 0x1d, 7}));
  EXPECT_EQ(BusId::parse("3b:00.0"), (BusId{0, 0x3b, 0, 0}));
  EXPECT_EQ(BusId::parse("00000000:3B:00.0"), (BusId{0, 0x3b, 0, 0}));
  EXPECT_EQ(BusId::parse("ffff:ff:01.0"), (BusId{0xffff, 0xff, 1, 0}));
  EXPECT_EQ(BusId::parse("10000:e1:00.0")->to_string(), "10000:e1:00.0");
}

TEST(BusId, RefusesWhatIsNone) {
  for (const char* text :
       {"", ":", ".", "0000", "0000:3b:00", "0000:3b:00.8", "0000:3b:20.0", "0000:100:00.0", "g000:3b:00.0",
        "0:0:0:0.0", "0000:3b:00.0 ", "-1:3b:00.0", "100000000:3b:00.0", "fffffff:ffff:ff"})
    EXPECT_FALSE(BusId::parse(text)) << text;
}

TEST(CpuList, FormatsRanges) {
  EXPECT_EQ(format_cpu_list({}), "");
  EXPECT_EQ(format_cpu_list({4}), "4");
  EXPECT_EQ(format_cpu_list({0, 1, 2, 5, 8, 9}), "0-2,5,8-9");
}

TEST(CpuList, ReadsMasksHighestWordFirst) {
  EXPECT_EQ(*parse_cpu_mask("00000001,80000000"), (CpuList{31, 32}));
  EXPECT_EQ(*parse_cpu_mask("ff"), (CpuList{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(parse_cpu_mask("")->empty());
  for (const char* text : {"xyz", "1,,1", "123456789", ",", "0-3"})
    EXPECT_FALSE(parse_cpu_mask(text).ok()) << text;
  EXPECT_FALSE(parse_cpu_mask(std::string(1 << 20, 'f')).ok());
}

TEST(GpuLinkRate, OfAnUnknownArchitectureIsThatOfTheNewestKnownBeforeIt) {
  EXPECT_EQ(gpu_link_rate(LinkKind::nvlink, "sm_90").gb_per_s, 25);
  EXPECT_TRUE(gpu_link_rate(LinkKind::nvlink, "sm_90").known);
  EXPECT_EQ(gpu_link_rate(LinkKind::nvlink, "sm_103").gb_per_s, 50);
  EXPECT_TRUE(gpu_link_rate(LinkKind::nvlink, "sm_103").known);
  for (const auto& [kind, arch, rate, like] : {std::tuple(LinkKind::nvlink, "sm_120", 50., "sm_103"),
                                               {LinkKind::nvlink, "sm_75", 25., "sm_70"},
                                               {LinkKind::nvlink, "sm_50", 25., ""},
                                               {LinkKind::nvlink, "", 25., ""},
                                               {LinkKind::nvlink, "gfx942", 25., ""},
                                               {LinkKind::xgmi, "gfx950", 64., "gfx942"},
                                               {LinkKind::xgmi, "gfx909", 46., "gfx908"},
                                               {LinkKind::xgmi, "gfxyz", 50., ""}}) {
    const GpuLinkRate found = gpu_link_rate(kind, arch);
    EXPECT_FALSE(found.known) << arch;
    EXPECT_EQ(found.gb_per_s, rate) << arch;
    EXPECT_EQ(found.like, like) << arch;
  }
}

TEST(PcieRate, FollowsGenerationAndWidth) {
  EXPECT_DOUBLE_EQ(*pcie_gb_per_s("2.5 GT/s PCIe", 1), 0.25);
  EXPECT_DOUBLE_EQ(*pcie_gb_per_s("5.0 GT/s", 16), 8);
  EXPECT_NEAR(*pcie_gb_per_s("16 GT/s", 16), 31.51, 0.01);
  EXPECT_NEAR(*pcie_gb_per_s("32.0 GT/s PCIe", 16), 63.02, 0.01);
  EXPECT_EQ(*pcie_gb_per_s("Unknown", 16), 0);
  EXPECT_EQ(*pcie_gb_per_s("8 GT/s", 255), 0) << "the kernel's word for an unknown width";
  for (const char* text : {"fast", "8", "GT/s", "-8 GT/s", "nan GT/s", "8 MB/s", "1e300 GT/s"})
    EXPECT_FALSE(pcie_gb_per_s(text, 16)) << text;
}

TEST(PciClass, TellsGpusFromConsoles) {
  EXPECT_TRUE(is_gpu_class(0x030200, vendor_nvidia));
  EXPECT_TRUE(is_gpu_class(0x038000, vendor_amd));
  EXPECT_TRUE(is_gpu_class(0x120000, vendor_amd));
  EXPECT_FALSE(is_gpu_class(0x030000, 0x1a03)) << "a server's VGA console";
  EXPECT_FALSE(is_gpu_class(0x038000, vendor_virtio));
  EXPECT_FALSE(is_gpu_class(0x020000, vendor_nvidia));
}

TEST(InfinibandRate, IsLanesTimesLaneRate) {
  EXPECT_EQ(infiniband_mbit(2, 64), 200'000) << "HDR, 4 lanes";
  EXPECT_EQ(infiniband_mbit(2, 128), 400'000) << "NDR, 4 lanes";
  EXPECT_EQ(infiniband_mbit(16, 64), 100'000) << "HDR100, 2 lanes";
  EXPECT_EQ(infiniband_mbit(2, 0), 0);
  EXPECT_EQ(infiniband_mbit(3, 32), 0);
}

}  // namespace
}  // namespace epccl::topology
