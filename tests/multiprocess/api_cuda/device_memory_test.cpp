// Collectives on GPU memory through the C API, in the order of the user's stream: by several ranks on one GPU, on one node and on
// two. Runs on the double of the driver everywhere, and on a GPU (tests/device).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>

#include "../api/ranks.hpp"
#include "cuda_calls.hpp"
#include "numbered_alltoalls.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<int32_t>;

TEST_P(CudaMemoryCalls, AlltoallFollowsAndIsFollowedByTheStreamsWork) {
  run([](const RankContext& context, epcclComm_t comm, GpuRank& gpu) {
    for (const size_t count : {size_t{1}, size_t{700}, size_t{0}})
      expect_numbered_alltoalls(context, comm, gpu, count, 3);
  });
}

TEST_P(CudaMemoryCalls, GathersAndBroadcasts) {
  run([](const RankContext& context, epcclComm_t comm, GpuRank& gpu) {
    constexpr size_t count = 1234;
    const auto ranks = static_cast<size_t>(context.ranks);
    const int root = context.ranks - 1;
    Numbers mine(count);
    for (size_t i = 0; i < count; ++i) mine[i] = numbered(context.rank, 0, i);
    const GpuArray<int32_t> input(gpu, mine), all(gpu, count * ranks),
        gathered(gpu, Numbers(count * ranks, -1)), one(gpu, count);
    const auto expect_all = [&](const GpuArray<int32_t>& of, const char* what) {
      const Numbers got = of.get();
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], numbered(static_cast<int>(i / count), 0, i % count)) << what << " " << i;
    };
    ASSERT_EQ(epcclAllGather(input.data(), all.data(), count, epcclInt32, comm, gpu.as_epccl()),
              epcclSuccess);
    expect_all(all, "allgather");
    ASSERT_EQ(epcclGather(input.data(), gathered.data(), count, epcclInt32, root, comm, gpu.as_epccl()),
              epcclSuccess);
    if (context.rank == root) expect_all(gathered, "gather");
    ASSERT_EQ(epcclScatter(all.data(), one.data(), count, epcclInt32, root, comm, gpu.as_epccl()),
              epcclSuccess);
    EXPECT_EQ(one.get(), mine);
    ASSERT_EQ(epcclBroadcast(input.data(), one.data(), count, epcclInt32, root, comm, gpu.as_epccl()),
              epcclSuccess);
    const Numbers got = one.get();
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], numbered(root, 0, i));
  });
}

TEST_P(CudaMemoryCalls, AreTimedByTheCostModelInASimulatedGroup) {
  run([](const RankContext& context, epcclComm_t comm, GpuRank& gpu) {
    const auto ranks = static_cast<size_t>(context.ranks);
    const GpuArray<int32_t> input(gpu, 100 * ranks), output(gpu, 100 * ranks);
    std::vector<size_t> counts(ranks, 100), offsets;
    for (size_t peer = 0; peer < ranks; ++peer) offsets.push_back(100 * peer);
    const auto timed = [](auto&& call) {
      epcclSimInfo_t info = EPCCL_SIM_INFO_INITIALIZER;
      EXPECT_EQ(epcclGroupStart(), epcclSuccess);
      EXPECT_EQ(call(), epcclSuccess);
      EXPECT_EQ(epcclGroupSimulateEnd(&info), epcclSuccess) << epcclGetLastError(nullptr);
      return info.estimatedTime;
    };
    const float equal = timed(
        [&] { return epcclAlltoall(input.data(), output.data(), 100, epcclInt32, comm, gpu.as_epccl()); });
    EXPECT_GT(equal, 0);
    EXPECT_EQ(equal, timed([&] {
                return epcclAlltoallv(input.data(), counts.data(), offsets.data(), output.data(),
                                      counts.data(), offsets.data(), epcclInt32, comm, gpu.as_epccl());
              }));
    EXPECT_GT(timed([&] {
                return epcclAllGather(input.data(), output.data(), 100, epcclInt32, comm, gpu.as_epccl());
              }),
              0);
  });
}

