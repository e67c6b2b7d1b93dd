#include <gtest/gtest.h>

#include <vector>

#include "exchange.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

class P2p : public testing::TestWithParam<std::vector<int>> {};

TEST_P(P2p, SendsArriveInOrderWhateverTheirSize) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    for (const size_t bytes : {0, 1, 4096, 4097, 1'000'000}) {
      std::vector<uint8_t> first(bytes), second(bytes);
      if (context.rank == 0) {
        for (size_t i = 0; i < bytes; ++i) {
          first[i] = unique_byte(0, 1, i, 1);
          second[i] = unique_byte(0, 1, i, 2);
        }
        ASSERT_EQ(epcclSend(first.data(), bytes, epcclUint8, 1, comm, nullptr), epcclSuccess)
            << epcclGetLastError(comm);
        ASSERT_EQ(epcclSend(second.data(), bytes, epcclUint8, 1, comm, nullptr), epcclSuccess);
      } else if (context.rank == 1) {
        ASSERT_EQ(epcclRecv(first.data(), bytes, epcclUint8, 0, comm, nullptr), epcclSuccess)
            << epcclGetLastError(comm);
        ASSERT_EQ(epcclRecv(second.data(), bytes, epcclUint8, 0, comm, nullptr), epcclSuccess);
        for (size_t i = 0; i < bytes; ++i) {
          ASSERT_EQ(first[i], unique_byte(0, 1, i, 1));
          ASSERT_EQ(second[i], unique_byte(0, 1, i, 2));
        }
      }
    }
  });
}

// Everybody sends to everybody, itself included, receives before sends: a group cannot deadlock.
TEST_P(P2p, GroupsOfSendsAndReceivesMakeAnAlltoall) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    for (const size_t bytes : {100, 20'000, 200'000}) {
      const auto ranks = static_cast<size_t>(context.ranks);
      std::vector<uint8_t> input(bytes * ranks), output(bytes * ranks, poison);
      for (int peer = 0; peer < context.ranks; ++peer)
        for (size_t i = 0; i < bytes; ++i)
          input[static_cast<size_t>(peer) * bytes + i] = unique_byte(context.rank, peer, i, 0);
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      for (int peer = 0; peer < context.ranks; ++peer) {
        const size_t offset = static_cast<size_t>(peer) * bytes;
        EXPECT_EQ(epcclRecv(output.data() + offset, bytes, epcclUint8, peer, comm, nullptr), epcclSuccess);
        EXPECT_EQ(epcclSend(input.data() + offset, bytes, epcclUint8, peer, comm, nullptr), epcclSuccess);
      }
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
      size_t wrong = 0;
      for (int peer = 0; peer < context.ranks; ++peer)
        for (size_t i = 0; i < bytes; ++i)
          wrong += output[static_cast<size_t>(peer) * bytes + i] != unique_byte(peer, context.rank, i, 0);
      EXPECT_EQ(wrong, 0U);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, P2p,
                         testing::Values(std::vector{2}, std::vector{4}, std::vector{1, 1},
                                         std::vector{2, 2}));

TEST(P2pWithoutReading, LargeMessagesGoThroughTheRingInFragments) {
  run_ranks({{2}, {{"EPCCL_CMA", "0"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<uint8_t> data(300'000);
    if (context.rank == 0) {
      for (size_t i = 0; i < data.size(); ++i) data[i] = unique_byte(0, 1, i, 0);
      ASSERT_EQ(epcclSend(data.data(), data.size(), epcclUint8, 1, comm, nullptr), epcclSuccess);
    } else {
      ASSERT_EQ(epcclRecv(data.data(), data.size(), epcclUint8, 0, comm, nullptr), epcclSuccess);
      for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], unique_byte(0, 1, i, 0));
    }
  });
}

// Rank 0 issues communicator A first, rank 1 communicator B: neither may wait for the other.
TEST(P2pGroups, OfTwoCommunicatorsProgressTogether) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm a(context);
    RankContext second = context;
    if (context.rank == 0) {
      ASSERT_EQ(epcclGetUniqueId(&second.id), epcclSuccess);
      ASSERT_EQ(epcclSend(&second.id, sizeof second.id, epcclUint8, 1, a, nullptr), epcclSuccess);
    } else {
      ASSERT_EQ(epcclRecv(&second.id, sizeof second.id, epcclUint8, 0, a, nullptr), epcclSuccess);
    }
    Comm b(second);
    const int peer = 1 - context.rank;
    int from_a = -1, from_b = -1;
    const int to_a = 10 + context.rank, to_b = 20 + context.rank;
    const auto both = [&](epcclComm_t comm, const int& sent, int& received) {
      EXPECT_EQ(epcclSend(&sent, 1, epcclInt32, peer, comm, nullptr), epcclSuccess);
      EXPECT_EQ(epcclRecv(&received, 1, epcclInt32, peer, comm, nullptr), epcclSuccess);
    };
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    if (context.rank == 0) both(a, to_a, from_a);
    both(b, to_b, from_b);
    if (context.rank == 1) both(a, to_a, from_a);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(a);
    EXPECT_EQ(from_a, 10 + peer);
    EXPECT_EQ(from_b, 20 + peer);
  });
}

TEST(P2pGroups, OfTwoCommunicatorsOfWhichOneHasFailedLeaveTheOtherWell) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const Comm well(context);
    epcclComm_t failed = nullptr;
    ASSERT_EQ(epcclCommSplit(well, 0, context.rank, &failed, nullptr), epcclSuccess);
    ASSERT_NE(Exchange(context.rank, 2, context.rank == 0 ? 1 : 2).start(failed), epcclSuccess);
    const int sent = 10 + context.rank, peer = 1 - context.rank;
    int received = 0, unheard = 0;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclSend(&sent, 1, epcclInt32, peer, well, nullptr), epcclSuccess);
    EXPECT_EQ(epcclRecv(&received, 1, epcclInt32, peer, well, nullptr), epcclSuccess);
    EXPECT_EQ(epcclRecv(&unheard, 1, epcclInt32, peer, failed, nullptr), epcclSuccess);
    EXPECT_NE(epcclGroupEnd(), epcclSuccess);
    EXPECT_EQ(received, 10 + peer);
    expect_works(well, context.rank, 2);
    EXPECT_EQ(epcclCommDestroy(failed), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
