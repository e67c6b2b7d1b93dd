// Where the driver refuses a part of what a call gives it, the rest is through when the call returns.
#include <cuda.h>
#include <gtest/gtest.h>

#include <array>

#include "fake_driver.hpp"
#include "rank_with_gpu.hpp"
#include "staged.hpp"

namespace epccl::runtime {
namespace {

constexpr uint64_t piece = 4 * KiB;

/// Of copies that are queued one by one the driver refuses the second.
class Refusing {
 public:
  Refusing() {
    fake_cuda_set("batch_error", CUDA_ERROR_NOT_SUPPORTED);
    fake_cuda_set("copy_pause", 50'000);
    fake_cuda_set("refused_copy", 2);
    fake_cuda_forget_calls();
  }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;
  ~Refusing() {
    fake_cuda_set("batch_error", 0);
    fake_cuda_set("copy_pause", 0);
    fake_cuda_set("refused_copy", 0);
  }
};

/// Two pieces of a GPU's memory and of the host's.
struct Pieces {
  const device::test::GpuMemory there{2 * piece};
  const device::test::GpuMemory here{2 * piece, device::MemoryKind::pinned};
  const std::vector<StagedCalls::Piece> all{{there.data(), 0, piece}, {there.data() + piece, piece, piece}};
  const std::array<device::CopyWork, 2> to_host{
      {{here.data(), there.data(), piece}, {here.data() + piece, there.data() + piece, piece}}};
};

void expect_the_first_to_be_through(const char* counted) {
  EXPECT_EQ(fake_cuda_calls(counted), static_cast<long>(piece));
}

TEST(RefusedWork, OfStagedCallsLeavesNothingUnderWayToTheHost) {
  const StagedCallsOfGpu staged;
  const Pieces pieces;
  const Refusing driver;
  EXPECT_FALSE(staged.calls->copy_pieces_in(pieces.all, pieces.here.data()).ok());
  expect_the_first_to_be_through("bytes to the host");
}

TEST(RefusedWork, OfStagedCallsLeavesNothingUnderWayFromTheHost) {
  const StagedCallsOfGpu staged;
  const Pieces pieces;
  const Refusing driver;
  EXPECT_FALSE(staged.calls->copy_pieces_out(pieces.all, pieces.here.data()).ok());
  expect_the_first_to_be_through("bytes from the host");
}

using RefusedWorkOfKernels = RankWithKernels;

TEST_F(RefusedWorkOfKernels, LeavesNoCopyUnderWay) {
  const Pieces pieces;
  const Refusing driver;
  EXPECT_FALSE(calls_.copy(pieces.to_host).ok());
  expect_the_first_to_be_through("bytes to the host");
}

TEST_F(RefusedWorkOfKernels, LeavesNothingUnderWayOfWhatRunsAlone) {
  const Pieces pieces;
  const Refusing driver;
  EXPECT_FALSE(calls_.run_alone([&](device::Queue& queue) { return queue.copy(pieces.to_host); }).ok());
  expect_the_first_to_be_through("bytes to the host");
}

}  // namespace
}  // namespace epccl::runtime
