// The figures of GPUs are what cuDeviceGetAttribute() tells of them: multiprocessors, bus width * clock * 2.
#include "device/cuda/fewest_blocks.hpp"

#include <gtest/gtest.h>

namespace epccl::device::cuda {
namespace {

constexpr double giga = 1e9;

struct Gpu {
  const char* name;
  GpuSpeeds speeds;
};

std::vector<Gpu> known_gpus() {
  return {{"A100 80 GB", {108, 2039 * giga, link_speed(8, 0)}},
          {"H100 SXM", {132, 3352 * giga, link_speed(9, 0)}},
          {"H200", {132, 4917 * giga, link_speed(9, 0)}},
          {"B200", {148, 8184 * giga, link_speed(10, 0)}}};
}

uint32_t blocks(const GpuSpeeds& speeds, Demand::From from, int sources, int sharing) {
  return fewest_blocks(speeds, {from, sources, sharing});
}

TEST(FewestBlocks, OfKnownGpus) {
  struct Expected {
    uint32_t alone, shared_by_8, fetched_from_7, read_from_7;
  };
  const std::vector<Expected> expected{
      {150, 19, 29, 44}, {246, 31, 43, 66}, {361, 46, 43, 66}, {592, 75, 85, 132}};
  const std::vector<Gpu> gpus = known_gpus();
  for (size_t i = 0; i < gpus.size(); ++i) {
    SCOPED_TRACE(gpus[i].name);
    const GpuSpeeds& speeds = gpus[i].speeds;
    EXPECT_EQ(blocks(speeds, Demand::From::here, 8, 1), expected[i].alone);
    EXPECT_EQ(blocks(speeds, Demand::From::here, 8, 8), expected[i].shared_by_8);
    EXPECT_EQ(blocks(speeds, Demand::From::fetched, 8, 1), expected[i].fetched_from_7);
    EXPECT_EQ(blocks(speeds, Demand::From::peers, 8, 1), expected[i].read_from_7);
  }
}

TEST(FewestBlocks, AreWhatLittlesLawAsksFor) {
  // 600 ns of 1 TB/s are 600 KB under way, of which a block has 8 KiB.
  EXPECT_EQ(fewest_blocks({1000, 1000 * giga, 0}, {}), 74U);
  // Half of it for each of two ranks.
  EXPECT_EQ(fewest_blocks({1000, 1000 * giga, 0}, {Demand::From::here, 1, 2}), 37U);
  // A sum of two reads two bytes and writes one for each that comes over the link.
  EXPECT_EQ(fewest_blocks({1000, 1000 * giga, 100 * giga}, {Demand::From::fetched, 2, 1}), 22U);
  // No link brings more than memory takes.
  EXPECT_EQ(fewest_blocks({1000, 1000 * giga, 5000 * giga}, {Demand::From::fetched, 2, 1}), 74U);
}

TEST(FewestBlocks, AreAtLeastOneAndNoMoreThanRunAtOnce) {
  EXPECT_EQ(fewest_blocks({100, 1, 1}, {}), 1U);
  EXPECT_EQ(fewest_blocks({10, 8000 * giga, 0}, {}), 40U);
  EXPECT_EQ(fewest_blocks({10, 0, 0}, {}), 40U) << "a GPU that does not tell its speed";
  EXPECT_EQ(fewest_blocks({}, {}), 4U);
}

}  // namespace
}  // namespace epccl::device::cuda