TEST_P(CudaMemoryCalls, AlltoallvLeavesWhatLiesBetweenBlocksAlone) {
  run([](const RankContext& context, epcclComm_t comm, GpuRank& gpu) {
    const auto ranks = static_cast<size_t>(context.ranks);
    const auto amount = [](int from, int to) { return static_cast<size_t>((from + 2 * to) % 4) * 100; };
    std::vector<size_t> send_counts, send_offsets, recv_counts, recv_offsets;
    Numbers values(ranks * 400, -1);
    for (size_t peer = 0; peer < ranks; ++peer) {
      send_counts.push_back(amount(context.rank, static_cast<int>(peer)));
      recv_counts.push_back(amount(static_cast<int>(peer), context.rank));
      send_offsets.push_back(peer * 400);
      recv_offsets.push_back(peer * 400 + 50);
      for (size_t i = 0; i < send_counts.back(); ++i)
        values[peer * 400 + i] = numbered(context.rank, static_cast<int>(peer), i);
    }
    const GpuArray<int32_t> input(gpu, values), output(gpu, Numbers(ranks * 400 + 50, -7));
    ASSERT_EQ(epcclAlltoallv(input.data(), send_counts.data(), send_offsets.data(), output.data(),
                             recv_counts.data(), recv_offsets.data(), epcclInt32, comm, gpu.as_epccl()),
              epcclSuccess)
        << epcclGetLastError(nullptr);
    Numbers expected(ranks * 400 + 50, -7);
    for (size_t peer = 0; peer < ranks; ++peer)
      for (size_t i = 0; i < recv_counts[peer]; ++i)
        expected[recv_offsets[peer] + i] = numbered(static_cast<int>(peer), context.rank, i);
    EXPECT_EQ(output.get(), expected);
  });
}

TEST_P(CudaMemoryCalls, SendsAndReceivesOfAGroupGoTogether) {
  run([](const RankContext& context, epcclComm_t comm, GpuRank& gpu) {
    constexpr size_t count = 2000;
    const int next = (context.rank + 1) % context.ranks,
              before = (context.rank + context.ranks - 1) % context.ranks;
    Numbers mine(count);
    for (size_t i = 0; i < count; ++i) mine[i] = numbered(context.rank, next, i);
    const GpuArray<int32_t> input(gpu, mine), output(gpu, count);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    ASSERT_EQ(epcclSend(input.data(), count, epcclInt32, next, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclRecv(output.data(), count, epcclInt32, before, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    const Numbers got = output.get();
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], numbered(before, context.rank, i));
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaMemoryCalls, all_shapes);

TEST(CudaMemoryArguments, BuffersOfTwoKindsAreRefused) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const GpuArray<float> there(gpu, 10);
    std::vector<float> here(10);
    EXPECT_EQ(epcclAlltoall(there.data(), here.data(), 10, epcclFloat32, comm, gpu.as_epccl()),
              epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("is memory of GPU 0, but recvbuff"));
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("is host memory"));
    EXPECT_EQ(epcclAllReduce(here.data(), there.data(), 10, epcclFloat32, epcclSum, comm, gpu.as_epccl()),
              epcclInvalidArgument);
    gpu.wait();
  });
}

