// Weights in GPU memory on their way to another placement.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../api_cuda/gpu_rank.hpp"
#include "epccl/placement.h"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

constexpr size_t expert_bytes = 50'000, slots_of_rank = 2;
const std::vector<int> first_placement = {0, 1, 2, 3, 4, 5, 5, 0},
                       second_placement = {1, 0, 5, 5, 5, 2, 3, 4};

std::vector<uint8_t> weights_of(int rank, const std::vector<int>& placement) {
  std::vector<uint8_t> weights;
  for (size_t slot = 0; slot < slots_of_rank; ++slot)
    for (size_t i = 0; i < expert_bytes; ++i)
      weights.push_back(unique_byte(placement[static_cast<size_t>(rank) * slots_of_rank + slot], 0, i, 0));
  return weights;
}

epcclResult_t migrate(epcclComm_t comm, const GpuRank& gpu, const std::vector<int>& from,
                      const std::vector<int>& to, const GpuArray<uint8_t>& weights,
                      const GpuArray<uint8_t>& scratch, size_t scratch_bytes) {
  void* const data = weights.data();
  return epcclEpMigrateExperts(comm, slots_of_rank, from.data(), to.data(), &data, &expert_bytes, 1,
                               scratch.data(), scratch_bytes, gpu.as_epccl());
}

void there_and_back(const RankContext& context) {
  const GpuRank gpu;
  const Comm comm(context);
  const std::vector<uint8_t> before = weights_of(context.rank, first_placement);
  GpuArray<uint8_t> weights(gpu, before.size()), scratch(gpu, 1 << 17);
  weights.put(before);
  ASSERT_EQ(migrate(comm, gpu, first_placement, second_placement, weights, scratch, 5000), epcclSuccess)
      << epcclGetLastError(nullptr);
  EXPECT_TRUE(weights.get() == weights_of(context.rank, second_placement)) << "rank " << context.rank;
  // Nobody waits in between.
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(migrate(comm, gpu, second_placement, first_placement, weights, scratch, 1 << 17), epcclSuccess);
    ASSERT_EQ(migrate(comm, gpu, first_placement, second_placement, weights, scratch, 1 << 17), epcclSuccess);
  }
  EXPECT_TRUE(weights.get() == weights_of(context.rank, second_placement)) << "rank " << context.rank;
}

TEST(GpuMigration, IsInTheOrderOfTheStream) {
  for (const std::vector<int>& shape : {std::vector{4}, std::vector{2, 2}})
    run_ranks({shape, {{"EPCCL_DEVICE", "cuda"}}, {}}, there_and_back);
}

TEST(GpuMigration, WithoutCopyEngines) {
  run_ranks({{4}, {{"EPCCL_DEVICE", "cuda"}, {"EPCCL_COPY_ENGINE", "never"}}, {}}, there_and_back);
}

// On all ranks: those that do not capture hear of it.
TEST(GpuMigration, IsNoPartOfAGraph) {
  run_ranks({{4}, {{"EPCCL_DEVICE", "cuda"}}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const std::vector<uint8_t> before = weights_of(context.rank, first_placement);
    GpuArray<uint8_t> weights(gpu, before), scratch(gpu, 4096);
    const bool captures = context.rank == 1;
    if (captures) {
      MUST(cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    EXPECT_EQ(migrate(comm, gpu, first_placement, second_placement, weights, scratch, 4096),
              captures ? epcclInvalidUsage : epcclInvalidArgument);
    EXPECT_NE(std::string(epcclGetLastError(nullptr))
                  .find(captures ? "a migration of experts cannot be part of the graph"
                                 : "what rank 1 was given cannot be"),
              std::string::npos)
        << epcclGetLastError(nullptr);
    if (captures) {
      CUgraph graph = nullptr;
      MUST(cuStreamEndCapture(gpu.stream(), &graph));
      MUST(cuGraphDestroy(graph));
    }
    EXPECT_TRUE(weights.get() == before);
  });
}

// Messages of pinned memory would become part of it.
TEST(GpuMigration, OfPinnedMemoryIsNoPartOfAGraphEither) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    void *weights = nullptr, *scratch = nullptr;
    MUST(cuMemHostAlloc(&weights, expert_bytes, 0));
    MUST(cuMemHostAlloc(&scratch, expert_bytes, 0));
    const std::vector<int> from = {0, 1}, to = {1, 0};
    const auto migrated = [&] {
      return epcclEpMigrateExperts(comm, 1, from.data(), to.data(), &weights, &expert_bytes, 1, scratch,
                                   expert_bytes, gpu.as_epccl());
    };
    auto* const bytes = static_cast<uint8_t*>(weights);
    std::fill_n(bytes, expert_bytes, static_cast<uint8_t>(context.rank + 1));
    MUST(cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(migrated(), epcclInvalidUsage);
    CUgraph graph = nullptr;
    MUST(cuStreamEndCapture(gpu.stream(), &graph));
    MUST(cuGraphDestroy(graph));
    ASSERT_EQ(migrated(), epcclSuccess) << epcclGetLastError(nullptr);
    gpu.wait();
    EXPECT_EQ(std::count(bytes, bytes + expert_bytes, static_cast<uint8_t>(2 - context.rank)),
              static_cast<std::ptrdiff_t>(expert_bytes));
    MUST(cuMemFreeHost(weights));
    MUST(cuMemFreeHost(scratch));
  });
}

// One tensor of the host's, or scratch.
TEST(GpuMigration, RefusesMemoryOfTwoKinds) {
  run_ranks({{4}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    GpuArray<uint8_t> weights(gpu, weights_of(context.rank, first_placement));
    std::vector<uint8_t> host(4096);
    void* const data = weights.data();
    EXPECT_EQ(epcclEpMigrateExperts(comm, slots_of_rank, first_placement.data(), second_placement.data(),
                                    &data, &expert_bytes, 1, host.data(), host.size(), gpu.as_epccl()),
              epcclInvalidArgument);
    // Nor is a choice of slots made from a table on the GPU.
    epcclEpPlacementConfig_t config = EPCCL_EP_PLACEMENT_CONFIG_INIT;
    config.num_experts = 6;
    config.num_ranks = 4;
    config.slots_per_rank = slots_of_rank;
    const std::vector<size_t> sizes = {4, 1};
    epcclEpTensor_t table = EPCCL_EP_TENSOR_INIT;
    table.ndim = 2;
    table.datatype = epcclInt32;
    table.data = data;
    table.sizes = sizes.data();
    EXPECT_EQ(epcclEpPickSlots(&config, first_placement.data(), 0, EPCCL_EP_SLOTS_EVEN, &table, &table),
              epcclInvalidArgument);
    EXPECT_NE(std::string(epcclGetLastError(nullptr)).find("topk_idx"), std::string::npos);
  });
}

}  // namespace
}  // namespace epccl::tests
