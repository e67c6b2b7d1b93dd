// Collectives captured into CUDA graphs, through the C API: what a graph's runs do is what the calls do. On the double of the driver
// a graph's branches run in a random order, one step after the other.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "../api/ranks.hpp"
#include "device/cuda/kernels/launch.hpp"
#include "graph_rank.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<int32_t>;

class CudaGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda::bytes_of(device::cuda::Image::signals).empty())
      GTEST_SKIP() << "built without CUDA kernels";
  }
};

int32_t number(int source, int destination, size_t index, int round) {
  return source * 100'000'000 + destination * 10'000'000 + round * 1'000'000 + static_cast<int32_t>(index);
}

void expect_alltoall(const Numbers& got, int rank, size_t count, int round) {
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], number(static_cast<int>(i / count), rank, i % count, round)) << i;
}

Numbers to_all(int rank, int ranks, size_t count, int round) {
  Numbers values;
  for (int peer = 0; peer < ranks; ++peer)
    for (size_t i = 0; i < count; ++i) values.push_back(number(rank, peer, i, round));
  return values;
}

TEST_F(CudaGraphs, AnAlltoallIsReplayedWithNewData) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    constexpr size_t count = 700;
    GpuArray<int32_t> input(gpu, count * 2), output(gpu, count * 2);
    const Graph graph(gpu, [&] {
      ASSERT_EQ(epcclAlltoall(input.data(), output.data(), count, epcclInt32, comm, gpu.as_epccl()),
                epcclSuccess)
          << epcclGetLastError(nullptr);
    });
    for (int round = 0; round < 4; ++round) {
      const Numbers values = to_all(context.rank, 2, count, round);
      input.put(values);
      graph.launch();
      expect_alltoall(output.get(), context.rank, count, round);
    }
  });
}

}  // namespace
}  // namespace epccl::tests
