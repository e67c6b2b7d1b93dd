// Collectives on copy engines: the same bits as on compute cores, whatever the memory, and no rank hangs when one is lost.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "asleep.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

enum class Kind {
  alltoall,
  alltoallv,
  allgather,
  broadcast,
  gather,
  scatter,
  reduce_scatter,
  allreduce,
  reduce
};
constexpr std::array all_kinds{Kind::alltoall,       Kind::alltoallv, Kind::allgather,
                               Kind::broadcast,      Kind::gather,    Kind::scatter,
                               Kind::reduce_scatter, Kind::allreduce, Kind::reduce};

/// Memory of epcclMemAlloc or of the process alone.
class Memory {
 public:
  Memory(size_t floats, bool registered) : registered_(registered), plain_(registered ? 0 : floats) {
    data_ = plain_.data();
    if (registered) {
      EXPECT_EQ(epcclMemAlloc(reinterpret_cast<void**>(&data_), floats * sizeof(float)), epcclSuccess);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (registered_) epcclMemFree(data_);
  }
  float* data() const { return data_; }

 private:
  const bool registered_;
  std::vector<float> plain_;
  float* data_ = nullptr;
};

// Not exact in any order but one: engines and cores must add up alike.
float value(int rank, size_t i) {
  return 0.1F * static_cast<float>(rank + 1) + 1e-3F * static_cast<float>(i % 1013);
}

/// What rank `source` sends to `destination` in an alltoallv: nothing to some.
size_t count_of(int source, int destination, size_t count) {
  return static_cast<size_t>((source * 5 + destination * 3) % 4) * count / 3;
}

struct Trial {
  Kind kind;
  size_t count;
  bool registered = true;
  bool in_place = false;
  int root = 0;

  epcclResult_t call(const float* in, float* out, const RankContext& context, epcclComm_t comm,
                     epcclStream_t stream) const {
    constexpr auto type = epcclFloat32;
    switch (kind) {
      case Kind::alltoall:
        return epcclAlltoall(in, out, count, type, comm, stream);
      case Kind::alltoallv:
        return alltoallv(in, out, context, comm, stream);
      case Kind::allgather:
        return epcclAllGather(in, out, count, type, comm, stream);
      case Kind::broadcast:
        return epcclBroadcast(in, out, count, type, root, comm, stream);
      case Kind::gather:
        return epcclGather(in, out, count, type, root, comm, stream);
      case Kind::scatter:
        return epcclScatter(in, out, count, type, root, comm, stream);
      case Kind::reduce_scatter:
        return epcclReduceScatter(in, out, count, type, epcclSum, comm, stream);
      case Kind::allreduce:
        return epcclAllReduce(in, out, count, type, epcclAvg, comm, stream);
      case Kind::reduce:
        return epcclReduce(in, out, count, type, epcclSum, root, comm, stream);
    }
    return epcclInternalError;
  }

  epcclResult_t alltoallv(const float* in, float* out, const RankContext& context, epcclComm_t comm,
                          epcclStream_t stream) const {
    std::vector<size_t> sent, received, from, to;
    for (int peer = 0; peer < context.ranks; ++peer) {
      sent.push_back(count_of(context.rank, peer, count));
      received.push_back(count_of(peer, context.rank, count));
      from.push_back(static_cast<size_t>(peer) * count);
      to.push_back(static_cast<size_t>(peer) * count);
    }
    return epcclAlltoallv(in, sent.data(), from.data(), out, received.data(), to.data(), epcclFloat32, comm,
                          stream);
  }

