// Collectives of one node by kernels of the double: sums that read peers' memory where it lies, and copies by compute cores. They have the
// bits of the host, and move no more bytes than they must.
#include <gmock/gmock.h>

#include <array>
#include <optional>

#include "../api/rank_log.hpp"
#include "device/kernels/launch.hpp"
#include "drawn_calls.hpp"
#include "fake_driver.hpp"
#include "graph_rank.hpp"
#include "traffic.hpp"

namespace epccl::tests {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

constexpr std::array every_kind{Drawn::alltoall,       Drawn::alltoallv, Drawn::allgather, Drawn::broadcast,
                                Drawn::gather,         Drawn::scatter,   Drawn::allreduce, Drawn::allreduce,
                                Drawn::reduce_scatter, Drawn::reduce};

class CudaOfOneNode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::kernels::bytes_of(device::kernels::Image::reduce).empty())
      GTEST_SKIP() << "built without CUDA kernels";
  }

  /// Some ranks may have memory that others cannot map.
  static void run_drawn(int ranks, const Environment& environment, size_t most, int gpus = 1) {
    const uint64_t seed = drawn_seed();
    run_ranks({{ranks}, environment, {}}, [&](const RankContext& context) {
      GpuRank gpu(context.rank % gpus);
      const Comm comm(context);
      std::mt19937_64 random(seed), own(seed + 1 + static_cast<uint64_t>(context.rank));
      for (int round = 0; round < 24; ++round) {
        const DrawnCall call(every_kind[random() % every_kind.size()], random, context.ranks, most);
        const bool is_odd = random() % 4 == 0 && own() % 2 == 0 && gpus == 1;
        expect_the_hosts_bytes(call, context, comm, gpu,
                               is_odd ? GpuMemoryKind::unmappable : GpuMemoryKind::plain);
        if (::testing::Test::HasFailure()) return;
      }
    });
  }
};

class CudaMakers : public CudaOfOneNode, public ::testing::WithParamInterface<const char*> {};

