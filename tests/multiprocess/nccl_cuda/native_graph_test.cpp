// Captured all-to-alls, sends and receives are the real NCCL's where there is one (native_test.cpp, native_groups_test.cpp); without it they are EPCCL's, which needs kernels.
#include "../api_cuda/graph_rank.hpp"
#include "asked.hpp"

namespace nccl_programs {
namespace {

using epccl::tests::CudaGraphs;
using epccl::tests::GpuArray;
using epccl::tests::GpuRank;
using epccl::tests::Graph;

/// Differs for every source, destination and round.
int element(int source, int destination, int round) {
  return 10'000 * (round + 1) + 100 * source + destination;
}

using NativeGraphs = CudaGraphs;

template <typename Record>
void expect_an_exchange_in_replays(const Record& record) {
  constexpr int ranks = 3;
  Job job = with_gpus(ranks);
  job.environment.emplace_back("EPCCL_NCCL_LIB", "/nowhere/libnccl.so.2");
  run_ranks(job, [&](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    GpuArray<int> in(gpu, ranks), out(gpu, ranks);
    const Graph graph(gpu, [&] { record(in.data(), out.data(), comm, gpu.stream()); });
    for (int round = 0; round < 3; ++round) {
      std::vector<int> sent, expected;
      for (int peer = 0; peer < ranks; ++peer) {
        sent.push_back(element(context.rank, peer, round));
        expected.push_back(element(peer, context.rank, round));
      }
      in.put(sent);
      graph.launch();
      EXPECT_EQ(out.get(), expected) << "round " << round;
    }
  });
}

TEST_F(NativeGraphs, OfAllToAllsWithoutTheRealLibraryRunAgainWithNewData) {
  expect_an_exchange_in_replays([](const int* in, int* out, ncclComm_t comm, CUstream stream) {
    NCCL_OK(ncclAlltoAll(in, out, 1, ncclInt32, comm, stream));
  });
}

TEST_F(NativeGraphs, OfGroupsWithoutTheRealLibraryRunAgainWithNewData) {
  expect_an_exchange_in_replays([](const int* in, int* out, ncclComm_t comm, CUstream stream) {
    NCCL_OK(ncclGroupStart());
    for (int peer = 0; peer < 3; ++peer) {
      NCCL_OK(ncclSend(in + peer, 1, ncclInt32, peer, comm, stream));
      NCCL_OK(ncclRecv(out + peer, 1, ncclInt32, peer, comm, stream));
    }
    NCCL_OK(ncclGroupEnd());
  });
}

TEST_F(NativeGraphs, OfCollectivesWithoutTheRealLibraryRunAgainWithNewData) {
  Job job = with_gpus(2);
  job.environment.emplace_back("EPCCL_NCCL_LIB", "/nowhere/libnccl.so.2");
  run_ranks(job, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    GpuArray<int> in(gpu, 2), sums(gpu, 2), all(gpu, 4);
    const Graph graph(gpu, [&] {
      NCCL_OK(ncclAllReduce(in.data(), sums.data(), 2, ncclInt32, ncclSum, comm, gpu.stream()));
      NCCL_OK(ncclAllGather(sums.data(), all.data(), 2, ncclInt32, comm, gpu.stream()));
    });
    for (int round = 0; round < 3; ++round) {
      const std::vector<int> mine{context.rank + round, 10 * round};
      in.put(mine);
      graph.launch();
      const int first = 1 + 2 * round, second = 20 * round;
      EXPECT_EQ(all.get(), (std::vector<int>{first, second, first, second})) << "round " << round;
    }
  });
}

}  // namespace
}  // namespace nccl_programs
