#include <gtest/gtest.h>

#include <vector>

#include "meeting.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

/// An id that rank 0 makes.
epcclUniqueId tell_id(epcclComm_t comm, int rank) {
  epcclUniqueId id{};
  if (rank == 0) {
    EXPECT_EQ(epcclGetUniqueId(&id), epcclSuccess);
  }
  EXPECT_EQ(epcclBroadcast(&id, &id, sizeof id, epcclUint8, 0, comm, nullptr), epcclSuccess);
  return id;
}

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

TEST(Streams, AreNotThroughUntilTheirCommunicatorIsQuiet) {
  const Meeting issued;
  run_ranks({{2}, {}, {}}, [&issued](const RankContext& context) {
    Comm comm(context);
    EXPECT_EQ(epcclCommQuery(comm), epcclSuccess);
    int value = 7;
    if (context.rank == 1) {
      issued.come(2);
      EXPECT_EQ(epcclSend(&value, 1, epcclInt32, 0, comm, nullptr), epcclSuccess);
      return;
    }
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    ASSERT_EQ(epcclRecv(&value, 1, epcclInt32, 1, comm, stream), epcclSuccess);
    EXPECT_EQ(epcclCommQuery(comm), epcclInProgress);  // nothing has been sent yet
    issued.come(2);
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(epcclCommQuery(comm), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

// Each rank's messages to the other: their sizes differ, so a message that takes another one's place is an error, too.
class GroupOverStreams : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, GroupOverStreams, testing::Values(std::vector{2}, std::vector{1, 1}));

TEST_P(GroupOverStreams, NumbersItsMessagesAsTheyWereIssued) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    epcclStream_t made[2] = {};
    for (auto& stream : made) ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    const epcclStream_t streams[3] = {made[0], made[1], nullptr};
    const int peer = 1 - context.rank;
    for (const size_t used : {2, 3}) {  // without the calling thread, and with it
      constexpr size_t messages = 12;
      const auto size = [](size_t number) { return (number % 3 == 1 ? size_t{100'000} : 10) + number; };
      std::vector<std::vector<int>> sent, got;
      for (size_t i = 0; i < messages; ++i) {
        sent.emplace_back(size(i), static_cast<int>(i) + 100 * context.rank);
        got.emplace_back(size(i), -1);
      }
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      for (size_t i = 0; i < messages; ++i) {
        // What one rank sends on its first stream the other one receives on its last.
        const epcclStream_t from = streams[i * 5 % 7 % used], to = streams[used - 1 - i * 5 % 7 % used];
        EXPECT_EQ(epcclSend(sent[i].data(), size(i), epcclInt32, peer, comm, from), epcclSuccess);
        EXPECT_EQ(epcclRecv(got[i].data(), size(i), epcclInt32, peer, comm, to), epcclSuccess);
      }
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
      for (auto& stream : made)
        EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess) << epcclGetLastError(comm);
      for (size_t i = 0; i < messages; ++i)
        EXPECT_EQ(got[i], std::vector<int>(size(i), static_cast<int>(i) + 100 * peer)) << "message " << i;
    }
    for (auto& stream : made) EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

// The group's messages read and write what calls before and after it on either stream have to do with.
TEST_P(GroupOverStreams, HoldsItsPlaceInEachOfThem) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    Comm comm(context), other(RankContext{context.rank, context.ranks, tell_id(comm, context.rank)});
    epcclStream_t first = nullptr, second = nullptr;
    ASSERT_EQ(epcclStreamCreate(&first), epcclSuccess);
    ASSERT_EQ(epcclStreamCreate(&second), epcclSuccess);
    const int peer = 1 - context.rank;
    std::vector<int> own(2, context.rank + 1), before(2, -1), swapped(2, -1), after(2, -1);
    int small = 5, got = -1;
    ASSERT_EQ(epcclAlltoall(own.data(), before.data(), 1, epcclInt32, other, second), epcclSuccess);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclSend(&small, 1, epcclInt32, peer, comm, first), epcclSuccess);
    EXPECT_EQ(epcclSend(before.data(), 2, epcclInt32, peer, comm, second), epcclSuccess);
    EXPECT_EQ(epcclRecv(&got, 1, epcclInt32, peer, comm, first), epcclSuccess);
    EXPECT_EQ(epcclRecv(swapped.data(), 2, epcclInt32, peer, comm, second), epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess);
    ASSERT_EQ(epcclAlltoall(swapped.data(), after.data(), 1, epcclInt32, other, second), epcclSuccess);
    EXPECT_EQ(epcclStreamSynchronize(second), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclStreamSynchronize(first), epcclSuccess);
    EXPECT_EQ(got, 5);
    EXPECT_EQ(swapped, (std::vector{1, 2}));
    EXPECT_EQ(after, (std::vector(2, context.rank + 1)));
    EXPECT_EQ(epcclStreamDestroy(first), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(second), epcclSuccess);
  });
}

// Two communicators, and two streams that each runs one of them and has a part in the other.
TEST_P(GroupOverStreams, RunsSeveralCommunicatorsThatShareThem) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    Comm comm(context), other(RankContext{context.rank, context.ranks, tell_id(comm, context.rank)});
    epcclStream_t streams[2] = {};
    for (auto& stream : streams) ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    const int peer = 1 - context.rank;
    for (int round = 0; round < 20; ++round) {
      std::vector<int> sent(4, round), got(4, -1);
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      for (size_t i = 0; i < 4; ++i) {
        epcclComm_t on = i % 2 == 0 ? comm : other;
        const size_t which = (i / 2 + i % 2 + static_cast<size_t>(context.rank)) % 2;
        EXPECT_EQ(epcclSend(&sent[i], 1, epcclInt32, peer, on, streams[which]), epcclSuccess);
        EXPECT_EQ(epcclRecv(&got[i], 1, epcclInt32, peer, on, streams[1 - which]), epcclSuccess);
      }
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess);
      for (auto& stream : streams) EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess);
      EXPECT_EQ(got, sent);
    }
    for (auto& stream : streams) EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
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

TEST(Streams, WithCallsOfAnOpenGroupAreNotDestroyed) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    const float in = static_cast<float>(context.rank + 1);
    float out = 0;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    ASSERT_EQ(epcclAllReduce(&in, &out, 1, epcclFloat32, epcclSum, comm, stream), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclInvalidUsage);
    EXPECT_NE(std::string(epcclGetLastError(nullptr)).find("open group"), std::string::npos);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
    EXPECT_EQ(out, 3);
  });
}

}  // namespace
}  // namespace epccl::tests
