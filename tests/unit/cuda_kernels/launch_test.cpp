// How launches cut work into tiles, and how many blocks they have.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include "device/kernels/launch.hpp"

namespace epccl::device::kernels::testing {
namespace {

constexpr Kernel move = {"epccl_move", Image::rows};

/// Of a GPU of 10 multiprocessors, each of which runs 3 blocks of `move` at once.
struct SmallGpu {
  SmallGpu() { residency.set(move, 3); }
  Grid grid(uint32_t most_blocks = 0) const { return {most_blocks, 10, &residency}; }
  Residency residency;
};

TEST(Grid, HasBlocksForAllWorkWhereThatIsLittle) {
  EXPECT_EQ(SmallGpu().grid().blocks_in_turn(move, 7), 7U);
  EXPECT_EQ(SmallGpu().grid().blocks_in_turn(move, 0), 0U);
}

TEST(Grid, HasTwiceWhatRunsAtOnceWhereWarpsTakeTilesInTurn) {
  EXPECT_EQ(SmallGpu().grid().blocks_in_turn(move, 1'000'000), 60U);
}

// For each of which there is enough to move.
TEST(Grid, HasMoreBlocksWhereMuchIsCopied) {
  constexpr uint64_t of_block = 40 << 10;
  EXPECT_EQ(SmallGpu().grid().blocks_in_turn(move, 1'000'000, 10 * of_block), 60U);
  EXPECT_EQ(SmallGpu().grid().blocks_in_turn(move, 1'000'000, 100 * of_block), 100U);
  EXPECT_EQ(SmallGpu().grid().blocks_in_turn(move, 1'000'000, 1'000'000 * of_block), 240U);
  EXPECT_EQ(SmallGpu().grid().blocks_in_turn(move, 70, 1'000'000 * of_block), 70U);
  SmallGpu gpu;
  const Kernel sum = {"epccl_sum_float32", Image::sums};
  gpu.residency.set(sum, 3);
  EXPECT_EQ(gpu.grid().blocks_in_turn(sum, 1'000'000, 1'000'000 * of_block), 60U);
}

TEST(Grid, HasNoMoreBlocksThanItIsTold) {
  EXPECT_EQ(SmallGpu().grid(8).blocks_in_turn(move, 1'000'000), 8U);
  EXPECT_EQ(SmallGpu().grid(100).blocks_in_turn(move, 1'000'000), 60U);
  EXPECT_EQ(SmallGpu().grid(100).blocks(1'000'000), 100U);
}

TEST(Grid, HasManyBlocksAMultiprocessorWhereNothingIsKnownOfTheKernel) {
  const Kernel other = {"epccl_spread", Image::rows};
  EXPECT_EQ(SmallGpu().grid().blocks_in_turn(other, 1'000'000), 320U);
  EXPECT_EQ((Grid{0, 10}).blocks_in_turn(move, 1'000'000), 320U);
}

/// A row of `bytes` for each of as many rows, to `destination`.
Launch<MoveParameters> moved(uint64_t bytes, const std::byte* destination, uint64_t stride) {
  MoveParameters parameters;
  parameters.parts[0] = {{}, {const_cast<std::byte*>(destination), stride}, bytes};  // not written here
  parameters.part_count = 1;
  parameters.rows.most = 8;
  return move_launch(parameters, {});
}

// A tile has 2048 bytes.
TEST(MoveLaunch, HasNoTileMoreThanAnAlignedRowNeeds) {
  alignas(16) const std::array<std::byte, 16> memory{};
  EXPECT_EQ(moved(14336, memory.data(), 14336).parameters.parts[0].tiles, 7U);
  EXPECT_EQ(moved(14336, memory.data(), 14336).blocks, 7U) << "8 rows, a warp for each tile";
  EXPECT_EQ(moved(14337, memory.data(), 14352).parameters.parts[0].tiles, 8U);
  EXPECT_EQ(moved(1, memory.data(), 16).parameters.parts[0].tiles, 1U);
}

TEST(MoveLaunch, HasATileForWhatAMisalignedRowHasAtItsEnds) {
  alignas(16) const std::array<std::byte, 16> memory{};
  EXPECT_EQ(moved(14336, memory.data() + 1, 14336).parameters.parts[0].tiles, 8U);
  EXPECT_EQ(moved(14336, memory.data(), 14337).parameters.parts[0].tiles, 8U) << "but for the first row";
}

TEST(SpreadLaunch, CountsTilesForTheWorstOfAllPlaces) {
  alignas(16) std::array<std::byte, 16> memory{};
  SpreadParameters parameters;
  parameters.part_count = 1;
  parameters.parts[0].bytes = parameters.parts[0].destination_stride = 4096;
  parameters.parts[0].destinations[0] = memory.data();
  parameters.parts[0].destinations[1] = memory.data();
  parameters.rows.most = parameters.width = 1;
  EXPECT_EQ(spread_launch(parameters, {}).parameters.parts[0].tiles, 2U);
  parameters.parts[0].destinations[1] = memory.data() + 4;
  EXPECT_EQ(spread_launch(parameters, {}).parameters.parts[0].tiles, 3U);
}

TEST(QuantiseLaunch, SaysWhetherAllPlacesTakeWholeVectors) {
  alignas(16) std::array<std::byte, 32> memory{};
  SpreadParameters parameters;
  parameters.elements = 256;
  parameters.parts[0] = {{memory.data(), 512}, 512, 256, {memory.data(), memory.data() + 16}};
  parameters.parts[1] = {{}, 8, 8, {memory.data(), memory.data() + 4}};
  const auto aligned = [&] { return quantise_launch(RowType::bfloat16, parameters, {}).parameters.aligned; };
  EXPECT_EQ(aligned(), 1U);
  parameters.parts[1].destinations[1] = memory.data() + 2;
  EXPECT_EQ(aligned(), 0U);
  parameters.parts[1].destinations[1] = memory.data() + 4;
  parameters.parts[0].destinations[1] = memory.data() + 8;
  EXPECT_EQ(aligned(), 0U);
  parameters.parts[0].destinations[1] = memory.data();
  parameters.parts[0].destination_stride = 264;
  EXPECT_EQ(aligned(), 0U);
  parameters.parts[0].destination_stride = 256;
  parameters.elements = 248;
  EXPECT_EQ(aligned(), 0U);
}

}  // namespace
}  // namespace epccl::device::kernels::testing
