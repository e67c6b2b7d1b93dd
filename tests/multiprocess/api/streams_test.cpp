#include <gtest/gtest.h>

#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

TEST(Streams, RunInTheBackgroundAndInOrder) {
  run_ranks({{2, 2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    const auto ranks = static_cast<size_t>(context.ranks);
    std::vector<int> first(ranks, context.rank + 1), second(ranks, -1), third(ranks, -1);
    // The second exchange sends what the first received: back where it came from.
    ASSERT_EQ(epcclAlltoall(first.data(), second.data(), 1, epcclInt32, comm, stream), epcclSuccess);
    ASSERT_EQ(epcclAlltoall(second.data(), third.data(), 1, epcclInt32, comm, stream), epcclSuccess);
    ASSERT_EQ(epcclStreamSynchronize(stream), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(epcclStreamQuery(stream), epcclSuccess);
    for (size_t peer = 0; peer < ranks; ++peer) {
      EXPECT_EQ(second[peer], static_cast<int>(peer) + 1);
      EXPECT_EQ(third[peer], context.rank + 1);
    }
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

TEST(Streams, OfOneCommunicatorKeepTheOrderOfIssue) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    epcclStream_t streams[2] = {};
    for (auto& stream : streams) ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    std::vector<std::vector<int>> out(20, std::vector<int>(2, -1));
    std::vector<std::vector<int>> in;
    for (int i = 0; i < 20; ++i) in.push_back({i * 10 + context.rank, i * 10 + context.rank + 5});
    for (size_t i = 0; i < 20; ++i)
      ASSERT_EQ(epcclAlltoall(in[i].data(), out[i].data(), 1, epcclInt32, comm, streams[i % 2]),
                epcclSuccess);
    for (auto& stream : streams) {
      EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess);
      EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
    }
    for (int i = 0; i < 20; ++i)
      for (int peer = 0; peer < 2; ++peer)
        EXPECT_EQ(out[static_cast<size_t>(i)][static_cast<size_t>(peer)], i * 10 + peer + 5 * context.rank);
  });
}

TEST(Streams, ReportWhatFailedInTheBackground) {
  run_ranks({{2}, {}, {1}}, [](const RankContext& context) {
    Comm comm(context);
    if (context.rank == 1) _exit(0);  // without goodbye
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    std::vector<int> in(2), out(2);
    ASSERT_EQ(epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, stream), epcclSuccess);
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclRemoteError);
    EXPECT_NE(std::string(epcclGetLastError(comm)).find("rank 1"), std::string::npos)
        << epcclGetLastError(comm);
    epcclResult_t failure = epcclSuccess;
    EXPECT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
    EXPECT_EQ(failure, epcclRemoteError);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
