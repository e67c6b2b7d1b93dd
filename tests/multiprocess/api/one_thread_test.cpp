// One process with several ranks: driven by a thread each, or all by one thread, whose calls for all ranks go into one group.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>
#include <thread>
#include <vector>

#include "exchange.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

// A process of its own: what one test leaves in the library is not the next one's.
void in_one_process(const std::function<void()>& body,
                    std::vector<std::pair<std::string, std::string>> environment = {
                        {"EPCCL_TIMEOUT", "20"}}) {
  run_ranks({{1}, std::move(environment), {}}, [&](const RankContext&) { body(); });
}

/// All ranks of a communicator, in this process.
class AllRanks {
 public:
  explicit AllRanks(int ranks) : comms_(static_cast<size_t>(ranks)) {
    EXPECT_EQ(epcclCommInitAll(comms_.data(), ranks, nullptr), epcclSuccess) << epcclGetLastError(nullptr);
  }
  AllRanks(const AllRanks&) = delete;
  AllRanks& operator=(const AllRanks&) = delete;
  ~AllRanks() {
    for (epcclComm_t comm : comms_) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  }
  int size() const { return static_cast<int>(comms_.size()); }
  epcclComm_t operator[](int rank) const { return comms_[static_cast<size_t>(rank)]; }

 private:
  std::vector<epcclComm_t> comms_;
};

std::deque<Exchange> exchanges(int ranks, size_t count, int iteration = 0) {
  std::deque<Exchange> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(rank, ranks, count, iteration);
  return all;
}

class OneThread : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OneThread, testing::Values(1, 2, 3, 8));

TEST_P(OneThread, DrivesAllRanksOfInitAllInOneGroup) {
  in_one_process([ranks = GetParam()] {
    const AllRanks comms(ranks);
    for (int iteration = 0; iteration < 5; ++iteration) {
      auto all = exchanges(ranks, 1000, iteration);
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(all[static_cast<size_t>(rank)].start(comms[rank]), epcclSuccess);
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
      for (const Exchange& exchange : all) EXPECT_EQ(exchange.wrong(), 0U);
    }
  });
}