// To the driver a host stream would be an address of something else.
TEST(CudaMemoryArguments, StreamsOfTheOtherKindAreRefused) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const GpuArray<float> in(gpu, 10), out(gpu, 10);
    epcclStream_t host = nullptr;
    ASSERT_EQ(epcclStreamCreate(&host), epcclSuccess);
    const auto refused = [](epcclResult_t result, const char* words) {
      EXPECT_EQ(result, epcclInvalidArgument);
      EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr(words));
    };
    const char* const words = "is memory of GPU 0, but stream";
    refused(epcclAlltoall(in.data(), out.data(), 10, epcclFloat32, comm, host), words);
    refused(epcclAllReduce(in.data(), out.data(), 10, epcclFloat32, epcclSum, comm, host), words);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    refused(epcclSend(in.data(), 10, epcclFloat32, 0, comm, host), words);
    refused(epcclRecv(out.data(), 10, epcclFloat32, 0, comm, host), words);
    EXPECT_EQ(epcclGroupEnd(), epcclInvalidArgument);
    std::vector<float> here(20);
    refused(epcclAllReduce(here.data(), here.data() + 10, 10, epcclFloat32, epcclSum, comm, gpu.as_epccl()),
            "host memory takes streams of epcclStreamCreate");
    EXPECT_EQ(epcclStreamDestroy(host), epcclSuccess);
    EXPECT_EQ(epcclAlltoall(in.data(), out.data(), 10, epcclFloat32, comm, gpu.as_epccl()), epcclSuccess);
    gpu.wait();
  });
}

TEST(CudaMemoryArguments, MemAllocGivesGpuMemoryWhereItShould) {
  run_ranks({{2}, {{"EPCCL_DEVICE", "cuda"}}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    int32_t* memory = nullptr;
    ASSERT_EQ(epcclMemAlloc(reinterpret_cast<void**>(&memory), 2 * sizeof(int32_t)), epcclSuccess)
        << epcclGetLastError(nullptr);
    const GpuArray<int32_t> input(gpu, Numbers{context.rank});
    ASSERT_EQ(epcclAllGather(input.data(), memory, 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess)
        << epcclGetLastError(nullptr);
    Numbers got(2, -1);
    ASSERT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(got.data()), reinterpret_cast<CUdeviceptr>(memory),
                            8, gpu.stream()),
              CUDA_SUCCESS);
    gpu.wait();
    EXPECT_EQ(got, (Numbers{0, 1}));
    EXPECT_EQ(epcclMemFree(memory), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclMemFree(memory), epcclInvalidArgument);
  });
}

TEST(CudaMemoryArguments, MemAllocOnGivesWhatIsAskedForWhateverTheSettingIs) {
  for (const char* setting : {"auto", "host", "cuda"})
    run_ranks({{2}, {{"EPCCL_DEVICE", setting}}, {}}, [](const RankContext& context) {
      GpuRank gpu;
      const Comm comm(context);
      int32_t* memory = nullptr;
      ASSERT_EQ(epcclMemAllocOn(reinterpret_cast<void**>(&memory), 2 * sizeof(int32_t), EPCCL_CURRENT_GPU),
                epcclSuccess)
          << epcclGetLastError(nullptr);
      const GpuArray<int32_t> input(gpu, Numbers{context.rank});
      EXPECT_EQ(epcclAllGather(input.data(), memory, 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess)
          << epcclGetLastError(nullptr);
      gpu.wait();
      EXPECT_EQ(epcclMemFree(memory), epcclSuccess) << epcclGetLastError(nullptr);
      int* here = nullptr;
      ASSERT_EQ(epcclMemAllocOn(reinterpret_cast<void**>(&here), sizeof(int), EPCCL_NO_GPU), epcclSuccess);
      *here = 1;
      EXPECT_EQ(epcclMemFree(here), epcclSuccess);
      EXPECT_EQ(epcclMemAllocOn(reinterpret_cast<void**>(&memory), 4, 1000), epcclUnhandledDeviceError);
      EXPECT_EQ(memory, nullptr);
    });
}

TEST(CudaMemoryFaults, ADeadPeerLetsTheStreamGoAndIsNamed) {
  run_ranks({{3}, {{"EPCCL_TIMEOUT", "10"}}, {1}}, [](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    const GpuArray<float> in(gpu, 3000), out(gpu, 3000);
    gpu.wait();
    if (context.rank == 1) raise(SIGKILL);
    EXPECT_EQ(epcclAlltoall(in.data(), out.data(), 1000, epcclFloat32, comm, gpu.as_epccl()), epcclSuccess);
    gpu.wait();  // not for ever
    epcclResult_t failure = epcclSuccess;
    EXPECT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
    EXPECT_EQ(failure, epcclRemoteError);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
