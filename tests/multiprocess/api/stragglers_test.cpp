// Which ranks keep the others waiting (epccl/stragglers.h).
#include "epccl/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "rank_log.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr size_t count = 100;  // from and to each rank

void exchange(const RankContext& context, epcclComm_t comm) {
  std::vector<int> input(count * static_cast<size_t>(context.ranks)), output(input.size());
  EXPECT_EQ(epcclAlltoall(input.data(), output.data(), count, epcclInt32, comm, nullptr), epcclSuccess)
      << epcclGetLastError(comm);
}

/// Steps of a program in which one rank computes for longer.
constexpr int steps = 12;
constexpr int slow_milliseconds = 25;

void make_steps(const RankContext& context, epcclComm_t comm, int slow_rank) {
  for (int step = 0; step < steps; ++step) {
    if (context.rank == slow_rank) std::this_thread::sleep_for(std::chrono::milliseconds(slow_milliseconds));
    exchange(context, comm);
  }
}

void measure(epcclComm_t comm) {
  EXPECT_EQ(epcclCommMeasureCalls(comm, 1), epcclSuccess) << epcclGetLastError(comm);
}

struct Found {
  epcclStragglers_t all = EPCCL_STRAGGLERS_INITIALIZER;
  std::vector<epcclRankTimes_t> ranks;
};

Found find(const RankContext& context, epcclComm_t comm, double threshold = 0.05) {
  Found found;
  found.all.threshold = threshold;
  found.ranks.resize(static_cast<size_t>(context.ranks));
  EXPECT_EQ(epcclCommFindStragglers(comm, &found.all, found.ranks.data()), epcclSuccess)
      << epcclGetLastError(comm);
  return found;
}

/// On one node and on two.
class Stragglers : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Stragglers, ::testing::Values(std::vector<int>{4}, std::vector<int>{2, 2}));

TEST_P(Stragglers, AreThoseThatComputeLongerThanTheOthers) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    constexpr int slow = 2;
    const Comm comm(context);
    measure(comm);
    exchange(context, comm);
    make_steps(context, comm, slow);
    const Found found = find(context, comm);
    EXPECT_EQ(found.all.calls, static_cast<unsigned long long>(steps));
    constexpr double slept = steps * slow_milliseconds * 1e-3;
    EXPECT_GT(found.all.lost, slept / 2);
    EXPECT_GE(found.all.late, 1);
    const epcclRankTimes_t& its = found.ranks[slow];
    EXPECT_EQ(its.lateBy, epcclLateBetweenCalls);
    EXPECT_GT(its.late, slept / 2);
    EXPECT_GE(its.between, slept);
    EXPECT_GE(its.lastCalls, static_cast<unsigned long long>(steps) / 2);
    for (const epcclRankTimes_t& rank : found.ranks) {
      EXPECT_LE(rank.late, its.late);
      EXPECT_LE(rank.between + rank.own + rank.waited, found.all.seconds * 1.001);
    }
  });
}

TEST_P(Stragglers, AreTheSameToAllRanks) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    measure(comm);
    make_steps(context, comm, 1);
    const Found found = find(context, comm);
    std::vector<double> told;
    for (const epcclRankTimes_t& it : found.ranks)
      told.insert(told.end(), {it.late, it.between, it.own, it.waited, static_cast<double>(it.lastCalls),
                               static_cast<double>(it.lateBy)});
    std::vector<double> all(told.size() * found.ranks.size());
    ASSERT_EQ(epcclAllGather(told.data(), all.data(), told.size(), epcclFloat64, comm, nullptr),
              epcclSuccess);
    for (size_t rank = 0; rank < found.ranks.size(); ++rank)
      EXPECT_TRUE(
          std::equal(told.begin(), told.end(), all.begin() + static_cast<ptrdiff_t>(rank * told.size())))
          << "rank " << rank;
  });
}

TEST_P(Stragglers, AreLookedForInCallsThatAllRanksWaitForSinceTheLastLook) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    measure(comm);
    exchange(context, comm);
    std::vector<float> values(count);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(epcclBroadcast(values.data(), values.data(), count, epcclFloat32, 0, comm, nullptr),
                epcclSuccess);
      EXPECT_EQ(epcclReduce(values.data(), values.data(), count, epcclFloat32, epcclSum, 1, comm, nullptr),
                epcclSuccess);
    }
    EXPECT_EQ(epcclAllReduce(values.data(), values.data(), count, epcclFloat32, epcclSum, comm, nullptr),
              epcclSuccess);
    exchange(context, comm);
    EXPECT_EQ(find(context, comm, 1).all.calls, 2U);
    const Found none = find(context, comm, 0);
    EXPECT_EQ(none.all.calls, 0U);
    EXPECT_EQ(none.all.late, 0);
    exchange(context, comm);
    EXPECT_EQ(find(context, comm, 1).all.calls, 1U) << "all had met in the look before";
  });
}

TEST_P(Stragglers, CanBeLookedForWithoutTheirTimes) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    measure(comm);
    exchange(context, comm);
    exchange(context, comm);
    epcclStragglers_t found = EPCCL_STRAGGLERS_INITIALIZER;
    EXPECT_EQ(epcclCommFindStragglers(comm, &found, nullptr), epcclSuccess);
    EXPECT_EQ(found.calls, 1U);
  });
}

