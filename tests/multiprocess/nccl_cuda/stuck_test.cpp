// Kernels of the real NCCL that wait for a rank that will not come: they end when it is told to give up, and until then the driver
// keeps who frees memory. The double of the driver does, too.
#include <array>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "asked.hpp"
#include "gpu_rank.hpp"

namespace nccl_programs {
namespace {

using epccl::tests::GpuArray;
using epccl::tests::GpuRank;

constexpr int NCCL_SHRINK_ABORT = 1;  // of nccl.h, as its stand-in has no constants

/// Calls of EPCCL's on it have used the GPU, so there is memory to free.
Job stuck_job(int ranks) {
  Job job = with_gpus(ranks);
  job.environment.emplace_back("FAKE_CUDA_CONTEXT_LOCK", "1");
  return job;
}

void use(ncclComm_t comm, const RankContext& context, const GpuRank& gpu) {
  std::vector<int> sent(static_cast<size_t>(context.ranks));
  std::iota(sent.begin(), sent.end(), 100 * context.rank);
  const GpuArray<int> in(gpu, sent), out(gpu, std::vector<int>(sent.size(), -1));
  NCCL_OK(ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, gpu.stream()));
  for (size_t rank = 0; rank < sent.size(); ++rank)
    EXPECT_EQ(out.get()[rank], 100 * static_cast<int>(rank) + context.rank);
}

/// For as long as it lives, what is passed on is stuck.
class Stuck {
 public:
  Stuck(const std::vector<ncclComm_t>& comms, const GpuRank& gpu) : memory_(gpu, std::vector<int>(4)) {
    setenv("FAKE_NCCL_STUCK", "1", 1);
    for (ncclComm_t comm : comms)
      NCCL_OK(ncclAllReduce(memory_.data(), memory_.data(), 4, ncclInt32, ncclSum, comm, gpu.stream()));
  }
  Stuck(const Stuck&) = delete;
  Stuck& operator=(const Stuck&) = delete;
  ~Stuck() { unsetenv("FAKE_NCCL_STUCK"); }

 private:
  const GpuArray<int> memory_;
};

void use_passed_on(ncclComm_t comm, const GpuRank& gpu, const std::string& real) {
  unsetenv("FAKE_NCCL_STUCK");
  const GpuArray<int> memory(gpu, std::vector<int>(4));
  NCCL_OK(ncclAllReduce(memory.data(), memory.data(), 4, ncclInt32, ncclSum, comm, gpu.stream()));
  EXPECT_THAT(asked_of_real(), testing::Contains(testing::HasSubstr(" " + real + " ")));
}

TEST(Stuck, AnAbortEndsTheRealOneBeforeItFreesMemory) {
  run_ranks(stuck_job(2), [](const RankContext& context) {
    const GpuRank gpu;
    Comm comm(context);
    use(comm, context, gpu);
    context.meet();
    const Stuck stuck({comm}, gpu);
    NCCL_OK(ncclCommAbort(comm));
    comm.forget();
  });
}

TEST(Stuck, AbortsOfAGroupEndAllRealOnesBeforeTheyFreeMemory) {
  run_ranks(stuck_job(2), [](const RankContext& context) {
    const GpuRank gpu;
    Comm comm(context);
    ncclComm_t other = nullptr;
    NCCL_OK(ncclCommSplit(comm, 0, context.rank, &other, nullptr));
    for (ncclComm_t one : {static_cast<ncclComm_t>(comm), other}) use(one, context, gpu);
    context.meet();
    const Stuck stuck({comm, other}, gpu);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommAbort(comm));
    NCCL_OK(ncclCommAbort(other));
    NCCL_OK(ncclGroupEnd());
    comm.forget();
  });
}

// They are what those calls may wait for.
TEST(Stuck, AbortsOfAGroupComeBeforeItsCalls) {
  run_ranks(stuck_job(2), [](const RankContext& context) {
    const GpuRank gpu;
    Comm comm(context);
    ncclComm_t other = nullptr;
    NCCL_OK(ncclCommSplit(comm, 0, context.rank, &other, nullptr));
    use(comm, context, gpu);
    context.meet();
    const Stuck stuck({other}, gpu);
    ncclComm_t third = nullptr;
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommSplit(comm, 0, 0, &third, nullptr));
    NCCL_OK(ncclCommAbort(other));
    NCCL_OK(ncclGroupEnd());
    NCCL_OK(ncclCommDestroy(third));
  });
}

// Of a nonblocking communicator the real one's work ends in its background.
TEST(Stuck, AShrinkThatAbortsEndsTheRealOnesWorkBeforeAnythingElse) {
  for (const bool blocking : {true, false})
    run_ranks(stuck_job(2), [&](const RankContext& context) {
      const GpuRank gpu;
      ncclConfig_t config = blocking ? initial_config() : nonblocking_config();
      ncclComm_t comm = nullptr, rest = nullptr;
      const ncclResult_t begun = ncclCommInitRankConfig(&comm, 2, context.id, context.rank, &config);
      EXPECT_EQ(begun, blocking ? ncclSuccess : ncclInProgress);
      EXPECT_EQ(settled(comm), ncclSuccess);
      use(comm, context, gpu);
      context.meet();
      if (context.rank == 0) {
        const Stuck stuck({comm}, gpu);
        int excluded = 1;
        asked_of_real();
        const ncclResult_t shrunk = ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT);
        EXPECT_EQ(shrunk, blocking ? ncclSuccess : ncclInProgress) << ncclGetLastError(comm);
        EXPECT_EQ(settled(rest), ncclSuccess);
        use_passed_on(rest, gpu, made_in(asked_of_real()));
        NCCL_OK(ncclCommDestroy(rest));
        // It has been, in the real library.
        const ncclResult_t revoked = ncclCommRevoke(comm, 0);
        EXPECT_EQ(revoked, blocking ? ncclSuccess : ncclInProgress);
        EXPECT_THAT(asked_of_real(), testing::Not(testing::Contains(testing::StartsWith("CommRevoke"))));
      }
      context.meet();
      NCCL_OK(ncclCommAbort(comm));
    });
}

// A wrong list is refused before anything is ended.
TEST(Stuck, AShrinkThatIsRefusedEndsNothing) {
  run_ranks(stuck_job(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    ncclComm_t rest = nullptr;
    asked_of_real();
    for (int wrong : {context.rank, 2, -1})
      EXPECT_EQ(ncclCommShrink(comm, &wrong, 1, &rest, nullptr, NCCL_SHRINK_ABORT), ncclInvalidArgument);
    int other = 1 - context.rank;
    EXPECT_EQ(ncclCommShrink(comm, &other, 1, nullptr, nullptr, NCCL_SHRINK_ABORT), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(comm, nullptr, 1, &rest, nullptr, NCCL_SHRINK_ABORT), ncclInvalidArgument);
    EXPECT_THAT(asked_of_real(), testing::IsEmpty());
    context.meet();
  });
}

}  // namespace
}  // namespace nccl_programs
