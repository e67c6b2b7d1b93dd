// Calls that are queued behind their streams (runtime/executor/queued_behind.hpp): they return when all ranks have called, whatever their
// streams still have to do, and from then on need no thread.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>

#include "gate.hpp"
#include "graph_rank.hpp"
#include "under_way.hpp"

namespace epccl::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Environment = std::vector<std::pair<std::string, std::string>>;

constexpr int ranks = 3;
constexpr size_t block = 1000;

const Environment waited_for{
    {"EPCCL_TIMEOUT", "100"}, {"EPCCL_CUDA_FIRST_CALLS", "1000"}, {"EPCCL_CUDA_STUCK", "40"}};
// A call that is waited for to its end would be so for a quarter of the timeout, in vain.
constexpr double patience = 20;

/// What the stream copies to `input` when the gate opens is what the call has to find there.
struct LateInput {
  LateInput(const GpuRank& gpu, const std::vector<int>& values)
      : now(gpu, std::vector<int>(values.size(), -1)), later(gpu, values), output(gpu, values.size()) {}
  void bring(const GpuRank& gpu) const {
    MUST(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(now.data()), reinterpret_cast<CUdeviceptr>(later.data()),
                       sizeof(int) * block * ranks, gpu.stream()));
  }
  const GpuArray<int> now, later, output;
};

/// That of a rank: for each peer a block with the number of both.
std::vector<int> blocks_of(int rank) {
  std::vector<int> values;
  for (int peer = 0; peer < ranks; ++peer) values.insert(values.end(), block, 10 * rank + peer);
  return values;
}

using Issue = std::function<epcclResult_t(const LateInput&, epcclComm_t, const GpuRank&)>;
using Expected = std::function<std::vector<int>(int rank)>;

struct Kind {
  const char* name;
  Issue issue;
  Expected expected;
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

std::vector<int> transposed(int rank) {
  std::vector<int> values;
  for (int peer = 0; peer < ranks; ++peer) values.insert(values.end(), block, 10 * peer + rank);
  return values;
}

const Kind alltoall{"alltoall",
                    [](const LateInput& data, epcclComm_t comm, const GpuRank& gpu) {
                      return epcclAlltoall(data.now.data(), data.output.data(), block, epcclInt32, comm,
                                           gpu.as_epccl());
                    },
                    transposed};
const Kind alltoallv{"alltoallv",
                     [](const LateInput& data, epcclComm_t comm, const GpuRank& gpu) {
                       const std::vector<size_t> counts(ranks, block), at{0, block, 2 * block};
                       return epcclAlltoallv(data.now.data(), counts.data(), at.data(), data.output.data(),
                                             counts.data(), at.data(), epcclInt32, comm, gpu.as_epccl());
                     },
                     transposed};
const Kind broadcast{"broadcast",
                     [](const LateInput& data, epcclComm_t comm, const GpuRank& gpu) {
                       return epcclBroadcast(data.now.data(), data.output.data(), ranks * block, epcclInt32,
                                             1, comm, gpu.as_epccl());
                     },
                     [](int) { return blocks_of(1); }};

class CallsQueuedBehind : public ::testing::TestWithParam<std::tuple<RanksAre, Kind>> {
 protected:
  static void run(const Environment& environment, const std::function<void(const RankContext&)>& body) {
    run_gpu_ranks(std::get<0>(GetParam()), ranks, environment, body);
  }
  static const Kind& kind() { return std::get<1>(GetParam()); }
};

TEST_P(CallsQueuedBehind, ReturnWhileTheirStreamsAreBusy) {
  run(waited_for, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const LateInput data(gpu, blocks_of(context.rank));
    const Gate gate;
    gate.close(gpu);
    data.bring(gpu);
    const auto begun = Clock::now();
    EXPECT_EQ(kind().issue(data, comm, gpu), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_LT(seconds_since(begun), patience);
    EXPECT_TRUE(is_busy(gpu));
    gate.open();
    EXPECT_EQ(data.output.get(), kind().expected(context.rank));
    context.meet();
  });
}

// Each in its turn: what one brings is not there before its stream has come to it, though all ranks have called.
TEST_P(CallsQueuedBehind, FindWhatPeersStreamsHadBefore) {
  run(waited_for, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    for (int late = 0; late < ranks; ++late) {
      const LateInput data(gpu, blocks_of(context.rank));
      const Gate gate;
      if (context.rank == late) gate.close(gpu);
      data.bring(gpu);
      EXPECT_EQ(kind().issue(data, comm, gpu), epcclSuccess) << epcclGetLastError(nullptr);
      usleep(20'000);
      gate.open();
      EXPECT_EQ(data.output.get(), kind().expected(context.rank)) << "rank " << late << " is late";
      context.meet();
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<RanksAre, Kind>>& info) {
  const auto& [ranks_are, kind] = info.param;
  return fmt::format("{}_{}", kind.name, ranks_are == RanksAre::processes ? "processes" : "threads");
}

INSTANTIATE_TEST_SUITE_P(Are, CallsQueuedBehind,
                         ::testing::Combine(::testing::Values(RanksAre::processes, RanksAre::threads),
                                            ::testing::Values(alltoall, alltoallv, broadcast)),
                         name_of);

/// An alltoall of one number a pair.
void call(const GpuArray<int>& in, const GpuArray<int>& out, epcclComm_t comm, const GpuRank& gpu) {
  EXPECT_EQ(epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess)
      << epcclGetLastError(nullptr);
}

// Nothing is silent then.
TEST(QueuedBehind, CallsDoNotGiveUpBeforeTheirStreamsHaveCome) {
  run_gpu_ranks(RanksAre::processes, ranks, waited_for, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context, nullptr, 6);  // seconds
    const LateInput data(gpu, blocks_of(context.rank));
    const Gate gate;
    gate.close(gpu);
    data.bring(gpu);
    context.meet();
    EXPECT_EQ(alltoallv.issue(data, comm, gpu), epcclSuccess) << epcclGetLastError(nullptr);
    sleep(8);
    context.meet();
    gate.open();
    EXPECT_EQ(data.output.get(), alltoallv.expected(context.rank));
    EXPECT_EQ(end_of(comm), epcclSuccess) << epcclGetLastError(comm);
    context.meet();
  });
}

// One behind the other, with work of the stream between them that needs the first and that the second needs.
TEST(QueuedBehind, CallsFollowEachOther) {
  run_gpu_ranks(RanksAre::processes, 2, waited_for, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const GpuArray<int> first(gpu, std::vector<int>{context.rank, context.rank + 10}), second(gpu, 2),
        third(gpu, std::vector<int>{-1, -1}), fourth(gpu, 2);
    for (int round = 0; round < 20; ++round) {
      call(first, second, comm, gpu);
      MUST(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(third.data()),
                         reinterpret_cast<CUdeviceptr>(second.data()), 2 * sizeof(int), gpu.stream()));
      call(third, fourth, comm, gpu);
    }
    EXPECT_THAT(fourth.get(), ElementsAre(context.rank, context.rank + 10));
    context.meet();
  });
}

