// Groups of sends and receives between virtual nodes: any pattern, whatever the others do and whoever carries.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "group_patterns.hpp"
#include "halves.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

uint64_t new_seed() {
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("EPCCL_TEST_SEED"); given != nullptr)
    seed = std::strtoull(given, nullptr, 10);
  std::printf("random seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

/// One message of a pattern that every rank knows.
struct Letter {
  int from, to;
  size_t bytes;
};

/// This rank's half of a pattern: issues it as one group, and checks what came.
class Half {
 public:
  Half(const RankContext& context, const std::vector<Letter>& letters, int iteration) : rank_(context.rank) {
    int number = 0;
    for (const Letter& letter : letters) {
      const int mark = iteration * 1000 + number++;
      if (letter.from == rank_) add(letter.to, true, letter, mark);
      if (letter.to == rank_) add(letter.from, false, letter, mark);
    }
  }
  /// Datatypes of equal size may differ between the ends.
  void issue(epcclComm_t comm) {
    for (Part& part : parts_) {
      std::vector<uint8_t>& data = part.data;
      const bool as_float = data.size() % 4 == 0 && (part.is_send ? rank_ % 2 == 0 : rank_ % 3 == 0);
      const auto type = as_float ? epcclFloat32 : epcclUint8;
      const size_t count = as_float ? data.size() / 4 : data.size();
      EXPECT_EQ(part.is_send ? epcclSend(data.data(), count, type, part.peer, comm, nullptr)
                             : epcclRecv(data.data(), count, type, part.peer, comm, nullptr),
                epcclSuccess)
          << epcclGetLastError(comm);
    }
  }
  void check() const {
    for (const Part& part : parts_) {
      if (part.is_send) continue;
      size_t wrong = 0;
      for (size_t i = 0; i < part.data.size(); ++i)
        wrong += part.data[i] != unique_byte(part.peer, rank_, i, part.mark);
      EXPECT_EQ(wrong, 0U) << "of " << part.data.size() << " bytes from rank " << part.peer << " to "
                           << rank_;
    }
  }
  void run(epcclComm_t comm) { run_as_group(*this, comm); }

 private:
  struct Part {
    int peer;
    bool is_send;
    int mark;
    std::vector<uint8_t> data;
  };
  void add(int peer, bool is_send, const Letter& letter, int mark) {
    std::vector<uint8_t> data(letter.bytes, poison);
    for (size_t i = 0; is_send && i < data.size(); ++i) data[i] = unique_byte(rank_, peer, i, mark);
    parts_.push_back({peer, is_send, mark, std::move(data)});
  }
  const int rank_;
  std::deque<Part> parts_;
};

std::vector<Letter> pattern(int ranks, std::mt19937_64& random) {
  std::vector<Letter> letters;
  const auto size = [&]() -> size_t {
    const uint64_t dice = random() % 10;
    return dice == 0 ? 0 : dice == 1 ? random() % 100'000 : random() % 2000;
  };
  draw_pattern(ranks, random, [&](int from, int to) { letters.push_back({from, to, size()}); });
  return letters;
}

/// A second communicator of the same ranks; rank 0 makes its id.
RankContext another(const RankContext& context, epcclComm_t comm) {
  RankContext second = context;
  if (context.rank == 0) {
    EXPECT_EQ(epcclGetUniqueId(&second.id), epcclSuccess);
  }
  EXPECT_EQ(epcclGroupStart(), epcclSuccess);
  for (int peer = 1; context.rank == 0 && peer < context.ranks; ++peer)
    EXPECT_EQ(epcclSend(&second.id, sizeof second.id, epcclUint8, peer, comm, nullptr), epcclSuccess);
  if (context.rank != 0) {
    EXPECT_EQ(epcclRecv(&second.id, sizeof second.id, epcclUint8, 0, comm, nullptr), epcclSuccess);
  }
  EXPECT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
  return second;
}

std::vector<Letter> everybody_to_everybody(int ranks, size_t bytes) {
  std::vector<Letter> letters;
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b) letters.push_back({a, b, bytes});
  return letters;
}

