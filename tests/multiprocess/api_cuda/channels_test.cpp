// Ranks that are threads of one process share the GPU's hardware queues: streams of one rank stand behind those of another, also where
// those wait for the first. As many queues as CUDA has unless it is told otherwise would be 8; here there are fewer.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <numeric>

#include "../api/rank_log.hpp"
#include "fake_driver.hpp"
#include "graph_rank.hpp"
#include "numbered_alltoalls.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<int32_t>;

void expect_alltoalls(const RankContext& context) {
  const GpuRank gpu;
  const Comm comm(context);
  expect_numbered_alltoalls(context, comm, gpu, 700, 4);
}

void expect_gathers(const RankContext& context, size_t count) {
  const GpuRank gpu;
  const Comm comm(context);
  const auto ranks = static_cast<size_t>(context.ranks);
  for (int root = 0; root < context.ranks; ++root) {
    Numbers mine(count);
    for (size_t i = 0; i < count; ++i) mine[i] = numbered(context.rank, root, i, 0);
    const GpuArray<int32_t> input(gpu, mine), all(gpu, count * ranks), one(gpu, count);
    ASSERT_EQ(epcclAllGather(input.data(), all.data(), count, epcclInt32, comm, gpu.as_epccl()),
              epcclSuccess);
    const Numbers got = all.get();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], numbered(static_cast<int>(i / count), root, i % count, 0)) << i;
    ASSERT_EQ(epcclScatter(all.data(), one.data(), count, epcclInt32, root, comm, gpu.as_epccl()),
              epcclSuccess);
    EXPECT_EQ(one.get(), Numbers(got.begin() + static_cast<int64_t>(context.rank * count),
                                 got.begin() + static_cast<int64_t>((context.rank + 1) * count)));
  }
}

/// How many hardware queues streams of one priority share, and how many ranks there are. A program's streams each have one.
struct Channels {
  int ranks;
  const char* share;
  const char* scratch;  // small: many rounds
};
void PrintTo(const Channels& channels, std::ostream* out) {
  *out << fmt::format("{} ranks, {} hardware queues, scratch of {}", channels.ranks, channels.share,
                      channels.scratch);
}

class SharedChannels : public ::testing::TestWithParam<Channels> {
 protected:
  static void run(RanksAre are, const std::function<void(const RankContext&)>& body) {
    run_gpu_ranks(are, GetParam().ranks,
                  {{"FAKE_CUDA_CHANNELS", GetParam().share}, {"EPCCL_SCRATCH_SIZE", GetParam().scratch}},
                  body);
  }
};

TEST_P(SharedChannels, AlltoallsOfThreads) {
  run(RanksAre::threads, expect_alltoalls);
}

TEST_P(SharedChannels, AllgathersAndScattersOfThreads) {
  run(RanksAre::threads, [](const RankContext& context) { expect_gathers(context, 1234); });
}

// A process has a context, and so queues, of its own; its rank's streams share them.
TEST_P(SharedChannels, AlltoallsOfProcesses) {
  run(RanksAre::processes, expect_alltoalls);
}

INSTANTIATE_TEST_SUITE_P(Shapes, SharedChannels,
                         ::testing::Values(Channels{2, "2", "1M"}, Channels{4, "4", "1M"},
                                           Channels{8, "8", "1M"}, Channels{4, "4", "64K"}));

// One hardware queue for all that a rank has: whatever it waits for must stand before the wait.
TEST(SharedChannel, IsEnoughForAllStreamsOfARank) {
  run_gpu_ranks(RanksAre::processes, 3, {{"FAKE_CUDA_CHANNELS", "1"}},
                [](const RankContext& context) { expect_gathers(context, 99); });
}

// Priorities of the double's streams, and that of the library's.
constexpr int highest = -5, librarys = -4;

/// A stream of a priority of its own.
class PriorityStream {
 public:
  explicit PriorityStream(int priority) {
    EXPECT_EQ(cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority), CUDA_SUCCESS);
  }
  PriorityStream(const PriorityStream&) = delete;
  PriorityStream& operator=(const PriorityStream&) = delete;
  ~PriorityStream() {
    wait();
    EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS);
  }
  epcclStream_t as_epccl() const { return reinterpret_cast<epcclStream_t>(stream_); }
  void wait() const { EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS); }

 private:
  CUstream stream_ = nullptr;
};

// The call's queues stand behind the stream that waits for the call: nothing of it can run. It fails, and all go on.
TEST(SharedChannel, WithAStreamThatWaitsForTheCallEndsByTheTimeout) {
  run_gpu_ranks(
      RanksAre::processes, 2,
      {{"FAKE_CUDA_CHANNELS", "1"}, {"EPCCL_CUDA_FIRST_CALLS", "0"}, {"EPCCL_DEBUG", "WARN"}, Log::setting()},
      [](const RankContext& context) {
        const Log log;
        const GpuRank gpu;
        const PriorityStream stream(librarys);
        Comm comm(context);
        ASSERT_EQ(epcclCommSetTimeout(comm, 2), epcclSuccess);
        const Exchanged exchanged(context, gpu, 100);
        context.meet();  // one that came later than the time would call in vain
        ASSERT_EQ(exchanged.call(comm, stream.as_epccl()), epcclSuccess);
        EXPECT_THAT(log.text(), HasSubstr("has priority -4, as the library's own streams"));
        stream.wait();
        epcclResult_t state = epcclSuccess;
        EXPECT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
        EXPECT_EQ(state, epcclRemoteError) << "known when the stream goes on";
        EXPECT_THAT(epcclGetLastError(comm), HasSubstr("timeout"));
        // What stood behind the stream runs now, in buffers that are freed below.
        while (epcclCommQuery(comm) == epcclInProgress) usleep(1000);
        EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
        comm.forget();
      });
}

// Programs give their communication the highest priority.
TEST(SharedChannel, IsNotSharedWithStreamsOfTheHighestPriority) {
  run_gpu_ranks(RanksAre::processes, 2, {{"FAKE_CUDA_CHANNELS", "1"}, {"EPCCL_TIMEOUT", "10"}},
                [](const RankContext& context) {
                  const GpuRank gpu;
                  const PriorityStream stream(highest);
                  const Comm comm(context);
                  Exchanged exchanged(context, gpu, 100);
                  exchanged.fill(0);
                  gpu.wait();
                  ASSERT_EQ(exchanged.call(comm, stream.as_epccl()), epcclSuccess);
                  stream.wait();
                  epcclResult_t state = epcclSuccess;
                  EXPECT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
                  EXPECT_EQ(state, epcclSuccess) << epcclGetLastError(comm);
                  exchanged.expect(0);
                });
}

TEST(SharedChannel, IsWarnedAboutWhereAllStreamsHaveOnePriority) {
  run_gpu_ranks(RanksAre::processes, 1, {{"EPCCL_DEBUG", "WARN"}, Log::setting()},
                [](const RankContext& context) {
                  const Log log;
                  fake_cuda_set("highest_priority", 0);
                  const GpuRank gpu;
                  const Comm comm(context);
                  EXPECT_THAT(log.text(), HasSubstr("GPU 0 has streams of one priority only"));
                  expect_numbered_alltoalls(context, comm, gpu, 10, 1);
                  EXPECT_THAT(log.text(), ::testing::Not(HasSubstr("as the library's own"))) << "said before";
                });
}

}  // namespace
}  // namespace epccl::tests