  /// The whole buffers after the call: what must not be written counts, too.
  std::vector<float> run(const char* engine, const RankContext& context, epcclComm_t comm,
                         epcclStream_t stream) const {
    const size_t all = count * static_cast<size_t>(context.ranks),
                 own = static_cast<size_t>(context.rank) * count;
    const Memory memory(2 * all + 1, registered);
    float* in = memory.data();
    float* out = in + all;
    for (size_t i = 0; i < 2 * all; ++i) in[i] = i < all ? value(context.rank, i) : -1.0F;
    if (in_place) {
      out = in;
      if (kind == Kind::allgather || kind == Kind::gather) in += own;
      if (kind == Kind::reduce_scatter || kind == Kind::scatter) out += own;
    }
    EXPECT_EQ(epcclCommSetCopyEngine(comm, engine), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(call(in, out, context, comm, stream), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess) << epcclGetLastError(comm);
    return {memory.data(), memory.data() + 2 * all};
  }
};

void expect_same_bits(const Trial& trial, const RankContext& context, epcclComm_t comm,
                      epcclStream_t stream) {
  SCOPED_TRACE(fmt::format("rank {}: kind {} count {} root {}{}{}", context.rank,
                           static_cast<int>(trial.kind), trial.count, trial.root,
                           trial.registered ? " registered" : "", trial.in_place ? " in place" : ""));
  const std::vector<float> cores = trial.run("never", context, comm, stream),
                           engines = trial.run("always", context, comm, stream);
  ASSERT_EQ(cores.size(), engines.size());
  if (cores.empty()) return;
  EXPECT_EQ(std::memcmp(cores.data(), engines.data(), cores.size() * sizeof(float)), 0);
}

class OnCopyEngines : public testing::TestWithParam<std::vector<int>> {};

TEST_P(OnCopyEngines, EveryCollectiveHasTheSameBits) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    for (const Kind kind : all_kinds)
      for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{70'001}})
        for (const bool registered : {true, false})
          for (const bool in_place : {false, true}) {
            if (in_place && (kind == Kind::alltoall || kind == Kind::alltoallv)) continue;
            expect_same_bits({kind, count, registered, in_place, context.ranks / 2}, context, comm, nullptr);
          }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, OnCopyEngines,
                         testing::Values(std::vector{1}, std::vector{2}, std::vector{3}, std::vector{8},
                                         std::vector{2, 2}));

// Rounds through scratch, rings that come round, many pieces.
TEST(OnCopyEnginesWithLittleScratch, EveryCollectiveHasTheSameBits) {
  run_ranks({{4}, {{"EPCCL_TIMEOUT", "20"}, {"EPCCL_SCRATCH_SIZE", "1M"}, {"EPCCL_HOST_ENGINES", "1"}}, {}},
            [](const RankContext& context) {
              Comm comm(context);
              for (const Kind kind : all_kinds)
                for (const bool registered : {true, false})
                  expect_same_bits({kind, 300'000, registered}, context, comm, nullptr);
            });
}

TEST(OnCopyEnginesOfAStream, CallsComeInOrder) {
  run_ranks(
      {{3}, {{"EPCCL_TIMEOUT", "20"}, {"EPCCL_COPY_ENGINE", "always"}}, {}}, [](const RankContext& context) {
        Comm comm(context);
        epcclStream_t stream = nullptr;
        ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
        constexpr size_t count = 50'000;
        const auto ranks = static_cast<size_t>(context.ranks);
        const Memory first(count, true), all(count * ranks, true), sums(count * ranks, true);
        for (size_t i = 0; i < count; ++i) first.data()[i] = static_cast<float>(context.rank + 1);
        ASSERT_EQ(epcclAllGather(first.data(), all.data(), count, epcclFloat32, comm, stream), epcclSuccess);
        ASSERT_EQ(
            epcclAllReduce(all.data(), sums.data(), count * ranks, epcclFloat32, epcclSum, comm, stream),
            epcclSuccess);
        ASSERT_EQ(epcclStreamSynchronize(stream), epcclSuccess) << epcclGetLastError(comm);
        for (size_t i = 0; i < count * ranks; ++i)
          ASSERT_EQ(sums.data()[i], static_cast<float>((i / count + 1) * ranks)) << i;
        EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
      });
}

// Ranks that are threads of one process: no memory has to be mapped.
TEST(OnCopyEnginesOfThreads, PlainMemoryIsUsedDirectly) {
  run_ranks({{1}, {{"EPCCL_TIMEOUT", "20"}, {"EPCCL_COPY_ENGINE", "always"}}, {}}, [](const RankContext&) {
    constexpr int ranks = 4;
    epcclComm_t comms[ranks];
    ASSERT_EQ(epcclCommInitAll(comms, ranks, nullptr), epcclSuccess);
    constexpr size_t count = 10'000;
    std::vector<std::vector<float>> in(ranks), out(ranks, std::vector<float>(count));
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<size_t>(rank);
      in[at].assign(count, static_cast<float>(rank + 1));
      ASSERT_EQ(
          epcclAllReduce(in[at].data(), out[at].data(), count, epcclFloat32, epcclSum, comms[rank], nullptr),
          epcclSuccess);
    }
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    for (const auto& each : out) EXPECT_EQ(each, std::vector<float>(count, 10.0F));
    for (epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(CopyEngineSetting, IsRefusedByName) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    EXPECT_EQ(epcclCommSetCopyEngine(comm, "sometimes"), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "\"sometimes\""), nullptr) << epcclGetLastError(comm);
    EXPECT_EQ(epcclCommSetCopyEngine(comm, nullptr), epcclSuccess);
  });
}

TEST(CopyEngineSetting, ThatRanksDisagreeOnIsAnErrorThatSaysSo) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<float> in(100), out(200);
    EXPECT_EQ(epcclCommSetCopyEngine(comm, context.rank == 0 ? "always" : "never"), epcclSuccess);
    const epcclResult_t result = epcclAllGather(in.data(), out.data(), 100, epcclFloat32, comm, nullptr);
    EXPECT_TRUE(result == epcclInvalidUsage || result == epcclRemoteError);
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "copy engines"), nullptr) << epcclGetLastError(comm);
  });
}

