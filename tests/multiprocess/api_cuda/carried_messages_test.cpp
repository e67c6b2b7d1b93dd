// Small messages of GPU memory to other nodes, which neighbours carry from where they have come to the host.
#include "graph_rank.hpp"
#include "letters.hpp"

namespace epccl::tests {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

Environment carrying(const char* aggregate) {
  return {{"EPCCL_NET", "tcp"}, {"EPCCL_DEVICE", "cuda"}, {"EPCCL_GROUP_AGGREGATE", aggregate}};
}

uint64_t carried(epcclComm_t comm) {
  epcclStatistics_t statistics = EPCCL_STATISTICS_INITIALIZER;
  EXPECT_EQ(epcclCommGetStatistics(comm, &statistics), epcclSuccess) << epcclGetLastError(comm);
  return statistics.messagesCarried;
}

uint64_t sum_of_ranks(epcclComm_t comm, uint64_t mine) {
  uint64_t sum = 0;
  EXPECT_EQ(epcclAllReduce(&mine, &sum, 1, epcclUint64, epcclSum, comm, nullptr), epcclSuccess)
      << epcclGetLastError(comm);
  return sum;
}

/// Every rank has messages of `sizes` for every other, of memory of every kind in turn.
std::vector<Letter> all_to_all(int ranks, const std::vector<size_t>& sizes) {
  constexpr std::array kinds{Where::cuda_malloc, Where::mem_alloc, Where::unmappable, Where::host};
  std::vector<Letter> letters;
  size_t kind = 0;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      for (const size_t bytes : sizes) {
        letters.push_back({from, to, bytes, kinds[kind % 4], kinds[kind / 4 % 4]});
        ++kind;
      }
    }
  return letters;
}

/// Repeats the group until each rank has had as many of its messages carried as there can be: on a busy machine neighbours are late in some.
bool come_to_be_carried(const RankContext& context, epcclComm_t comm, Half& half, uint64_t most) {
  half.wait();
  for (int attempt = 1; attempt <= 300 && !testing::Test::HasFailure(); ++attempt) {
    half.fill(attempt);
    const uint64_t before = carried(comm);
    half.run(comm);
    const uint64_t now = carried(comm) - before;
    EXPECT_LE(now, most) << "of rank " << context.rank;
    if (sum_of_ranks(comm, most - now) == 0) return true;
  }
  return false;
}

TEST(CarriedGpuMessages, ReachOtherNodesByNeighboursWhateverMemoryTheyAreIn) {
  run_ranks({{3, 3}, carrying("1"), {}}, [](const RankContext& context) {
    const GpuRank first, second;
    const Comm comm(context);
    Half half(context.rank, all_to_all(context.ranks, {0, 100, 5000}), first, second, 0);
    EXPECT_TRUE(come_to_be_carried(context, comm, half, 9));
  });
}

TEST(CarriedGpuMessages, LeaveLargeOnesToGoDirectlyInTheSameGroup) {
  run_ranks({{2, 2}, carrying("1"), {}}, [](const RankContext& context) {
    const GpuRank first, second;
    const Comm comm(context);
    Half half(context.rank, all_to_all(context.ranks, {100, 300'000, 20'000, 1000}), first, second, 0);
    EXPECT_TRUE(come_to_be_carried(context, comm, half, 4));
  });
}

TEST(CarriedGpuMessages, AreNoneWhereItDoesNotPay) {
  run_ranks({{2, 2}, carrying("auto"), {}}, [](const RankContext& context) {
    const GpuRank first, second;
    const Comm comm(context);
    Half half(context.rank, all_to_all(context.ranks, {8 << 10}), first, second, 0);
    half.wait();
    for (int group = 1; group < 8; ++group) {
      half.fill(group);
      half.run(comm);
    }
    EXPECT_EQ(carried(comm), 0U);
  });
}

// Slots for one or two messages to each rank: the others of a group go directly, when there is room for them again.
TEST(CarriedGpuMessages, WithoutRoomOnTheirWayToTheHostGoDirectly) {
  Environment environment = carrying("1");
  environment.emplace_back("EPCCL_STAGE_SIZE", "700");
  const uint64_t seed = new_seed();
  run_ranks({{2, 2}, environment, {}}, [seed](const RankContext& context) {
    std::mt19937_64 random(seed);  // the same on every rank
    const GpuRank first, second;
    const Comm comm(context);
    for (int round = 1; round < 20 && !testing::Test::HasFailure(); ++round) {
      std::vector<size_t> sizes(1 + random() % 8);
      for (size_t& bytes : sizes) bytes = random() % 900;
      Half half(context.rank, all_to_all(context.ranks, sizes), first, second, round);
      half.run(comm);
    }
    EXPECT_GT(sum_of_ranks(comm, carried(comm)), 0U);
  });
}

}  // namespace
}  // namespace epccl::tests
