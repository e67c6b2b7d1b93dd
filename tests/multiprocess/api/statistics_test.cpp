// What collectives cost on the network, in messages and in requests to its devices.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

epcclStatistics_t statistics_of(epcclComm_t comm) {
  epcclStatistics_t statistics = EPCCL_STATISTICS_INITIALIZER;
  EXPECT_EQ(epcclCommGetStatistics(comm, &statistics), epcclSuccess) << epcclGetLastError(comm);
  return statistics;
}

/// What one alltoall of `block` bytes a pair adds to a rank's statistics.
epcclStatistics_t cost_of_alltoall(epcclComm_t comm, int ranks, size_t block) {
  const size_t bytes = block * static_cast<size_t>(ranks);
  void *input = nullptr, *output = nullptr;
  EXPECT_EQ(epcclMemAlloc(&input, bytes), epcclSuccess);
  EXPECT_EQ(epcclMemAlloc(&output, bytes), epcclSuccess);
  epcclStatistics_t before{};
  // The first calls connect, and one whose sender was early may have had to ask.
  for (int call = 0; call < 4; ++call) {
    before = statistics_of(comm);
    EXPECT_EQ(epcclAlltoall(input, output, block, epcclUint8, comm, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
  }
  epcclStatistics_t cost = statistics_of(comm);
  cost.messagesSent -= before.messagesSent;
  cost.messagesReceived -= before.messagesReceived;
  cost.bytesSent -= before.bytesSent;
  cost.sendRequests -= before.sendRequests;
  cost.writeRequests -= before.writeRequests;
  cost.signalRequests -= before.signalRequests;
  cost.completionsRequested -= before.completionsRequested;
  EXPECT_EQ(epcclMemFree(input), epcclSuccess);
  EXPECT_EQ(epcclMemFree(output), epcclSuccess);
  return cost;
}

// Of a program that was built before the last fields were there.
TEST(Statistics, OfAnOlderHeaderAreFilledAsFarAsTheyGo) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    epcclStatistics_t statistics = EPCCL_STATISTICS_INITIALIZER;
    statistics.size = offsetof(epcclStatistics_t, bytesReceived);
    statistics.messagesSent = statistics.bytesReceived = statistics.messagesCarried = 77;
    ASSERT_EQ(epcclCommGetStatistics(comm, &statistics), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(statistics.size, offsetof(epcclStatistics_t, bytesReceived));
    EXPECT_EQ(statistics.messagesSent, 0U);
    EXPECT_EQ(statistics.bytesReceived, 77U);
    EXPECT_EQ(statistics.messagesCarried, 77U);
    for (const size_t size : {size_t{0}, offsetof(epcclStatistics_t, magic), 65 * sizeof statistics}) {
      statistics.size = size;
      EXPECT_EQ(epcclCommGetStatistics(comm, &statistics), epcclInvalidArgument) << size;
    }
  });
}

constexpr size_t small_block = 1000, large_block = 32 << 10;

TEST(Economy, OfATwoStageAlltoallIsOneMessageForEachOtherNode) {
  // As many carriers as ranks: each sends for itself along its rail.
  run_ranks({{2, 2, 2}, {{"EPCCL_CARRIERS", "2"}, {"EPCCL_NET", "tcp"}}, {}}, [](const RankContext& context) {
    Comm comm(context, "two_stage");
    const epcclStatistics_t cost = cost_of_alltoall(comm, context.ranks, small_block);
    EXPECT_EQ(cost.messagesSent, 2u);
    EXPECT_EQ(cost.messagesReceived, 2u);
    EXPECT_EQ(cost.bytesSent, 2 * 2 * small_block);
    EXPECT_EQ(cost.sendRequests, 0u) << "tcp has no work requests";
  });
}