epcclResult_t gather_much(epcclComm_t comm, const Memory& memory, size_t count) {
  return epcclAllGather(memory.data(), memory.data() + count, count, epcclFloat32, comm, nullptr);
}

struct LossCase {
  bool registered;
  std::vector<int> ranks_per_node;
};
class Loss : public testing::TestWithParam<LossCase> {};

// On two nodes cores run the plan, and engines make its large copies.
INSTANTIATE_TEST_SUITE_P(OfMappedAndStagedMemory, Loss,
                         testing::Values(LossCase{true, {3}}, LossCase{false, {3}}, LossCase{true, {2, 2}}));

TEST_P(Loss, OfARankInTheMiddleOfCopiesIsSeenByAll) {
  const bool registered = GetParam().registered;
  // Engines slow enough that a call is still under way when the rank dies.
  run_ranks({GetParam().ranks_per_node,
             {{"EPCCL_TIMEOUT", "20"}, {"EPCCL_COPY_ENGINE", "always"}, {"EPCCL_HOST_ENGINE_GBPS", "0.05"}},
             {1}},
            [registered](const RankContext& context) {
              Comm comm(context);
              constexpr size_t count = 2 << 20;
              const Memory memory(count * 5, registered);
              std::thread end;
              if (context.rank == 1)
                end = std::thread([] {
                  std::this_thread::sleep_for(std::chrono::milliseconds(100));
                  kill(getpid(), SIGKILL);
                });
              epcclResult_t result = epcclSuccess;
              while (result == epcclSuccess) result = gather_much(comm, memory, count);
              EXPECT_EQ(result, epcclRemoteError);
              EXPECT_NE(std::strstr(epcclGetLastError(comm), "rank 1"), nullptr) << epcclGetLastError(comm);
              EXPECT_EQ(gather_much(comm, memory, 1), epcclRemoteError);
              if (end.joinable()) end.join();
            });
}

TEST(OnCopyEnginesASilentRank, EndsTheCallAfterTheTimeout) {
  run_ranks({{3}, {{"EPCCL_COPY_ENGINE", "always"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    ASSERT_EQ(epcclCommSetTimeout(comm, 10), epcclSuccess);
    const Memory memory(4000, true);
    if (context.rank != 2) {
      EXPECT_EQ(gather_much(comm, memory, 1000), epcclRemoteError);
      EXPECT_NE(std::strstr(epcclGetLastError(comm), "rank 2"), nullptr) << epcclGetLastError(comm);
    }
    context.meet();
  });
}

TEST(OnCopyEnginesAnAbort, EndsTheCallHereAndOnTheOthers) {
  // Engines slow enough that the abort comes in a call; on a busy machine it may come between two.
  run_ranks({{2},
             {{"EPCCL_TIMEOUT", "60"}, {"EPCCL_COPY_ENGINE", "always"}, {"EPCCL_HOST_ENGINE_GBPS", "0.01"}},
             {}},
            [](const RankContext& context) {
              Comm comm(context);
              constexpr size_t count = 2 << 20;
              const Memory memory(count * 3, true);
              std::thread aborts;
              if (context.rank == 0)
                aborts = std::thread([&comm, caller = gettid()] {
                  wait_until_asleep(caller);
                  EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
                });
              const epcclResult_t first = gather_much(comm, memory, count);
              epcclResult_t result = first;
              while (result == epcclSuccess) result = gather_much(comm, memory, count);
              const bool between_two =
                  context.rank == 0 && first == epcclSuccess && result == epcclInvalidArgument;
              EXPECT_TRUE(result == epcclRemoteError || between_two) << result;
              if (context.rank != 0) return;
              aborts.join();
              comm.forget();
            });
}

}  // namespace
}  // namespace epccl::tests
