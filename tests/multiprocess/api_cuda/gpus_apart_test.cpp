// GPUs of a node that cannot map each other's memory: found out when a communicator is made, and calls are staged on all ranks.
#include <gmock/gmock.h>

#include <array>

#include "../api/rank_log.hpp"
#include "fake_driver.hpp"
#include "graph_rank.hpp"
#include "letters.hpp"

namespace epccl::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void refuse_to_map() {
  fake_cuda_set("import_error", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

void expect_exchanged(const RankContext& context, epcclComm_t comm, const GpuRank& gpu) {
  const int ranks = context.ranks;
  constexpr size_t count = 3000;
  std::vector<int> sent(count * static_cast<size_t>(ranks)), expected;
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = context.rank * 1'000'000 + static_cast<int>(i);
  for (int from = 0; from < ranks; ++from)
    for (size_t i = 0; i < count; ++i)
      expected.push_back(from * 1'000'000 + context.rank * static_cast<int>(count) + static_cast<int>(i));
  const GpuArray<int> in(gpu, sent), out(gpu, sent.size());
  ASSERT_EQ(epcclAlltoall(in.data(), out.data(), count, epcclInt32, comm, gpu.as_epccl()), epcclSuccess)
      << epcclGetLastError(comm);
  EXPECT_EQ(out.get(), expected);
  std::vector<Letter> letters;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) letters.push_back({from, to, 20'000, plain, plain});
  Half(context.rank, letters, gpu, gpu, 7).run(comm);
}

// Which the host makes where calls are staged.
void expect_added_up(const RankContext& context, epcclComm_t comm, const GpuRank& gpu) {
  const int ranks = context.ranks;
  constexpr size_t count = 3000;
  const GpuArray<int> mine(gpu, std::vector<int>(count, context.rank + 1)), sum(gpu, count);
  ASSERT_EQ(epcclAllReduce(mine.data(), sum.data(), count, epcclInt32, epcclSum, comm, gpu.as_epccl()),
            epcclSuccess);
  EXPECT_EQ(sum.get(), std::vector<int>(count, ranks * (ranks + 1) / 2));
}

TEST(GpusApart, StageCallsOnAllRanks) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 2}})
    run_ranks({nodes, {{"EPCCL_DEBUG", "INFO"}, Log::setting()}, {}}, [](const RankContext& context) {
      const Log log;
      const GpuRank gpu;
      if (context.rank == 1) refuse_to_map();
      const Comm comm(context);
      EXPECT_THAT(
          log.text(),
          AllOf(HasSubstr("staged through pinned host memory, since GPUs of a node do not reach each other"),
                HasSubstr("rank 1: GPU 0 cannot map memory of GPU 0 of rank 0: "), HasSubstr("(217)")));
      expect_exchanged(context, comm, gpu);
      expect_added_up(context, comm, gpu);
      EXPECT_EQ(fake_cuda_live("imports"), 0);
    });
}

TEST(GpusApart, AreAnErrorWhereCopyEnginesMustBeUsed) {
  run_ranks({{2}, {{"EPCCL_COPY_ENGINE", "always"}}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    if (context.rank == 0) refuse_to_map();
    const Comm comm(context);
    const GpuArray<int> in(gpu, 2), out(gpu, 2);
    EXPECT_EQ(epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, gpu.as_epccl()), epcclInvalidUsage);
    EXPECT_THAT(
        epcclGetLastError(comm),
        HasSubstr("copy engines are always to make calls, but rank 0: GPU 0 cannot map memory of GPU 0 "
                  "of rank 1: "));
    EXPECT_EQ(epcclSend(in.data(), 1, epcclInt32, 1 - context.rank, comm, gpu.as_epccl()), epcclInvalidUsage);
    // The communicator's own choice may be another.
    EXPECT_EQ(epcclCommSetCopyEngine(comm, "auto"), epcclSuccess);
    expect_exchanged(context, comm, gpu);
  });
}

/// A GPU of its own for each of two ranks that one thread drives: what they exchange, and what the log says of it.
void expect_exchanged_by_one_thread(bool reach_each_other) {
  run_ranks({{1}, {{"FAKE_CUDA_DEVICES", "2"}, {"EPCCL_DEBUG", "INFO"}, Log::setting()}, {}},
            [&](const RankContext&) {
              const Log log;
              fake_cuda_set("peer_access", reach_each_other ? 1 : 0);
              epcclComm_t comms[2];
              std::deque<GpuRank> gpus;
              std::deque<GpuArray<int>> in, out;
              for (int rank = 0; rank < 2; ++rank) {
                const GpuRank& gpu = gpus.emplace_back(rank);
                in.emplace_back(gpu, std::vector<int>{10 * rank, 10 * rank + 1});
                out.emplace_back(gpu, 2);
              }
              ASSERT_EQ(epcclCommInitAll(comms, 2, nullptr), epcclSuccess) << epcclGetLastError(nullptr);
              for (int round = 0; round < 2; ++round) {
                ASSERT_EQ(epcclGroupStart(), epcclSuccess);
                for (size_t rank = 0; rank < 2; ++rank) {
                  EXPECT_EQ(epcclAlltoall(in[rank].data(), out[rank].data(), 1, epcclInt32, comms[rank],
                                          gpus[rank].as_epccl()),
                            epcclSuccess)
                      << epcclGetLastError(comms[rank]);
                }
                ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
              }
              // The last GPU's context is the thread's.
              for (int rank = 1; rank >= 0; --rank) {
                EXPECT_EQ(out.back().get(), (std::vector<int>{rank, 10 + rank}));
                in.pop_back();
                out.pop_back();
                gpus.pop_back();
              }
              for (epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
              if (reach_each_other) {
                EXPECT_THAT(log.text(), HasSubstr("peers' buffers are mapped"));
                EXPECT_GT(fake_cuda_calls("cuCtxEnablePeerAccess"), 0);
              } else {
                EXPECT_THAT(log.text(), HasSubstr("staged through pinned host memory"));
              }
            });
}

TEST(GpusApart, OfOneProcessUseEachOthersMemory) {
  expect_exchanged_by_one_thread(true);
}

TEST(GpusApart, OfOneProcessWithoutPeerAccessStageCalls) {
  expect_exchanged_by_one_thread(false);
}

// A driver that is too old for what compiled the kernels.
TEST(GpusWithoutKernels, AddUpOnTheHost) {
  run_ranks({{3}, {{"EPCCL_DEBUG", "INFO"}, Log::setting()}, {}}, [](const RankContext& context) {
    const Log log;
    fake_cuda_set("image_error", CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    const GpuRank gpu;
    const Comm comm(context);
    expect_added_up(context, comm, gpu);
    EXPECT_THAT(log.text(), HasSubstr("(there are no kernels to add up with)"));
    expect_exchanged(context, comm, gpu);
    EXPECT_THAT(log.text(), HasSubstr("peers' buffers are mapped"));
  });
}

// What goes wrong with a GPU by itself is for the first call to tell; and who has none yet is not asked.
TEST(GpusApart, AreNotLookedForWhereARankHasNoGpuYet) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    refuse_to_map();
    const Comm comm(context);
    EXPECT_EQ(fake_cuda_calls("cuMemCreate"), 0);
    fake_cuda_set("import_error", 0);
    const GpuRank gpu;
    expect_exchanged(context, comm, gpu);
  });
}

}  // namespace
}  // namespace epccl::tests