TEST_P(CudaMakers, MoveTheBytesThatTheHostMoves) {
  for (const int ranks : {1, 2, 3, 5}) run_drawn(ranks, {{"EPCCL_COPY_ENGINE", GetParam()}}, 20'000);
}

TEST_P(CudaMakers, MoveThemInRounds) {
  run_drawn(3, {{"EPCCL_COPY_ENGINE", GetParam()}, {"EPCCL_SCRATCH_SIZE", "400000"}}, 150'000);
}

TEST_P(CudaMakers, MoveThemBetweenTwoGpus) {
  run_drawn(3, {{"EPCCL_COPY_ENGINE", GetParam()}, {"FAKE_CUDA_DEVICES", "2"}}, 20'000, 2);
}

INSTANTIATE_TEST_SUITE_P(CopyEngines, CudaMakers, ::testing::Values("auto", "always", "never"));

constexpr long bytes = Traffic::bytes;

using CudaTraffic = CudaOfOneNode;

// On one GPU: each byte that has to be read once, each that has to be written once, in one kernel.
TEST_F(CudaTraffic, OfSumsIsTheLeastOnOneGpu) {
  run_ranks({{4}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    Traffic calls(context, comm, gpu);
    EXPECT_EQ(calls.allreduce(), (Moved{2 * bytes, 0, 1}));
    EXPECT_EQ(calls.reduce_scatter(), (Moved{bytes + bytes / 4, 0, 1}));
    EXPECT_EQ(calls.alltoall(), (Moved{0, bytes, 0}));
  });
}

// Between GPUs copy engines fetch what peers put in, and hand out what comes of it: 1 MiB of each rank's is added up in pieces.
TEST_F(CudaTraffic, OfSumsLeavesLinksToCopyEnginesBetweenGpus) {
  run_ranks({{4}, {{"FAKE_CUDA_DEVICES", "2"}}, {}}, [](const RankContext& context) {
    const GpuRank gpu(context.rank % 2);
    const Comm comm(context);
    Traffic calls(context, comm, gpu);
    const Moved all = calls.allreduce(), scattered = calls.reduce_scatter();
    EXPECT_EQ(all.kernels, 5 * bytes / 4);
    EXPECT_EQ(all.copied, 6 * bytes / 4) << "3 parts fetched, the sum sent to 3";
    EXPECT_EQ(scattered.kernels, 5 * bytes / 4);
    EXPECT_EQ(scattered.copied, 3 * bytes / 4);
  });
}

// All that a call copies is one kernel.
TEST_F(CudaTraffic, OfComputeCoresIsOneKernelACall) {
  run_ranks({{4}, {{"EPCCL_COPY_ENGINE", "never"}}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    Traffic calls(context, comm, gpu);
    EXPECT_EQ(calls.alltoall(), (Moved{2 * bytes, 0, 1}));
    EXPECT_EQ(calls.allreduce(), (Moved{2 * bytes, 0, 1}));
    EXPECT_EQ(calls.reduce_scatter(), (Moved{bytes + bytes / 4, 0, 1}));
    EXPECT_EQ(fake_cuda_calls("bytes to the host"), 0);
  });
}

struct Sharing {
  RanksAre ranks_are;
  bool has_mps;
  const char* blocks;
};

// The double's memory takes 10 blocks to keep up with.
TEST_F(CudaOfOneNode, SumsHaveBlocksForTheRanksThatTheGpuServesAtOnce) {
  for (const auto& [ranks_are, has_mps, blocks] : {Sharing{RanksAre::processes, false, ", 10 blocks at most"},
                                                   Sharing{RanksAre::processes, true, ", 5 blocks at most"},
                                                   Sharing{RanksAre::threads, false, ", 5 blocks at most"}})
    run_gpu_ranks(ranks_are, 2, {{"EPCCL_DEBUG", "INFO"}, Log::setting()}, [&](const RankContext& context) {
      std::optional<Log> log;
      if (context.rank == 0 || ranks_are == RanksAre::processes) log.emplace();
      fake_cuda_set("mps", has_mps ? 1 : 0);
      const GpuRank gpu;
      const Comm comm(context);
      const GpuArray<float> in(gpu, std::vector<float>{1}), out(gpu, 1);
      ASSERT_EQ(epcclAllReduce(in.data(), out.data(), 1, epcclFloat32, epcclSum, comm, gpu.as_epccl()),
                epcclSuccess)
          << epcclGetLastError(comm);
      EXPECT_EQ(out.get(), std::vector<float>{2});
      const std::string said = log ? log->text() : blocks;
      EXPECT_NE(said.find(blocks), std::string::npos) << blocks << " in " << said;
    });
}

TEST_F(CudaOfOneNode, SumsHaveAsManyBlocksAsTheEnvironmentOrTheConfigurationSays) {
  const std::pair<std::string, std::string> three{"EPCCL_MAX_CTAS", "3"};
  for (const auto& [configured, blocks] :
       {std::pair(EPCCL_CONFIG_UNDEF_INT, ", 3 blocks at most"), std::pair(7, ", 7 blocks at most")})
    run_ranks({{2}, {three, {"EPCCL_DEBUG", "INFO"}, Log::setting()}, {}}, [&](const RankContext& context) {
      const Log log;
      const GpuRank gpu;
      epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
      config.maxCTAs = configured;
      epcclComm_t comm = nullptr;
      ASSERT_EQ(epcclCommInitRankConfig(&comm, 2, context.id, context.rank, &config), epcclSuccess)
          << epcclGetLastError(nullptr);
      const GpuArray<float> in(gpu, std::vector<float>{1}), out(gpu, 1);
      ASSERT_EQ(epcclAllReduce(in.data(), out.data(), 1, epcclFloat32, epcclSum, comm, gpu.as_epccl()),
                epcclSuccess)
          << epcclGetLastError(comm);
      EXPECT_EQ(out.get(), std::vector<float>{2});
      EXPECT_THAT(log.text(), ::testing::HasSubstr(blocks));
      EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
    });
}

// Ranks that did not know their GPU when the communicator was made have not tried to map each other's: staged, as `never` is then.
TEST_F(CudaTraffic, OfNeverPassesTheHostWhereMappingWasNotTried) {
  run_ranks({{2}, {{"EPCCL_COPY_ENGINE", "never"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    const GpuRank gpu;
    Traffic calls(context, comm, gpu);
    EXPECT_EQ(calls.alltoall(), (Moved{0, 0, 0}));
    EXPECT_EQ(fake_cuda_calls("bytes to the host"), bytes);
    EXPECT_EQ(fake_cuda_calls("bytes from the host"), bytes);
  });
}

}  // namespace
}  // namespace epccl::tests
