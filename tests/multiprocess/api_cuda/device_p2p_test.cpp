// Sends, receives and groups of them on GPU memory: any pattern, whatever memory each end has, in the order of the user's streams.
#include <gmock/gmock.h>
#include <signal.h>

#include <thread>

#include "../api/names_the_dead.hpp"
#include "graph_rank.hpp"
#include "letters.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;
using Environment = std::vector<std::pair<std::string, std::string>>;

void run_patterns(const RankContext& context, uint64_t seed, int rounds, const char* copy_engine = nullptr) {
  std::mt19937_64 random(seed);  // the same on every rank
  const GpuRank first, second;
  const Comm comm(context);
  EXPECT_EQ(epcclCommSetCopyEngine(comm, copy_engine), epcclSuccess);
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round)
    Half(context.rank, pattern(context.ranks, random), first, second, 1000 * round).run(comm);
}

TEST(GpuGroups, OfRandomMessagesArrive) {
  const uint64_t seed = new_seed();
  for (const RanksAre are : {RanksAre::processes, RanksAre::threads})
    run_gpu_ranks(are, 4, {{"EPCCL_DEVICE", "cuda"}},
                  [seed](const RankContext& context) { run_patterns(context, seed, 6); });
}

TEST(GpuGroups, OfRandomMessagesArriveOnTwoNodesAndWithoutCopyEngines) {
  const uint64_t seed = new_seed();
  run_ranks({{2, 2}, {{"EPCCL_DEVICE", "cuda"}}, {}},
            [seed](const RankContext& context) { run_patterns(context, seed, 4); });
  // One rank wants none of them.
  run_ranks({{3}, {{"EPCCL_DEVICE", "cuda"}}, {}}, [seed](const RankContext& context) {
    run_patterns(context, seed, 4, context.rank == 1 ? "never" : nullptr);
  });
}

// Each rank issues them in another order, all in the same two streams.
TEST(GpuGroups, OfTwoCommunicatorsMoveTogether) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    const GpuRank first, second;
    const Comm a(context), b(another(context, a));
    std::vector<Letter> letters;
    for (int from = 0; from < 3; ++from)
      for (int to = 0; to < 3; ++to) letters.push_back({from, to, 5000, plain, plain});
    for (int round = 0; round < 3; ++round) {
      Half in_a(context.rank, letters, first, second, 100 * round);
      Half in_b(context.rank, letters, first, second, 100 * round + 50);
      run_as_one_group<Half>(context.rank, in_a, a, in_b, b);
    }
  });
}

// The streams wait for each other's messages across the ranks: nothing here may wait for a stream that a group holds.
TEST(GpuGroups, HoldStreamsFromTheirEndOnAndNotBefore) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const int peer = 1 - context.rank;
    const std::vector<int> sent{context.rank, 10 + context.rank};
    GpuArray<int> in(gpu, 2), out(gpu, 2), all(gpu, 2);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    ASSERT_EQ(epcclSend(in.data(), 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    in.put(sent);  // is sent all the same, as the group begins at its end
    gpu.wait();
    ASSERT_EQ(epcclRecv(out.data(), 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclSend(in.data() + 1, 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclAllGather(in.data(), all.data(), 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclRecv(out.data() + 1, 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(out.get(), (std::vector<int>{peer, 10 + peer}));
    EXPECT_EQ(all.get(), (std::vector<int>{0, 1}));
  });
}

// ncclGroupEnd() does not wait for others either.
TEST(GpuGroups, ReturnBeforeTheOtherRankIsCalled) {
  run_gpu_ranks(RanksAre::threads, 1, {}, [](const RankContext&) {
    const GpuRank first, second;
    epcclComm_t comms[2];
    ASSERT_EQ(epcclCommInitAll(comms, 2, nullptr), epcclSuccess) << epcclGetLastError(nullptr);
    const std::vector<Letter> letters{{0, 1, 9000, plain, plain}, {1, 0, 70'000, plain, plain}};
    Half of_0(0, letters, first, first, 1), of_1(1, letters, second, second, 1);
    for (auto* half : {&of_0, &of_1}) {
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      half->issue(comms[half == &of_1]);
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    }
    of_0.check();
    of_1.check();
    for (epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(GpuGroups, AreNotNeededWhereRanksSendLittleBeforeTheyReceive) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const int peer = 1 - context.rank;
    const GpuArray<int> in(gpu, std::vector<int>(1024, context.rank)), out(gpu, 1024);
    ASSERT_EQ(epcclSend(in.data(), 1024, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclRecv(out.data(), 1024, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    EXPECT_EQ(out.get(), std::vector<int>(1024, peer));
  });
}

TEST(GpuGroups, OfWrongLengthsAreNamed) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    const GpuArray<uint8_t> data(gpu, 9000);
    EXPECT_EQ(context.rank == 0 ? epcclSend(data.data(), 8000, epcclUint8, 1, comm, gpu.as_epccl())
                                : epcclRecv(data.data(), 9000, epcclUint8, 0, comm, gpu.as_epccl()),
              epcclSuccess);
    gpu.wait();
    epcclResult_t failure = epcclSuccess;
    while (failure == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
    if (context.rank == 1) {
      EXPECT_THAT(epcclGetLastError(comm),
                  HasSubstr("recv of 9000 uint8 from rank 0 expects 9000 bytes, rank 0 sent 8000"));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

TEST(GpuGroups, ThatTimedOutHaveFailedWhenTheirStreamGoesOn) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    ASSERT_EQ(epcclCommSetTimeout(comm, 1), epcclSuccess);
    const GpuArray<uint8_t> data(gpu, 9000);
    if (context.rank == 1) {
      EXPECT_EQ(epcclRecv(data.data(), 9000, epcclUint8, 0, comm, gpu.as_epccl()), epcclSuccess);
      gpu.wait();
      epcclResult_t failure = epcclSuccess;
      EXPECT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
      EXPECT_EQ(failure, epcclRemoteError);
      EXPECT_THAT(epcclGetLastError(comm), HasSubstr("timeout: send/recv group"));
    }
    context.meet();
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

// Whether it sends, receives or both; and whether messages were on their way before.
TEST(GpuGroups, EndWhereAPeerDies) {
  run_ranks({{3}, {{"EPCCL_TIMEOUT", "20"}}, {1}}, [](const RankContext& context) {
    const GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    const std::vector<Letter> letters{
        {0, 1, 8000, plain, plain}, {1, 2, 8000, plain, plain}, {2, 0, 70'000, plain, plain}};
    Half(context.rank, letters, gpu, gpu, 1).run(comm);
    context.meet();
    if (context.rank == 1) raise(SIGKILL);
    Half half(context.rank, letters, gpu, gpu, 2);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    half.issue(comm);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess);
    gpu.wait();  // not for ever
    epcclResult_t failure = epcclSuccess;
    while (failure == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
    EXPECT_EQ(failure, epcclRemoteError);
    EXPECT_THAT(epcclGetLastError(comm), names_the_dead(1));
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

TEST(GpuGroups, EndWithAnAbort) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    const GpuArray<uint8_t> data(gpu, 9000);
    if (context.rank == 0) {
      ASSERT_EQ(epcclSend(data.data(), 9000, epcclUint8, 1, comm, gpu.as_epccl()), epcclSuccess);
      gpu.wait();  // rank 1 never receives
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