TEST(Economy, OfAFlatAlltoallIsOneMessageForEachRankOfOtherNodes) {
  run_ranks({{2, 2, 2}, {{"EPCCL_NET", "tcp"}}, {}}, [](const RankContext& context) {
    Comm comm(context, "flat");
    const epcclStatistics_t cost = cost_of_alltoall(comm, context.ranks, small_block);
    EXPECT_EQ(cost.messagesSent, 4u);
    EXPECT_EQ(cost.bytesSent, 4 * small_block);
  });
}

/// On the machine of tests/rdma/run, which sets EPCCL_NET.
class VerbsEconomy : public testing::Test {
 protected:
  void SetUp() override {
    const char* network = std::getenv("EPCCL_NET");
    if (network == nullptr || std::string(network) != "verbs") GTEST_SKIP() << "EPCCL_NET is not verbs";
  }
};

// N-1 signals a rank and chunk, not N*L-1, each for all blocks of a node; and for the receiver one note that says where.
TEST_F(VerbsEconomy, OfATwoStageAlltoallIsOneSignalForEachOtherNodeAndChunk) {
  run_ranks({{3, 3}, {{"EPCCL_CARRIERS", "3"}, {"EPCCL_RAILS", "1"}}, {}}, [](const RankContext& context) {
    Comm comm(context, "two_stage");
    const epcclStatistics_t cost = cost_of_alltoall(comm, context.ranks, large_block);
    EXPECT_EQ(cost.messagesSent, 1u);
    EXPECT_EQ(cost.bytesSent, 3 * large_block);
    EXPECT_EQ(cost.signalRequests, 1u);
    EXPECT_EQ(cost.writeRequests, 0u);
    EXPECT_LE(cost.sendRequests, 2u) << "the note, and a question where its answer was late";
  });
}

TEST_F(VerbsEconomy, OfAFlatAlltoallIsOneSignalForEachRankOfOtherNodes) {
  run_ranks({{3, 3}, {{"EPCCL_RAILS", "1"}}, {}}, [](const RankContext& context) {
    Comm comm(context, "flat");
    const epcclStatistics_t cost = cost_of_alltoall(comm, context.ranks, large_block);
    EXPECT_EQ(cost.signalRequests, 3u);
    EXPECT_EQ(cost.bytesSent, 3 * large_block);
  });
}

TEST_F(VerbsEconomy, OfSmallMessagesIsOneRequestEachAndFewCompletions) {
  run_ranks({{2, 2}, {{"EPCCL_CARRIERS", "2"}}, {}}, [](const RankContext& context) {
    Comm comm(context, "two_stage");
    const epcclStatistics_t cost = cost_of_alltoall(comm, context.ranks, small_block);
    EXPECT_EQ(cost.messagesSent, 1u);
    EXPECT_EQ(cost.sendRequests, 1u);
    EXPECT_EQ(cost.signalRequests, 0u);
    epcclStatistics_t many = statistics_of(comm);
    const auto before = many;
    std::vector<char> input(4 * small_block), output(4 * small_block);
    constexpr unsigned calls = 64;
    for (unsigned call = 0; call < calls; ++call)
      EXPECT_EQ(epcclAlltoall(input.data(), output.data(), small_block, epcclUint8, comm, nullptr),
                epcclSuccess);
    many = statistics_of(comm);
    EXPECT_EQ(many.sendRequests - before.sendRequests, calls);
    EXPECT_EQ(many.completionsRequested - before.completionsRequested, calls / 32);
    EXPECT_GE(many.receiveCompletions, calls) << "of messages, of which one may have come early";
    EXPECT_LE(many.sendCompletions - before.sendCompletions, calls / 16);
  });
}

TEST(Statistics, ThatAreNotSetUpAreRefused) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    EXPECT_EQ(epcclCommGetStatistics(comm, nullptr), epcclInvalidArgument);
    epcclStatistics_t statistics{};
    EXPECT_EQ(epcclCommGetStatistics(comm, &statistics), epcclInvalidArgument);
    EXPECT_EQ(statistics_of(comm).messagesSent, 0u) << "one node has no network";
  });
}

}  // namespace
}  // namespace epccl::tests