// A rank whose process has a stream that waits for a thread waits on the host; the others do not mind.
TEST(QueuedBehind, OrNotIsForEachRankToSay) {
  run_gpu_ranks(RanksAre::processes, 2, {{"EPCCL_TIMEOUT", "100"}, {"EPCCL_CUDA_FIRST_CALLS", "1"}},
                [](const RankContext& context) {
                  const GpuRank gpu, another;
                  const Comm comm(context);
                  epcclComm_t messages = nullptr;
                  ASSERT_EQ(epcclCommSplit(comm, 0, context.rank, &messages, nullptr), epcclSuccess);
                  const GpuArray<int> in(gpu, std::vector<int>{context.rank, context.rank + 10}), out(gpu, 2),
                      message(gpu, std::vector<int>(100'000, 5));
                  call(in, out, messages, gpu);  // its first call
                  if (context.rank == 1) {
                    EXPECT_EQ(epcclRecv(message.data(), 100'000, epcclInt32, 0, messages, another.as_epccl()),
                              epcclSuccess);
                  }
                  const Gate gate;
                  if (context.rank == 0) gate.close(gpu);
                  const auto begun = Clock::now();
                  if (context.rank == 0) call(in, out, comm, gpu);
                  if (context.rank == 0) {
                    EXPECT_LT(seconds_since(begun), patience);
                    EXPECT_TRUE(is_busy(gpu));
                  }
                  gate.open();
                  if (context.rank == 1) call(in, out, comm, gpu);
                  EXPECT_THAT(out.get(), ElementsAre(10 * context.rank, 10 * context.rank + 1));
                  if (context.rank == 0) {
                    EXPECT_EQ(epcclSend(message.data(), 100'000, epcclInt32, 1, messages, another.as_epccl()),
                              epcclSuccess);
                  }
                  another.wait();
                  context.meet();
                  EXPECT_EQ(epcclCommDestroy(messages), epcclSuccess);
                });
}

// A communicator has one such call at a time. The second is waited for in vain, and its stream held.
TEST(QueuedBehind, CallsComeBehindOneThatIsUnderWay) {
  run_gpu_ranks(RanksAre::processes, 2, waited_for, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context, nullptr, 4);
    const GpuArray<int> first(gpu, std::vector<int>{context.rank, context.rank + 10}), second(gpu, 2),
        third(gpu, 2);
    const Gate gate;
    gate.close(gpu);
    call(first, second, comm, gpu);
    call(second, third, comm, gpu);
    EXPECT_TRUE(is_busy(gpu));
    gate.open();
    EXPECT_THAT(third.get(), ElementsAre(context.rank, context.rank + 10));
    EXPECT_EQ(end_of(comm), epcclSuccess) << epcclGetLastError(comm);
    context.meet();
  });
}

// Its stream is held then, and what is queued later finds that what it waits for was queued before.
TEST(QueuedBehind, CallsMayHaveBeenWaitedForInVain) {
  run_gpu_ranks(RanksAre::processes, 2, waited_for, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context, nullptr, 20);
    const GpuArray<int> in(gpu, std::vector<int>{context.rank, context.rank + 10}), out(gpu, 2);
    if (context.rank == 0) call(in, out, comm, gpu);
    context.meet();  // rank 0's has returned
    if (context.rank == 1) call(in, out, comm, gpu);
    EXPECT_THAT(out.get(), ElementsAre(10 * context.rank, 10 * context.rank + 1));
    context.meet();
  });
}

