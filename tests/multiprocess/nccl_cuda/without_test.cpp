// Jobs that have no real NCCL for their CUDA memory: communicators work for host memory, and a call with CUDA memory says why it
// cannot be.
#include "cuda_rank.hpp"

namespace nccl_programs {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

void host_memory_works(const RankContext& context, ncclComm_t comm) {
  const std::vector<int> in(static_cast<size_t>(context.ranks), context.rank + 1);
  std::vector<int> out(in.size());
  NCCL_OK(ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, nullptr));
  for (int peer = 0; peer < context.ranks; ++peer) EXPECT_EQ(out[static_cast<size_t>(peer)], peer + 1);
}

void cuda_memory_is_refused(ncclComm_t comm, const std::string& why) {
  const DeviceMemory memory(64);
  NCCL_FAILS(ncclAllReduce(memory.get(), memory.get(), 1, ncclInt32, ncclSum, comm, nullptr),
             ncclInvalidUsage, "ncclAllReduce: ");
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(text_of(memory.get()) + " is CUDA memory"));
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(why));
}

Job with_library(const std::string& path) {
  Job job{As::processes, 2};
  job.environment = {{"EPCCL_NCCL_LIB", path}};
  return job;
}

TEST(WithoutReal, ALibraryThatIsMissingIsNamed) {
  run_ranks(with_library("/nowhere/libnccl.so.2"), [](const RankContext& context) {
    Comm comm(context);
    host_memory_works(context, comm);
    cuda_memory_is_refused(comm,
                           "rank 0 could not make one: EPCCL_NCCL_LIB: /nowhere/libnccl.so.2: cannot open");
    void* memory = nullptr;
    NCCL_FAILS(ncclMemAlloc(&memory, 64), ncclSystemError,
               "ncclMemAlloc of CUDA memory needs the real NCCL: EPCCL_NCCL_LIB: /nowhere");
  });
}

TEST(WithoutReal, ALibraryThatIsNotNcclIsNamed) {
  run_ranks(with_library("libm.so.6"), [](const RankContext& context) {
    Comm comm(context);
    cuda_memory_is_refused(comm, "libm.so.6 has no ncclGetVersion");
  });
}

TEST(WithoutReal, ThisLibraryItselfIsNotIt) {
  run_ranks(with_library(EPCCL_NCCL_SHIM), [](const RankContext& context) {
    Comm comm(context);
    cuda_memory_is_refused(comm, "is EPCCL's own library, not NVIDIA's");
  });
}

TEST(WithoutReal, TheHostDeviceForced) {
  Job job = with_gpus(2);
  job.environment.emplace_back("EPCCL_DEVICE", "host");
  run_ranks(job, [](const RankContext& context) {
    Comm comm(context);
    host_memory_works(context, comm);
    cuda_memory_is_refused(comm, "EPCCL_DEVICE=host");
    void* memory = nullptr;
    NCCL_OK(ncclMemAlloc(&memory, 64));
    NCCL_OK(ncclMemFree(memory));
    EXPECT_THAT(asked_of_real(), IsEmpty());
  });
}

// As with the host's: but EPCCL's own memory is the GPU's then, which no call would take.
TEST(WithoutReal, TheCudaDeviceForced) {
  Job job = with_gpus(2);
  job.environment.emplace_back("EPCCL_DEVICE", "cuda");
  run_ranks(job, [](const RankContext& context) {
    Comm comm(context);
    host_memory_works(context, comm);
    cuda_memory_is_refused(comm, "EPCCL_DEVICE=host or cuda");
    void* memory = nullptr;
    NCCL_FAILS(ncclMemAlloc(&memory, 64), ncclInvalidUsage, "EPCCL_DEVICE=cuda");
    EXPECT_THAT(asked_of_real(), IsEmpty());
  });
}

TEST(WithoutReal, OneRankWithoutAGpuDecidesForAll) {
  run_ranks(with_gpus(3), [](const RankContext& context) {
    if (context.rank == 1) setenv("FAKE_CUDA_DEVICES", "0", 1);
    Comm comm(context);
    host_memory_works(context, comm);
    cuda_memory_is_refused(comm, "rank 1 could not make one: it has no usable GPU");
  });
}

TEST(WithoutReal, OneRankWhoseNcclFailsDecidesForAll) {
  run_ranks(with_gpus(3), [](const RankContext& context) {
    if (context.rank == 2) setenv("FAKE_NCCL_FAILS", "ncclCommInitRankConfig", 1);
    Comm comm(context);
    host_memory_works(context, comm);
    cuda_memory_is_refused(comm, "rank 2 could not make one: the real NCCL: an error of the double");
    const auto asked = asked_of_real();
    EXPECT_EQ(asked.back(), context.rank == 2 ? asked.front() : "CommAbort " + made_in(asked));
  });
}

TEST(WithoutReal, TheInterfaceForDeviceCodeIsRefusedAndTeamsAreOneRank) {
  Job job{As::processes, 2};
  job.environment = {{"EPCCL_DEVICE", "host"}};
  run_ranks(job, [](const RankContext& context) {
    Comm comm(context);
    NCCL_FAILS(ncclDevCommCreate(comm, nullptr, nullptr), ncclInvalidUsage,
               "ncclDevCommCreate needs a communicator of the real NCCL");
    NCCL_FAILS(ncclDevCommDestroy(comm, nullptr), ncclInvalidUsage,
               "ncclDevCommDestroy needs a communicator of the real NCCL");
    const ncclTeam_t world = ncclTeamWorld(comm), inner = ncclTeamLsa(comm), rail = ncclTeamRail(comm);
    EXPECT_EQ(world.nRanks, 2);
    EXPECT_EQ(world.rank, context.rank);
    EXPECT_EQ(world.stride, 1);
    EXPECT_EQ(inner.nRanks, 1);
    EXPECT_EQ(rail.nRanks, 2);
    EXPECT_EQ(rail.rank, context.rank);
    EXPECT_EQ(rail.stride, 1);
    EXPECT_EQ(ncclTeamRankToWorld(comm, rail, 1), 1);
    EXPECT_EQ(ncclTeamRankToLsa(comm, inner, 0), 0);
    EXPECT_EQ(ncclTeamWorld(nullptr).nRanks, 0);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("the communicator is NULL"));
  });
}

}  // namespace
}  // namespace nccl_programs
