// Calls that are queued behind streams that are held (EPCCL_CUDA_AHEAD).
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <deque>

#include "drawn_calls.hpp"
#include "gate.hpp"
#include "graph_rank.hpp"
#include "under_way.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;
using Environment = std::vector<std::pair<std::string, std::string>>;

// A call whose thread is kept out would fail.
constexpr double patience = 20;
const Environment held{{"EPCCL_TIMEOUT", "100"},
                       {"EPCCL_CUDA_AHEAD", "1"},
                       {"EPCCL_CUDA_FIRST_CALLS", "0"},
                       {"EPCCL_CUDA_STUCK", "40"}};

Environment with(Environment environment, Environment more) {
  environment.insert(environment.end(), more.begin(), more.end());
  return environment;
}

/// Alltoalls of one number a pair, each of what the one before has brought, behind a gate.
class Chain {
 public:
  explicit Chain(const RankContext& context, double timeout = 0) : comm(context, nullptr, timeout) {
    for (int i = 0; i < 4; ++i) data.emplace_back(gpu, first(context.rank));
  }
  static std::vector<int> first(int rank) { return {10 * rank, 10 * rank + 1}; }
  static std::vector<int> second(int rank) { return {rank, 10 + rank}; }
  epcclResult_t call(int number, size_t count = 1) {
    const auto at = static_cast<size_t>(number);
    return epcclAlltoall(data[at].data(), data[at + 1].data(), count, epcclInt32, comm, gpu.as_epccl());
  }
  /// Calls until the gate are as programs' first: what they need is there afterwards.
  void close_the_gate() {
    EXPECT_EQ(call(0), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(end_of(comm), epcclSuccess);
    gpu.wait();
    gate.close(gpu);
  }
  void give_up() {
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  }

  const GpuRank gpu;
  Comm comm;
  std::deque<GpuArray<int>> data;
  const Gate gate;
};

// Though this rank's own stream has come.
TEST(CallsOfHeldStreams, FindWhatPeersStreamsHadBefore) {
  run_gpu_ranks(RanksAre::processes, 2, held, [](const RankContext& context) {
    Chain chain(context);
    const GpuArray<int> late(chain.gpu, std::vector<int>{100, 101});
    EXPECT_EQ(chain.call(0), epcclSuccess);
    EXPECT_EQ(end_of(chain.comm), epcclSuccess);
    chain.gpu.wait();
    if (context.rank == 0) chain.gate.close(chain.gpu);
    if (context.rank == 0) copy_on(chain.gpu, chain.data[0].data(), late.data(), 2 * sizeof(int));
    EXPECT_EQ(chain.call(0), epcclSuccess);
    EXPECT_EQ(chain.call(1), epcclSuccess);
    usleep(200'000);
    context.meet();
    chain.gate.open();
    EXPECT_EQ(chain.data[1].get(), (std::vector<int>{100 + context.rank, 10 + context.rank}));
    EXPECT_EQ(end_of(chain.comm), epcclSuccess) << epcclGetLastError(chain.comm);
    context.meet();
  });
}

// A driver that waits for the GPU keeps the library's threads out: this held stream does not need them any more.
TEST(CallsOfHeldStreams, NeedNoThreadOnceTheyAreQueued) {
  run_gpu_ranks(RanksAre::processes, 2, with(held, {{"FAKE_CUDA_CONTEXT_LOCK", "1"}}),
                [](const RankContext& context) {
                  Chain chain(context);
                  chain.close_the_gate();
                  EXPECT_EQ(chain.call(0), epcclSuccess);
                  sleep(8);  // it is queued by then
                  context.meet();
                  EXPECT_TRUE(is_busy(chain.gpu));
                  chain.gate.open();
                  const auto begun = Clock::now();
                  free_some_memory();
                  EXPECT_LT(seconds_since(begun), patience);
                  EXPECT_EQ(chain.data[1].get(), Chain::second(context.rank));
                  EXPECT_EQ(end_of(chain.comm), epcclSuccess) << epcclGetLastError(chain.comm);
                  context.meet();
                });
}

// What stands before it in the stream is the other communicator's, which a thread has yet to queue: behind queues that wait for the stream it
// could never run.
TEST(CallsOfHeldStreams, ComeAfterThoseOfOtherCommunicatorsThatThreadsHaveYetToQueue) {
  run_gpu_ranks(RanksAre::processes, 2, with(held, {{"FAKE_CUDA_CHANNELS", "1"}}),
                [](const RankContext& context) {
                  Chain chain(context, 20);
                  epcclComm_t other = nullptr;
                  ASSERT_EQ(epcclCommSplit(chain.comm, 0, context.rank, &other, nullptr), epcclSuccess);
                  chain.close_the_gate();
                  const auto call_other = [&](size_t from) {
                    EXPECT_EQ(epcclAlltoall(chain.data[from].data(), chain.data[from + 1].data(), 1,
                                            epcclInt32, other, chain.gpu.as_epccl()),
                              epcclSuccess);
                  };
                  for (int round = 0; round < 10; ++round) {
                    EXPECT_EQ(chain.call(0), epcclSuccess);
                    call_other(1);
                    EXPECT_EQ(chain.call(2), epcclSuccess);
                  }
                  chain.gate.open();
                  EXPECT_EQ(chain.data[3].get(), Chain::second(context.rank));
                  EXPECT_EQ(end_of(chain.comm), epcclSuccess) << epcclGetLastError(chain.comm);
                  context.meet();
                  EXPECT_EQ(epcclCommDestroy(other), epcclSuccess);
                });
}

TEST(CallsOfHeldStreams, FailWhereAPeerDoesNotMakeThem) {
  run_gpu_ranks(RanksAre::processes, 2, held, [](const RankContext& context) {
    Chain chain(context, 10);
    chain.close_the_gate();
    EXPECT_EQ(chain.call(0), epcclSuccess);
    if (context.rank == 0) {
      EXPECT_EQ(chain.call(1), epcclSuccess);
    }
    chain.gate.open();
    // The first is over, and well, before the second times out.
    EXPECT_EQ(chain.data[1].get(), Chain::second(context.rank));
    if (context.rank == 0) {
      EXPECT_EQ(end_of(chain.comm), epcclRemoteError);
      EXPECT_THAT(epcclGetLastError(chain.comm), HasSubstr("rank 1 to begin this call"));
      chain.gpu.wait();
    }
    context.meet();
    chain.give_up();
  });
}

TEST(CallsOfHeldStreams, FailWhereAPeerMakesOthers) {
  run_gpu_ranks(RanksAre::processes, 2, held, [](const RankContext& context) {
    Chain chain(context, 8);
    chain.close_the_gate();
    EXPECT_EQ(chain.call(0), epcclSuccess);
    static_cast<void>(chain.call(1, context.rank == 0 ? 1 : 0));
    static_cast<void>(chain.call(1, 1));
    chain.gate.open();
    chain.gpu.wait();
    EXPECT_NE(end_of(chain.comm), epcclSuccess);
    context.meet();
    chain.give_up();
  });
}

TEST(CallsOfHeldStreams, EndWhenTheyAreAbortedThoughTheStreamHasNotCome) {
  run_gpu_ranks(RanksAre::processes, 2, held, [](const RankContext& context) {
    Chain chain(context);
    chain.close_the_gate();
    for (int number = 0; number < 2; ++number) EXPECT_EQ(chain.call(number), epcclSuccess);
    usleep(100'000);
    context.meet();
    const auto begun = Clock::now();
    chain.give_up();
    EXPECT_LT(seconds_since(begun), patience);
    EXPECT_TRUE(is_busy(chain.gpu));
    chain.gate.open();
    chain.gpu.wait();
    context.meet();
  });
}

TEST(CallsOfHeldStreams, EndWhenAPeerDies) {
  run_ranks({{2}, held, {1}}, [](const RankContext& context) {
    Chain chain(context);
    chain.close_the_gate();
    for (int number = 0; number < 2; ++number) EXPECT_EQ(chain.call(number), epcclSuccess);
    usleep(100'000);
    context.meet();
    if (context.rank == 1) _exit(9);
    EXPECT_NE(end_of(chain.comm), epcclSuccess);
    EXPECT_THAT(epcclGetLastError(chain.comm), HasSubstr("rank 1"));
    chain.gate.open();
    chain.gpu.wait();
    chain.give_up();
  });
}

/// Calls in a row, on streams and communicators drawn alike on every rank, of which none is waited for before all are issued.
class Row {
 public:
  Row(const RankContext& context, std::mt19937_64& random, epcclComm_t host) : rank_(context.rank) {
    const size_t calls = 1 + random() % 12;
    for (size_t i = 0; i < calls; ++i) {
      const auto kind = static_cast<Drawn>(random() % (static_cast<size_t>(Drawn::reduce) + 1));
      Made& made =
          made_.emplace_back(DrawnCall(kind, random, context.ranks, 5000), random() % 2, random() % 4 == 0);
      made.initial = made.expected = made.call.memory(rank_);
      made.got.resize(made.initial.size());
      EXPECT_EQ(made.call.call(rank_, made.expected.data(), host, nullptr), epcclSuccess);
    }
  }
  void run(const std::array<epcclComm_t, 2>& comms, const std::array<GpuRank, 2>& gpus) {
    for (Made& made : made_) {
      made.memory = std::make_unique<GpuMemory>(GpuMemoryKind::plain, made.initial.size());
      copy_on(gpus[0], address(made), made.initial.data(), made.initial.size());
    }
    gpus[0].wait();
    for (Made& made : made_)
      ASSERT_EQ(
          made.call.call(rank_, address(made), comms[made.is_others ? 1 : 0], gpus[made.stream].as_epccl()),
          epcclSuccess)
          << epcclGetLastError(nullptr);
    for (const GpuRank& gpu : gpus) gpu.wait();
    for (Made& made : made_) copy_on(gpus[0], made.got.data(), address(made), made.got.size());
    gpus[0].wait();
    for (const Made& made : made_)
      EXPECT_TRUE(made.got == made.expected) << "rank " << rank_ << ": " << made.call.text();
  }

 private:
  struct Made {
    Made(DrawnCall drawn, size_t on, bool others) : call(std::move(drawn)), stream(on), is_others(others) {}
    DrawnCall call;
    size_t stream;
    bool is_others;
    std::vector<std::byte> initial, expected, got;
    std::unique_ptr<GpuMemory> memory{};
  };
  static std::byte* address(const Made& made) { return reinterpret_cast<std::byte*>(made.memory->address()); }

  const int rank_;
  std::deque<Made> made_;
};

struct DrawnWay {
  const char* name;
  RanksAre ranks_are;
  const char *first_calls, *ahead, *channels;
};
void PrintTo(const DrawnWay& way, std::ostream* out) {
  *out << way.name;
}
class DrawnRows : public ::testing::TestWithParam<DrawnWay> {};

TEST_P(DrawnRows, HaveTheHostsBytes) {
  const DrawnWay& way = GetParam();
  const uint64_t seed = drawn_seed();
  run_gpu_ranks(way.ranks_are, 3,
                {{"EPCCL_CUDA_FIRST_CALLS", way.first_calls},
                 {"EPCCL_CUDA_AHEAD", way.ahead},
                 {"FAKE_CUDA_CHANNELS", way.channels},
                 {"FAKE_CUDA_OPEN", "1"}},
                [&](const RankContext& context) {
                  std::mt19937_64 random(seed);
                  const std::array<GpuRank, 2> gpus;
                  const Comm comm(context);
                  epcclComm_t other = nullptr, host = nullptr;
                  ASSERT_EQ(epcclCommSplit(comm, 0, context.rank, &other, nullptr), epcclSuccess);
                  ASSERT_EQ(epcclCommSplit(comm, 0, context.rank, &host, nullptr), epcclSuccess);
                  for (int row = 0; row < 20; ++row) Row(context, random, host).run({comm, other}, gpus);
                  EXPECT_EQ(end_of(comm), epcclSuccess) << epcclGetLastError(comm);
                  context.meet();
                  EXPECT_EQ(epcclCommDestroy(other), epcclSuccess);
                  EXPECT_EQ(epcclCommDestroy(host), epcclSuccess);
                });
}

INSTANTIATE_TEST_SUITE_P(
    Of, DrawnRows,
    ::testing::Values(DrawnWay{"held", RanksAre::processes, "0", "1", "0"},
                      DrawnWay{"held_on_few_hardware_queues", RanksAre::processes, "0", "1", "2"},
                      DrawnWay{"held_none_ahead", RanksAre::processes, "0", "0", "0"},
                      DrawnWay{"held_of_threads", RanksAre::threads, "0", "1", "8"},
                      DrawnWay{"waited_for", RanksAre::processes, "1000", "0", "0"},
                      DrawnWay{"waited_for_of_threads", RanksAre::threads, "1000", "0", "8"},
                      DrawnWay{"first_waited_for", RanksAre::processes, "20", "1", "2"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace epccl::tests