/// A rank's call behind a gate, issued by all.
struct PendingCall {
  explicit PendingCall(const RankContext& context, double timeout = 0)
      : comm(context, nullptr, timeout), in(gpu, 2), out(gpu, 2) {
    gate.close(gpu);
    call(in, out, comm, gpu);
    context.meet();
  }
  const GpuRank gpu;
  Comm comm;
  const GpuArray<int> in, out;
  const Gate gate;
};

/// On each of two ranks a call behind a gate that does not open; rank 1 dies then. What rank 0 does.
void expect_the_end_of_a_call(const Environment& environment,
                              const std::function<void(const Gate&)>& behind) {
  run_ranks({{2}, environment, {1}}, [&](const RankContext& context) {
    PendingCall pending(context);
    if (context.rank == 1) usleep(300'000);
    if (context.rank == 1) _exit(9);
    behind(pending.gate);
    EXPECT_NE(end_of(pending.comm), epcclSuccess);
    EXPECT_THAT(epcclGetLastError(pending.comm), HasSubstr("rank 1"));
    pending.gate.open();
    pending.gpu.wait();
    EXPECT_EQ(epcclCommAbort(pending.comm), epcclSuccess);
    pending.comm.forget();
  });
}

// Though the stream does not come.
TEST(QueuedBehind, CallsEndWhenAPeerDies) {
  expect_the_end_of_a_call(waited_for, [](const Gate&) {});
}

Environment with_context_lock() {
  Environment environment = waited_for;
  environment.emplace_back("FAKE_CUDA_CONTEXT_LOCK", "1");
  return environment;
}

// Nor does a driver that waits for the GPU, and lets nobody in meanwhile, wait for ever.
TEST(QueuedBehind, CallsEndWhenAPeerDiesThoughTheDriverKeepsTheirThread) {
  expect_the_end_of_a_call(with_context_lock(), [](const Gate& gate) {
    gate.open();
    const auto begun = Clock::now();
    free_some_memory();
    EXPECT_LT(seconds_since(begun), patience);
  });
}

// The peer lives, but its stream does not come.
TEST(QueuedBehind, CallsEndByTheTimeoutThoughTheDriverKeepsTheirThread) {
  run_gpu_ranks(RanksAre::processes, 2, with_context_lock(), [](const RankContext& context) {
    PendingCall pending(context, 2);
    if (context.rank == 0) {
      pending.gate.open();
      free_some_memory();
      EXPECT_NE(end_of(pending.comm), epcclSuccess);
      EXPECT_THAT(epcclGetLastError(pending.comm), HasSubstr("timeout"));
    }
    context.meet();
    pending.gate.open();
    pending.gpu.wait();
    EXPECT_NE(end_of(pending.comm), epcclSuccess);
    EXPECT_EQ(epcclCommAbort(pending.comm), epcclSuccess);
    pending.comm.forget();
    context.meet();
  });
}

TEST(QueuedBehind, CallsEndWhenTheyAreAborted) {
  run_gpu_ranks(RanksAre::processes, 2, waited_for, [](const RankContext& context) {
    PendingCall pending(context);
    const auto begun = Clock::now();
    EXPECT_EQ(epcclCommAbort(pending.comm), epcclSuccess);
    pending.comm.forget();
    EXPECT_LT(seconds_since(begun), patience);
    EXPECT_TRUE(is_busy(pending.gpu));
    pending.gate.open();
    pending.gpu.wait();
    context.meet();
  });
}

}  // namespace
}  // namespace epccl::tests
