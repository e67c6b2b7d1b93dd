// Collectives of several nodes on GPU memory: the plan's copies on the GPU's queues, its messages by way of pinned memory.
#include <gmock/gmock.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <thread>

#include "../api/names_the_dead.hpp"
#include "drawn_calls.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;
using Environment = std::vector<std::pair<std::string, std::string>>;

constexpr std::array copying{Drawn::alltoall,  Drawn::alltoallv, Drawn::allgather,
                             Drawn::broadcast, Drawn::gather,    Drawn::scatter};

/// Some ranks may have memory that others cannot map.
void run_drawn(const std::vector<int>& nodes, const Environment& environment, size_t most) {
  const uint64_t seed = drawn_seed();
  run_ranks({nodes, environment, {}}, [&](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed), own(seed + 1 + static_cast<uint64_t>(context.rank));
    for (int round = 0; round < 12; ++round) {
      const DrawnCall call(copying[random() % copying.size()], random, context.ranks, most);
      const bool is_odd = own() % 4 == 0;
      expect_the_hosts_bytes(call, context, comm, gpu,
                             is_odd ? GpuMemoryKind::unmappable : GpuMemoryKind::plain);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

TEST(CudaSeveralNodes, MoveTheBytesThatTheHostMoves) {
  run_drawn({2, 2}, {}, 20'000);
}

TEST(CudaSeveralNodes, MoveThemInTinyPieces) {
  run_drawn({2, 2},
            {{"EPCCL_CHUNK_SIZE", "700"},
             {"EPCCL_STAGE_SIZE", "500"},
             {"EPCCL_SCRATCH_SIZE", "20000"},
             {"EPCCL_ALGO", "two_stage"}},
            5000);
}

TEST(CudaSeveralNodes, MoveThemFromNodesOfDifferentSizeByFlatPlans) {
  run_drawn({1, 3}, {{"EPCCL_STAGE_SIZE", "3000"}, {"EPCCL_ALGO", "flat"}}, 5000);
}

/// An alltoall that cannot end: what it returns, and that its stream goes on.
class StuckCall {
 public:
  explicit StuckCall(const RankContext& context) : in_(gpu_, 40'000), out_(gpu_, 40'000) {
    EXPECT_EQ(epcclCommInitRank(&comm_, context.ranks, context.id, context.rank), epcclSuccess);
    gpu_.wait();
  }
  epcclComm_t comm() const { return comm_; }
  void start() {
    EXPECT_EQ(epcclAlltoall(in_.data(), out_.data(), 10'000, epcclFloat32, comm_, gpu_.as_epccl()),
              epcclSuccess);
  }
  void expect_failure() {
    gpu_.wait();  // not for ever
    epcclResult_t failure = epcclSuccess;
    EXPECT_EQ(epcclCommGetAsyncError(comm_, &failure), epcclSuccess);
    EXPECT_EQ(failure, epcclRemoteError);
  }
  void end() { EXPECT_EQ(epcclCommAbort(comm_), epcclSuccess); }

 private:
  GpuRank gpu_;
  GpuArray<float> in_, out_;
  epcclComm_t comm_ = nullptr;
};

TEST(CudaSeveralNodes, ADeadRankOfAnotherNodeLetsTheStreamGo) {
  run_ranks({{2, 2}, {{"EPCCL_TIMEOUT", "20"}}, {3}}, [](const RankContext& context) {
    StuckCall call(context);
    if (context.rank == 3) raise(SIGKILL);
    call.start();
    call.expect_failure();
    EXPECT_THAT(epcclGetLastError(call.comm()), names_the_dead(3));
    call.end();
  });
}

TEST(CudaSeveralNodes, ARankThatStaysAwayEndsTheCallAfterTheTimeout) {
  run_ranks({{1, 1}, {}, {}}, [](const RankContext& context) {
    StuckCall call(context);
    ASSERT_EQ(epcclCommSetTimeout(call.comm(), 2), epcclSuccess);
    if (context.rank == 0) {
      call.start();
      call.expect_failure();
      EXPECT_THAT(epcclGetLastError(call.comm()),
                  ::testing::AllOf(::testing::HasSubstr("timeout: "), ::testing::HasSubstr("rank 1")));
    } else {
      epcclResult_t failure = epcclSuccess;
      while (failure == epcclSuccess) {
        ASSERT_EQ(epcclCommGetAsyncError(call.comm(), &failure), epcclSuccess);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    call.end();
  });
}

TEST(CudaSeveralNodes, AnAbortEndsTheCall) {
  run_ranks({{1, 2}, {}, {}}, [](const RankContext& context) {
    StuckCall call(context);
    if (context.rank < 2) {
      call.start();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    call.end();
  });
}

TEST(CudaSeveralNodes, ARankThatCallsSomethingElseIsNamed) {
  run_ranks({{1, 1}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    {
      const GpuArray<float> in(gpu, 4000), out(gpu, 4000);
      gpu.wait();
      const size_t count = context.rank == 0 ? 1000 : 2000;
      EXPECT_EQ(epcclAlltoall(in.data(), out.data(), count, epcclFloat32, comm, gpu.as_epccl()),
                epcclSuccess);
      gpu.wait();
      epcclResult_t failure = epcclSuccess;
      EXPECT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
      EXPECT_EQ(failure, epcclInvalidUsage);
      EXPECT_THAT(epcclGetLastError(comm), HasSubstr("alltoall count 1000 float32"));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
