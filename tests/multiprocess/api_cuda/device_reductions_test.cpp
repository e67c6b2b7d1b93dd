// Reductions of GPU memory through the C API. On the double of the driver the kernels' code runs on the host.
#include "cuda_calls.hpp"
#include "device/kernels/launch.hpp"

namespace epccl::tests {
namespace {

bool has_kernels() {
  return !device::kernels::bytes_of(device::kernels::Image::reduce).empty();
}

class CudaReductions : public CudaMemoryCalls {
 protected:
  void SetUp() override {
    if (!has_kernels()) GTEST_SKIP() << "built without CUDA kernels";
  }
};

TEST_P(CudaReductions, AddUpEveryRanksInput) {
  run([](const RankContext& context, epcclComm_t comm, GpuRank& gpu) {
    constexpr size_t count = 3000;
    std::vector<float> mine(count);
    for (size_t i = 0; i < count; ++i)
      mine[i] = static_cast<float>(context.rank + 1) * static_cast<float>(i % 97);
    const auto factor = static_cast<float>(context.ranks * (context.ranks + 1) / 2);
    const GpuArray<float> input(gpu, mine), output(gpu, count);
    ASSERT_EQ(
        epcclAllReduce(input.data(), output.data(), count, epcclFloat32, epcclSum, comm, gpu.as_epccl()),
        epcclSuccess);
    const auto sums = output.get();
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(sums[i], factor * static_cast<float>(i % 97)) << i;

    // In place, each rank's block.
    const auto ranks = static_cast<size_t>(context.ranks);
    std::vector<float> all(count * ranks);
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<float>(i % 89) + static_cast<float>(context.rank);
    const GpuArray<float> blocks(gpu, all);
    ASSERT_EQ(epcclReduceScatter(blocks.data(), blocks.data() + static_cast<size_t>(context.rank) * count,
                                 count, epcclFloat32, epcclSum, comm, gpu.as_epccl()),
              epcclSuccess);
    const auto scattered = blocks.get();
    for (size_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(context.rank) * count + i;
      const auto expected = static_cast<float>(ranks * (at % 89) + ranks * (ranks - 1) / 2);
      ASSERT_EQ(scattered[at], expected) << i;
    }

    const GpuArray<float> largest(gpu, count);
    const int root = context.ranks - 1;
    ASSERT_EQ(
        epcclReduce(input.data(), largest.data(), count, epcclFloat32, epcclMax, root, comm, gpu.as_epccl()),
        epcclSuccess);
    const auto got = largest.get();
    for (size_t i = 0; context.rank == root && i < count; ++i)
      ASSERT_EQ(got[i], static_cast<float>(context.ranks) * static_cast<float>(i % 97)) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaReductions, all_shapes);
INSTANTIATE_TEST_SUITE_P(ByCores, CudaReductions, by_cores);

TEST(CudaReductionScalar, MayLieOnTheGpu) {
  if (!has_kernels()) GTEST_SKIP() << "built without CUDA kernels";
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    GpuArray<float> scalar(gpu, std::vector<float>{0});
    const GpuArray<float> in(gpu, std::vector<float>{1, 2}), out(gpu, 2);
    epcclRedOp_t scaled{};
    ASSERT_EQ(epcclRedOpCreatePreMulSum(&scaled, scalar.data(), epcclFloat32, epcclScalarDevice, comm),
              epcclSuccess);
    const std::vector<float> mine{static_cast<float>(context.rank + 2)};
    scalar.put(mine);  // before the call runs, after it was made
    ASSERT_EQ(epcclAllReduce(in.data(), out.data(), 2, epcclFloat32, scaled, comm, gpu.as_epccl()),
              epcclSuccess);
    EXPECT_EQ(out.get(), (std::vector<float>{5, 10}));
    EXPECT_EQ(epcclRedOpDestroy(scaled, comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