/// Connects every pair: addresses are asked for at the rendezvous, which ends with rank 0's process.
void meet(const RankContext& context, epcclComm_t comm) {
  Half(context, everybody_to_everybody(context.ranks, 20'000), 0).run(comm);
}

void run_patterns(const RankContext& context, uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);  // the same on every rank
  Comm comm(context);
  meet(context, comm);
  for (int round = 0; round < rounds; ++round) {
    const std::vector<Letter> letters = pattern(context.ranks, random);
    for (int repeat = 0; repeat < 4; ++repeat) {
      Half(context, letters, round * 4 + repeat).run(comm);
      if (testing::Test::HasFailure()) return;
    }
  }
}

struct Setting {
  std::vector<int> shape;
  const char* aggregate;
};

class GroupsBetweenNodes : public testing::TestWithParam<Setting> {
 protected:
  Environment environment() const {
    return {{"EPCCL_NET", "tcp"}, {"EPCCL_GROUP_AGGREGATE", GetParam().aggregate}};
  }
};

TEST_P(GroupsBetweenNodes, DeliverRandomPatterns) {
  const uint64_t seed = new_seed();
  run_ranks({GetParam().shape, environment(), {}},
            [seed](const RankContext& context) { run_patterns(context, seed, 8); });
}

TEST_P(GroupsBetweenNodes, OfTwoCommunicatorsMoveTogether) {
  const uint64_t seed = new_seed();
  run_ranks({GetParam().shape, environment(), {}}, [seed](const RankContext& context) {
    std::mt19937_64 random(seed);
    Comm a(context);
    Comm b(another(context, a));
    meet(context, a);
    meet(context, b);
    for (int round = 0; round < 8; ++round) {
      const std::vector<Letter> of_a = pattern(context.ranks, random), of_b = pattern(context.ranks, random);
      Half in_a(context, of_a, 2 * round), in_b(context, of_b, 2 * round + 1);
      run_as_one_group<Half>(context.rank, in_a, a, in_b, b);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, GroupsBetweenNodes,
                         testing::Values(Setting{{1, 1}, "1"}, Setting{{2, 2}, "1"}, Setting{{3, 1}, "1"},
                                         Setting{{2, 3, 1}, "auto"}, Setting{{4, 4}, "1"},
                                         Setting{{4, 4, 4, 4}, "1"}, Setting{{4, 4}, "auto"},
                                         Setting{{4, 4}, "0"}));

// Each process is a node, its ranks are threads.
TEST(GroupsOfThreads, DeliverRandomPatterns) {
  const uint64_t seed = new_seed();
  constexpr int threads = 3;
  run_ranks(
      {{1, 1}, {{"EPCCL_NET", "tcp"}, {"EPCCL_GROUP_AGGREGATE", "1"}}, {}},
      [seed](const RankContext& process) {
        std::vector<std::thread> ranks;
        for (int local = 0; local < threads; ++local)
          ranks.emplace_back([=] {
            const RankContext context{process.rank * threads + local, process.ranks * threads, process.id};
            run_patterns(context, seed, 4);
          });
        for (std::thread& rank : ranks) rank.join();
      });
}

const Environment aggregating = {{"EPCCL_NET", "tcp"}, {"EPCCL_GROUP_AGGREGATE", "1"}};

/// What ranks tell each other beside the library.
class Signal {
 public:
  Signal() { EXPECT_EQ(pipe(ends_), 0); }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void give(int times) const {
    for (int i = 0; i < times; ++i) EXPECT_EQ(write(ends_[1], "x", 1), 1);
  }
  void take(int times) const {
    char byte = 0;
    for (int i = 0; i < times; ++i) EXPECT_EQ(read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2];
};

// Ranks 4 to 7 come to the last group when the first four, which have nothing to receive, have left the communicator for good.
// What they have carried and sent arrives.
TEST(LateDestinations, GetWhatRanksThatHaveLeftCarried) {
  const Signal gone, arrived;
  run_ranks({{4, 4}, aggregating, {}}, [&](const RankContext& context) {
    {
      Comm comm(context);
      const std::vector<Letter> all = everybody_to_everybody(context.ranks, 500);
      for (int call = 0; call < 4; ++call) Half(context, all, call).run(comm);
      std::vector<Letter> one_way;
      for (int a = 0; a < 4; ++a)
        for (int b = 4; b < 8; ++b) one_way.push_back({a, b, 3000});
      if (context.rank >= 4) gone.take(4);
      Half(context, one_way, 9).run(comm);
    }
    if (context.rank < 4) gone.give(4);
    // The rendezvous lives in rank 0's process.
    if (context.rank >= 4) arrived.give(1);
    if (context.rank == 0) arrived.take(4);
  });
}

// The others come when the ranks of the first node are through with their calls: would one of these wait for a destination, all
// would hang.
TEST(LateDestinations, DoNotKeepRanksThatCarryForThem) {
  const Signal through;
  run_ranks({{3, 3}, aggregating, {}}, [&](const RankContext& context) {
    Comm comm(context);
    const std::vector<Letter> all = everybody_to_everybody(context.ranks, 100);
    for (int call = 0; call < 4; ++call) Half(context, all, call).run(comm);
    std::vector<Letter> from_0;
    for (int b = 1; b < 6; ++b) from_0.push_back({0, b, 10'000});
    if (context.rank >= 3) through.take(3);
    Half(context, from_0, 9).run(comm);
    if (context.rank < 3) through.give(3);
  });
}

// The carrier of what goes to ranks 5 and 9 dies at some moment: every rank hears of it, none hangs.
TEST(Carriers, ThatDieEndTheCommunicator) {
  const uint64_t seed = new_seed();
  run_ranks({{4, 4, 4}, aggregating, {1}}, [seed](const RankContext& context) {
    Comm comm(context, nullptr, 20);
    const std::vector<Letter> all = everybody_to_everybody(context.ranks, 800);
    const int fatal = 5 + static_cast<int>(seed % 20);
    for (int call = 0;; ++call) {
      if (context.rank == 1 && call == fatal) kill(getpid(), SIGKILL);
      Half half(context, all, call);
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      half.issue(comm);
      const epcclResult_t result = epcclGroupEnd();
      if (result == epcclSuccess) continue;
      EXPECT_EQ(result, epcclRemoteError) << epcclGetLastError(comm);
      EXPECT_NE(std::string(epcclGetLastError(comm)).find("rank 1"), std::string::npos)
          << epcclGetLastError(comm);
      break;
    }
    epcclCommAbort(comm);
    comm.forget();
  });
}

TEST(Carriers, ThatAbortEndTheCommunicator) {
  const Signal through;  // a call that is over on one rank may not be on another
  run_ranks({{3, 3}, aggregating, {}}, [&](const RankContext& context) {
    Comm comm(context, nullptr, 20);
    const std::vector<Letter> all = everybody_to_everybody(context.ranks, 800);
    for (int call = 0; call < 5; ++call) Half(context, all, call).run(comm);
    if (context.rank == 1) {
      through.take(context.ranks - 1);
    } else {
      through.give(1);
      Half half(context, all, 5);
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      half.issue(comm);
      EXPECT_EQ(epcclGroupEnd(), epcclRemoteError) << epcclGetLastError(comm);
    }
    epcclCommAbort(comm);
    comm.forget();
  });
}

}  // namespace
}  // namespace epccl::tests
