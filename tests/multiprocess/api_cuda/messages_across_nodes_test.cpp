// Sends and receives of GPU memory between nodes: in pieces, through pinned memory that is as large whatever they are; the other end,
// which may be host memory, cuts alike.
#include <gmock/gmock.h>
#include <signal.h>

#include <array>
#include <thread>

#include "../api/names_the_dead.hpp"
#include "fake_driver.hpp"
#include "graph_rank.hpp"
#include "letters.hpp"
#include "lost_gpu.hpp"

namespace epccl::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Environment = std::vector<std::pair<std::string, std::string>>;

// Of two ranks: a piece is the stage and 256 bytes, where that is so small.
constexpr size_t stage = 2000, piece = stage + 256;
const Environment tiny_pieces{{"EPCCL_STAGE_SIZE", "2000"}, {"EPCCL_DEVICE", "cuda"}};

constexpr std::array anywhere{Where::cuda_malloc, Where::mem_alloc, Where::unmappable, Where::host};

TEST(GpuMessagesAcrossNodes, OfAnyLengthGoFromAnyMemoryToAny) {
  run_ranks({{1, 1}, tiny_pieces, {}}, [](const RankContext& context) {
    const GpuRank first, second;
    const Comm comm(context);
    int mark = 1;
    for (const size_t bytes : {size_t{1}, piece - 1, piece, piece + 1, 2 * piece, 40 * piece + 7}) {
      std::vector<Letter> letters;
      for (const Where source : anywhere)
        for (const Where destination : anywhere) {
          letters.push_back({0, 1, bytes, source, destination});
          letters.push_back({1, 0, bytes, source, destination});
        }
      Half(context.rank, letters, first, second, mark += 100).run(comm);
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST(GpuMessagesAcrossNodes, OfRandomPatternsArriveInTinyPieces) {
  const uint64_t seed = new_seed();
  const auto run = [seed](const RankContext& context) {
    std::mt19937_64 random(seed);  // the same on every rank
    const GpuRank first, second;
    const Comm comm(context);
    // Which each rank chooses for itself.
    if (context.rank == 1) {
      EXPECT_EQ(epcclCommSetCopyEngine(comm, "never"), epcclSuccess);
    }
    for (int round = 0; round < 4 && !testing::Test::HasFailure(); ++round)
      Half(context.rank, pattern(context.ranks, random), first, second, 1000 * round).run(comm);
  };
  run_ranks({{2, 2}, tiny_pieces, {}}, run);
  run_ranks(
      {{1, 3}, {{"EPCCL_STAGE_SIZE", "700"}, {"EPCCL_DEVICE", "cuda"}, {"EPCCL_GROUP_AGGREGATE", "1"}}, {}},
      run);
}

// A rank with much to send does not hold back what others wait for.
TEST(GpuMessagesAcrossNodes, ToARankThatReceivesLaterDoNotStopThoseToOthers) {
  run_ranks({{1, 1, 1}, tiny_pieces, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Letter large{0, 1, 4 << 20, plain, plain}, small{0, 2, 50'000, plain, plain},
        then{2, 1, 50'000, plain, plain};
    if (context.rank == 0) Half(0, {large, small}, gpu, gpu, 1).run(comm);
    if (context.rank == 1) {
      Half(1, {then}, gpu, gpu, 3).run(comm);  // which comes when rank 2 has rank 0's
      Half(1, {large}, gpu, gpu, 1).run(comm);
    }
    if (context.rank == 2) {
      Half late(2, {large, small}, gpu, gpu, 1);
      late.run(comm);
      Half(2, {then}, gpu, gpu, 3).run(comm);
    }
  });
}

TEST(GpuMessagesAcrossNodes, TakeNoMorePinnedMemoryForLongMessages) {
  run_ranks({{1, 1}, {{"EPCCL_STAGE_SIZE", "64K"}}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const auto exchange = [&](size_t bytes) {
      const std::vector<Letter> letters{{0, 1, bytes, plain, plain}, {1, 0, bytes, plain, plain}};
      Half(context.rank, letters, gpu, gpu, 5).run(comm);
    };
    exchange(1000);
    const long pinned = fake_cuda_live("pinned");
    EXPECT_LT(pinned, 2 << 20);
    exchange(20 << 20);
    EXPECT_EQ(fake_cuda_live("pinned"), pinned);
  });
}

struct Lengths {
  size_t sent, expected;
  const char* what;
};

// Whatever either end is, and whether a piece ends just there.
TEST(GpuMessagesAcrossNodes, OfWrongLengthsAreNamed) {
  const std::vector<Lengths> cases{
      {100, 200, "expects 200 bytes, rank 0 sent 100"},
      {piece, piece + 1, "expects 2257 bytes, rank 0 sent 2256"},
      {2 * piece, 10'000, "expects 10000 bytes, rank 0 sent 4512"},
      {0, 10'000, "expects 10000 bytes, rank 0 sent 0"},
      {200, 100, "rank 0 sent 200 bytes where rank 1 receives at most 100"},
      {10'000, 100, "rank 0 sent 2256 bytes where rank 1 receives at most 100"},
      {10'000, 2 * piece, "from byte 4512 on: rank 0 sent 2256 bytes where rank 1 receives at most 0"},
  };
  for (const Lengths& lengths : cases)
    for (const auto& [source, destination] :
         {std::pair(plain, plain), std::pair(plain, Where::host), std::pair(Where::host, plain)})
      run_ranks({{1, 1}, tiny_pieces, {}}, [&](const RankContext& context) {
        const GpuRank gpu;
        epcclComm_t comm = nullptr;
        ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
        const bool sends = context.rank == 0;
        Buffer buffer(sends ? source : destination, std::max(lengths.sent, lengths.expected));
        // On host memory the call itself may be what fails.
        static_cast<void>(
            sends ? epcclSend(buffer.data(), lengths.sent, epcclUint8, 1, comm, buffer.stream(gpu))
                  : epcclRecv(buffer.data(), lengths.expected, epcclUint8, 0, comm, buffer.stream(gpu)));
        gpu.wait();
        epcclResult_t failure = epcclSuccess;
        while (failure == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
        if (!sends) {
          EXPECT_THAT(epcclGetLastError(comm), HasSubstr(lengths.what));
        }
        EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
      });
}

// In the middle of long messages, in both directions.
TEST(GpuMessagesAcrossNodes, EndWhereAPeerDies) {
  run_ranks({{1, 1, 1}, {{"EPCCL_TIMEOUT", "20"}, {"EPCCL_STAGE_SIZE", "2000"}}, {2}},
            [](const RankContext& context) {
              const GpuRank gpu;
              epcclComm_t comm = nullptr;
              ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
              std::vector<Letter> letters;
              for (int from = 0; from < 3; ++from)
                for (int to = 0; to < 3; ++to)
                  if (from != to) letters.push_back({from, to, 8 << 20, plain, plain});
              Half half(context.rank, letters, gpu, gpu, 1);
              ASSERT_EQ(epcclGroupStart(), epcclSuccess);
              half.issue(comm);
              ASSERT_EQ(epcclGroupEnd(), epcclSuccess);
              if (context.rank == 2) {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                raise(SIGKILL);
              }
              gpu.wait();  // not for ever
              epcclResult_t failure = epcclSuccess;
              while (failure == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
              EXPECT_EQ(failure, epcclRemoteError);
              EXPECT_THAT(epcclGetLastError(comm), names_the_dead(2));
              EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
            });
}

TEST(GpuMessagesAcrossNodes, EndWithAnErrorOfTheGpu) {
  run_ranks({{1, 1}, tiny_pieces, {}}, [](const RankContext& context) {
    expect_a_message_to_end_with_an_error_of_the_receivers_gpu(context, 90'000);
  });
}

}  // namespace
}  // namespace epccl::tests