TEST_P(Stragglers, AreNotFoundWhereARankDoesNotMeasureAndAllAreTold) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    if (context.rank != 2) measure(comm);
    exchange(context, comm);
    epcclStragglers_t found = EPCCL_STRAGGLERS_INITIALIZER;
    EXPECT_EQ(epcclCommFindStragglers(comm, &found, nullptr), epcclInvalidUsage);
    EXPECT_THAT(epcclGetLastError(comm), HasSubstr("rank 2 does not measure its calls"));
    if (context.rank == 2) measure(comm);
    exchange(context, comm);
    exchange(context, comm);
    EXPECT_EQ(find(context, comm).all.calls, 1U) << "the communicator is as good as before";
  });
}

TEST(StragglersOfStreams, AreThoseWhoseStreamsComeLate) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    measure(comm);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    std::vector<float> values(count);
    for (int step = 0; step < steps; ++step) {
      if (context.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(slow_milliseconds));
      EXPECT_EQ(epcclAllReduce(values.data(), values.data(), count, epcclFloat32, epcclSum, comm, stream),
                epcclSuccess);
    }
    const Found found = find(context, comm);  // waits for its turn behind them
    EXPECT_EQ(found.all.calls, static_cast<unsigned long long>(steps - 1));
    EXPECT_EQ(found.ranks[1].lateBy, epcclLateBetweenCalls);
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

/// EPCCL_STRAGGLERS.
TEST_P(Stragglers, AreSaidByRank0AfterSoManyCalls) {
  run_ranks({GetParam(),
             {{"EPCCL_STRAGGLERS", std::to_string(steps)}, {"EPCCL_DEBUG", "WARN"}, Log::setting()},
             {}},
            [](const RankContext& context) {
              const Log log;
              const Comm comm(context);
              make_steps(context, comm, 3);
              const std::string said = log.text();
              if (context.rank != 0) {
                EXPECT_THAT(said, Not(HasSubstr("straggler")));
                return;
              }
              EXPECT_THAT(said, HasSubstr("straggler: rank 3 of node "));
              EXPECT_THAT(said, HasSubstr(std::to_string(steps - 1) + " calls: between calls it takes 0."));
              EXPECT_EQ(epcclCommMeasureCalls(comm, 0), epcclSuccess);
            });
}

// Whatever lies between: the ranks compare after the same call.
TEST_P(Stragglers, AreComparedAfterCallsOfAllWhateverSomeDoBetween) {
  run_ranks({GetParam(), {{"EPCCL_STRAGGLERS", "2"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    std::vector<float> values(count);
    const auto message = [&](int from, int to) {
      if (context.rank == from) {
        EXPECT_EQ(epcclSend(values.data(), count, epcclFloat32, to, comm, nullptr), epcclSuccess);
      }
      if (context.rank == to) {
        EXPECT_EQ(epcclRecv(values.data(), count, epcclFloat32, from, comm, nullptr), epcclSuccess);
      }
    };
    const auto sum = [&](size_t elements) {
      EXPECT_EQ(epcclAllReduce(values.data(), values.data(), elements, epcclFloat32, epcclSum, comm, nullptr),
                epcclSuccess)
          << epcclGetLastError(comm);
    };
    for (int round = 0; round < 5; ++round) {
      exchange(context, comm);
      message(0, 3);
      sum(0);
      message(3, 1);
      exchange(context, comm);  // here they compare
      message(1, 2);
      EXPECT_EQ(epcclBroadcast(values.data(), values.data(), count, epcclFloat32, 2, comm, nullptr),
                epcclSuccess);
      sum(count);
      std::vector<size_t> counts(static_cast<size_t>(context.ranks)), places(counts.size());
      counts[0] = 1;
      std::vector<size_t> received(counts.size(), context.rank == 0 ? 1 : 0);
      for (size_t rank = 0; rank < places.size(); ++rank) places[rank] = rank;
      std::vector<int> in(places.size()), out(places.size());
      EXPECT_EQ(epcclAlltoallv(in.data(), counts.data(), places.data(), out.data(), received.data(),
                               places.data(), epcclInt32, comm, nullptr),
                epcclSuccess)
          << epcclGetLastError(comm);  // and here
      message(2, 0);
    }
  });
}

TEST(StragglersOfFaults, ArgumentsThatCannotBeAreRefused) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    measure(comm);
    EXPECT_EQ(epcclCommFindStragglers(comm, nullptr, nullptr), epcclInvalidArgument);
    epcclStragglers_t found{};
    EXPECT_EQ(epcclCommFindStragglers(comm, &found, nullptr), epcclInvalidArgument);
    for (const double threshold : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
      found = EPCCL_STRAGGLERS_INITIALIZER;
      found.threshold = threshold;
      EXPECT_EQ(epcclCommFindStragglers(comm, &found, nullptr), epcclInvalidArgument);
      EXPECT_THAT(epcclGetLastError(comm), HasSubstr("threshold is "));
    }
    found = EPCCL_STRAGGLERS_INITIALIZER;
    EXPECT_EQ(epcclCommFindStragglers(nullptr, &found, nullptr), epcclInvalidArgument);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclCommFindStragglers(comm, &found, nullptr), epcclInvalidUsage);
    EXPECT_EQ(epcclGroupEnd(), epcclSuccess);
    exchange(context, comm);
    exchange(context, comm);
    EXPECT_EQ(find(context, comm).all.late, 0) << "nobody is behind oneself";
  });
}

}  // namespace
}  // namespace epccl::tests