TEST_P(OneThread, JoinsAsAllRanksInOneGroup) {
  in_one_process([ranks = GetParam()] {
    epcclUniqueId id;
    ASSERT_EQ(epcclGetUniqueId(&id), epcclSuccess);
    std::vector<epcclComm_t> comms(static_cast<size_t>(ranks));
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = ranks - 1; rank >= 0; --rank)
      EXPECT_EQ(epcclCommInitRank(&comms[static_cast<size_t>(rank)], ranks, id, rank), epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(place_in(comms[static_cast<size_t>(rank)]).rank, rank);
    for (epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

// An aborted call keeps its buffers until its peers have stopped copying from them.
TEST(AbortedCall, HasItsBuffersBackWhenNoPeerReadsThem) {
  in_one_process([] {
    constexpr size_t bytes = 96 << 20;
    for (int round = 1; round <= 4; ++round) {
      std::array<epcclComm_t, 2> comms{};
      ASSERT_EQ(epcclCommInitAll(comms.data(), 2, nullptr), epcclSuccess);
      std::vector<char> out(bytes);
      const auto call = [&](size_t rank) {
        // Its memory is gone when the call has returned.
        std::vector<char> in(rank == 0 ? bytes : 1, 1);
        const std::array<size_t, 2> sends{0, rank == 0 ? bytes : 0}, receives{rank == 1 ? bytes : 0, 0},
            displs{};
        static_cast<void>(epcclAlltoallv(in.data(), sends.data(), displs.data(), out.data(), receives.data(),
                                         displs.data(), epcclInt8, comms[rank], nullptr));
      };
      std::thread first(call, 0), second(call, 1);
      usleep(static_cast<useconds_t>(round) * 6000);  // whenever: in the middle of the copy, most often
      EXPECT_EQ(epcclCommAbort(comms[0]), epcclSuccess);
      first.join();
      second.join();
      EXPECT_EQ(epcclCommAbort(comms[1]), epcclSuccess);
    }
  });
}

// Destructors of static objects run when the main thread's own objects have ended.
TEST(OneThread, CallsWhenTheProgramEnds) {
  struct AtExit {
    std::array<epcclComm_t, 2> comms{};
    static bool sum(epcclComm_t comm) {
      const int in = 5;
      int out = 0;
      return epcclGroupStart() == epcclSuccess &&
             epcclAllReduce(&in, &out, 1, epcclInt32, epcclSum, comm, nullptr) == epcclSuccess &&
             epcclGroupEnd() == epcclSuccess &&
             epcclAllReduce(&in, &out, 1, epcclInt32, epcclSum, comm, nullptr) == epcclSuccess && out == 5;
    }
    ~AtExit() {
      const bool fine = sum(comms[1]) && sum(comms[0]) && epcclGetUniqueId(nullptr) == epcclInvalidArgument &&
                        std::strstr(epcclGetLastError(nullptr), "NULL") != nullptr;
      for (epcclComm_t comm : comms) epcclCommDestroy(comm);
      if (!fine) _exit(1);
    }
  };
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    static AtExit at_exit;
    bool fine = true;
    for (epcclComm_t& comm : at_exit.comms)
      fine = fine && epcclCommInitAll(&comm, 1, nullptr) == epcclSuccess;
    fine = fine && AtExit::sum(at_exit.comms[0]) && epcclGetUniqueId(nullptr) == epcclInvalidArgument;
    exit(fine ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Each rank on a stream of its own, and some ranks on none: what is inline must not keep the rest from being started.
TEST_P(OneThread, MixesStreamsAndInlineCallsInOneGroup) {
  in_one_process([ranks = GetParam()] {
    const AllRanks comms(ranks);
    std::vector<epcclStream_t> streams(static_cast<size_t>(ranks));
    for (size_t rank = 0; rank < streams.size(); ++rank)
      if (rank % 2 == 1) {
        ASSERT_EQ(epcclStreamCreate(&streams[rank]), epcclSuccess);
      }
    auto all = exchanges(ranks, 5000);
    std::vector<int> received(static_cast<size_t>(ranks), -1), sent(received.size());
    std::iota(sent.begin(), sent.end(), 0);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<size_t>(rank);
      EXPECT_EQ(all[at].start(comms[rank], streams[at]), epcclSuccess);
      EXPECT_EQ(epcclSend(&sent[at], 1, epcclInt32, (rank + 1) % ranks, comms[rank], streams[at]),
                epcclSuccess);
      EXPECT_EQ(epcclRecv(&received[at], 1, epcclInt32, (rank + ranks - 1) % ranks, comms[rank], streams[at]),
                epcclSuccess);
    }
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    for (epcclStream_t stream : streams) EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(all[static_cast<size_t>(rank)].wrong(), 0U);
      EXPECT_EQ(received[static_cast<size_t>(rank)], (rank + ranks - 1) % ranks);
    }
    for (epcclStream_t stream : streams)
      if (stream != nullptr) {
        EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
      }
  });
}

// As on none: they do not wait for their turns in it, but for each other.
TEST_P(OneThread, DrivesAllRanksOnOneStream) {
  in_one_process([ranks = GetParam()] {
    const AllRanks comms(ranks);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    std::vector<std::deque<Exchange>> rounds;
    for (int round = 0; round < 3; ++round)
      rounds.push_back(exchanges(ranks, 100 * (static_cast<size_t>(round) + 1), round));
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = ranks - 1; rank >= 0; --rank)
      for (auto& round : rounds)
        EXPECT_EQ(round[static_cast<size_t>(rank)].start(comms[rank], stream), epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess);
    for (const auto& round : rounds)
      for (const Exchange& exchange : round) EXPECT_EQ(exchange.wrong(), 0U);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

// A rank's calls on it run in order, whichever of its communicators they are of.
TEST_P(OneThread, DrivesAllRanksAndTheirSplitsOnOneStream) {
  in_one_process([ranks = GetParam()] {
    const AllRanks comms(ranks);
    std::vector<epcclComm_t> split(static_cast<size_t>(ranks));
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(epcclCommSplit(comms[rank], 0, rank, &split[static_cast<size_t>(rank)], nullptr),
                epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    std::vector<std::vector<double>> values(static_cast<size_t>(ranks), std::vector<double>(20'000, 1));
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int round = 0; round < 2; ++round)
      for (size_t rank = 0; rank < values.size(); ++rank)
        for (epcclComm_t comm : {comms[static_cast<int>(rank)], split[rank]})
          EXPECT_EQ(epcclAllReduce(values[rank].data(), values[rank].data(), values[rank].size(),
                                   epcclFloat64, epcclSum, comm, stream),
                    epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess);
    for (const auto& each : values)
      EXPECT_EQ(each, std::vector<double>(each.size(), std::pow(ranks, 4))) << ranks;
    for (epcclComm_t comm : split) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

// Communicators of one rank are no ranks of each other: what is on the stream runs in order.
TEST(OneThreadOrder, OfCommunicatorsOfOneRankOnOneStreamIsThatOfTheStream) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    epcclComm_t other = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, 0, context.rank, &other, nullptr), epcclSuccess);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    for (int time = 0; time < 20; ++time) {
      std::vector<float> values(100'000, 1);
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      for (epcclComm_t each : {epcclComm_t(comm), other, epcclComm_t(comm), other})
        EXPECT_EQ(
            epcclAllReduce(values.data(), values.data(), values.size(), epcclFloat32, epcclSum, each, stream),
            epcclSuccess);
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess);
      ASSERT_EQ(epcclStreamSynchronize(stream), epcclSuccess);
      EXPECT_EQ(values, std::vector<float>(values.size(), 16));
    }
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(other), epcclSuccess);
  });
}

TEST_P(OneThread, SplitsAllRanksInOneGroup) {
  in_one_process([ranks = GetParam()] {
    const AllRanks comms(ranks);
    std::vector<epcclComm_t> halves(static_cast<size_t>(ranks));
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(epcclCommSplit(comms[rank], rank % 2, rank, &halves[static_cast<size_t>(rank)], nullptr),
                epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    std::deque<Exchange> all;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = 0; rank < ranks; ++rank) {
      const Place place = place_in(halves[static_cast<size_t>(rank)]);
      EXPECT_EQ(place.rank, rank / 2);
      EXPECT_EQ(place.ranks, (ranks + 1 - rank % 2) / 2);
      EXPECT_EQ(
          all.emplace_back(place.rank, place.ranks, 100, rank % 2).start(halves[static_cast<size_t>(rank)]),
          epcclSuccess);
    }
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    for (const Exchange& exchange : all) EXPECT_EQ(exchange.wrong(), 0U);
    for (epcclComm_t half : halves) EXPECT_EQ(epcclCommDestroy(half), epcclSuccess);
  });
}

// Several calls of each communicator keep their order, though communicators run beside each other.
TEST(OneThreadOrder, OfEachCommunicatorsCallsIsKept) {
  in_one_process([] {
    const AllRanks comms(3);
    std::vector<std::deque<Exchange>> rounds;
    for (int round = 0; round < 4; ++round)
      rounds.push_back(exchanges(3, 100 * (static_cast<size_t>(round) + 1), round));
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    // All of rank 2's first: every order of ranks must do.
    for (int rank = 2; rank >= 0; --rank)
      for (auto& round : rounds) EXPECT_EQ(round[static_cast<size_t>(rank)].start(comms[rank]), epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    for (const auto& round : rounds)
      for (const Exchange& exchange : round) EXPECT_EQ(exchange.wrong(), 0U);
  });
}

TEST(Threads, EachDriveARankOfOneProcess) {
  in_one_process([] {
    constexpr int ranks = 4;
    epcclUniqueId id;
    ASSERT_EQ(epcclGetUniqueId(&id), epcclSuccess);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([rank, id] {
        const Comm comm(RankContext{rank, ranks, id});
        for (int iteration = 0; iteration < 20; ++iteration) {
          Exchange exchange(rank, ranks, 3000, iteration);
          EXPECT_EQ(exchange.start(comm), epcclSuccess) << epcclGetLastError(comm);
          EXPECT_EQ(exchange.wrong(), 0U);
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(InitAll, TellsTheDevicesOfItsList) {
  in_one_process([] {
    const int devices[] = {5, 3, 5};
    epcclComm_t comms[3] = {};
    ASSERT_EQ(epcclCommInitAll(comms, 3, devices), epcclSuccess) << epcclGetLastError(nullptr);
    for (int rank = 0; rank < 3; ++rank) {
      int device = -1;
      EXPECT_EQ(epcclCommDevice(comms[rank], &device), epcclSuccess);
      EXPECT_EQ(device, devices[rank]);
      EXPECT_EQ(place_in(comms[rank]).rank, rank);
    }
    for (epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(InitAll, RefusesWhatCannotBe) {
  in_one_process([] {
    epcclComm_t comms[2] = {};
    const int negative[] = {0, -4};
    EXPECT_EQ(epcclCommInitAll(nullptr, 2, nullptr), epcclInvalidArgument);
    EXPECT_EQ(epcclCommInitAll(comms, 0, nullptr), epcclInvalidArgument);
    EXPECT_EQ(epcclCommInitAll(comms, 2, negative), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "devlist[1] is -4"), nullptr)
        << epcclGetLastError(nullptr);
  });
}

TEST(InitRankScalable, MeetsAtTheFirstOfSeveralIds) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    // Every rank makes an id; all are handed round on a communicator made before.
    std::vector<epcclUniqueId> ids(3);
    {
      const Comm comm(context);
      std::vector<epcclUniqueId> mine(3);
      ASSERT_EQ(epcclGetUniqueId(&mine[0]), epcclSuccess);
      mine[1] = mine[2] = mine[0];
      ASSERT_EQ(epcclAlltoall(mine.data(), ids.data(), sizeof mine[0], epcclUint8, comm, nullptr),
                epcclSuccess);
    }
    epcclComm_t comm = nullptr;
    EXPECT_EQ(epcclCommInitRankScalable(&comm, 3, context.rank, 4, ids.data(), nullptr),
              epcclInvalidArgument);
    EXPECT_EQ(epcclCommInitRankScalable(&comm, 3, context.rank, 0, ids.data(), nullptr),
              epcclInvalidArgument);
    const auto refused = [&](int count, std::vector<epcclUniqueId> wrong, epcclResult_t code,
                             const char* words) {
      EXPECT_EQ(epcclCommInitRankScalable(&comm, 3, context.rank, count, wrong.data(), nullptr), code);
      EXPECT_NE(std::strstr(epcclGetLastError(nullptr), words), nullptr) << epcclGetLastError(nullptr);
      EXPECT_EQ(comm, nullptr);
    };
    auto damaged = ids;
    damaged[1].internal[50] ^= 1;
    refused(3, damaged, epcclInvalidArgument, "commIds[1]: a damaged unique id");
    refused(3, {ids[0], ids[1], ids[0]}, epcclInvalidArgument, "commIds[2] is commIds[0]");
    ASSERT_EQ(epcclCommInitRankScalable(&comm, 3, context.rank, 3, ids.data(), nullptr), epcclSuccess)
        << epcclGetLastError(nullptr);
    Exchange exchange(context.rank, 3, 10);
    EXPECT_EQ(exchange.start(comm), epcclSuccess);
    EXPECT_EQ(exchange.wrong(), 0U);
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(InitRankScalable, SaysWhoWasGivenOtherIds) {
  run_ranks({{3}, {{"EPCCL_TIMEOUT", "100"}}, {}}, [](const RankContext& context) {
    // Made by nobody who is here: only the first one's place is gone to.
    std::vector<epcclUniqueId> ids{context.id, context.id, context.id};
    ASSERT_EQ(epcclGetUniqueId(&ids[1]), epcclSuccess);
    epcclComm_t comm = nullptr;
    EXPECT_EQ(epcclCommInitRankScalable(&comm, 3, context.rank, 2, ids.data(), nullptr), epcclInvalidUsage);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "rank 1 were given different unique ids"), nullptr)
        << epcclGetLastError(nullptr);
  });
}

// A group of which one call is wrong makes no communicator.
TEST(InitInAGroup, IsUndoneWhereAnotherCallIsRefused) {
  in_one_process([] {
    epcclUniqueId id;
    ASSERT_EQ(epcclGetUniqueId(&id), epcclSuccess);
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclCommInitRank(&comm, 2, id, 0), epcclSuccess);
    const epcclComm_t early = comm;
    EXPECT_EQ(epcclCommInitRank(&comm, 2, id, 7), epcclInvalidArgument);
    EXPECT_EQ(epcclGroupEnd(), epcclInvalidArgument);
    EXPECT_EQ(comm, nullptr);
    EXPECT_EQ(epcclCommDestroy(early), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "could not be made"), nullptr)
        << epcclGetLastError(nullptr);
  });
}

// A rank of the group fails to join: the others end, too, and say why.
TEST(InitInAGroup, EndsWhereRanksDisagree) {
  in_one_process([] {
    epcclUniqueId id;
    ASSERT_EQ(epcclGetUniqueId(&id), epcclSuccess);
    epcclComm_t comms[2] = {};
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclCommInitRank(&comms[0], 2, id, 0), epcclSuccess);
    EXPECT_EQ(epcclCommInitRank(&comms[1], 3, id, 1), epcclSuccess);
    EXPECT_NE(epcclGroupEnd(), epcclSuccess);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "ranks disagree on their number"), nullptr)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(comms[0], nullptr);
    EXPECT_EQ(comms[1], nullptr);
  });
}

}  // namespace
}  // namespace epccl::tests
