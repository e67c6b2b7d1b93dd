// Jobs that have no real NCCL for their CUDA memory: communicators work for host memory, and a call with CUDA memory says why it
// cannot be.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

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

// EPCCL's own folder, a folder of the library's name and a copy of this one are passed by.
TEST(Looking, PassesByWhatIsNotNvidiaS) {
  namespace fs = std::filesystem;
  const fs::path scratch = fs::path(testing::TempDir()) / ("looking." + std::to_string(getpid()));
  const fs::path own = scratch / "own", folder = scratch / "folder", copy = scratch / "copy",
                 real = scratch / "real";
  for (const fs::path& one : {own, folder / "libnccl.so.2", copy, real}) fs::create_directories(one);
  fs::create_symlink(fs::canonical(EPCCL_NCCL_SHIM), own / "libnccl.so.2");
  fs::copy_file(EPCCL_NCCL_SHIM, copy / "libnccl.so.2");
  fs::create_symlink(FAKE_NCCL, real / "libnccl.so.2");
  Job job{As::processes, 1};
  job.environment = {
      {"LD_LIBRARY_PATH", own.string() + ":" + folder.string() + ":" + copy.string() + ":" + real.string()}};
  run_ranks(job, [](const RankContext& context) {
    Comm comm(context);
    const DeviceMemory memory(64);
    NCCL_OK(ncclAllReduce(memory.get(), memory.get(), 1, ncclInt32, ncclSum, comm, nullptr));
  });
  job.environment = {{"EPCCL_NCCL_LIB", real.string()}};  // a folder is enough
  run_ranks(job, [](const RankContext& context) {
    Comm comm(context);
    const DeviceMemory memory(64);
    NCCL_OK(ncclAllReduce(memory.get(), memory.get(), 1, ncclInt32, ncclSum, comm, nullptr));
  });
  fs::remove_all(scratch);
}

// A program whose Python packages bring NVIDIA's library: one of these packages is loaded.
TEST(Looking, FindsTheOneBesideALoadedPythonPackage) {
  namespace fs = std::filesystem;
  const fs::path scratch = fs::path(testing::TempDir()) / ("packages." + std::to_string(getpid()));
  const fs::path packages = scratch / "lib/python3/site-packages";
  fs::create_directories(packages / "torch/lib");
  fs::create_directories(packages / "nvidia/nccl/lib");
  fs::copy_file(FAKE_NCCL, packages / "torch/lib/libtorch.so");  // any library
  fs::create_symlink(FAKE_NCCL, packages / "nvidia/nccl/lib/libnccl.so.2");
  run_ranks({As::processes, 1}, [&](const RankContext& context) {
    unsetenv("LD_LIBRARY_PATH");
    EXPECT_NE(dlopen((packages / "torch/lib/libtorch.so").c_str(), RTLD_NOW | RTLD_LOCAL), nullptr)
        << dlerror();
    Comm comm(context);
    const DeviceMemory memory(64);
    NCCL_OK(ncclAllReduce(memory.get(), memory.get(), 1, ncclInt32, ncclSum, comm, nullptr));
  });
  fs::remove_all(scratch);
}

// As PyTorch has, whose libraries name NVIDIA's by a path: its own calls were bound to EPCCL's functions, which are in front of it.
TEST(Looking, TheOneThatIsLoadedAlreadyCallsItself) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    ASSERT_NE(dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
    Comm comm(context);
    const DeviceMemory memory(64);
    NCCL_OK(ncclBcast(memory.get(), 1, ncclInt32, 0, comm, nullptr));  // calls its own ncclBroadcast
  });
}

TEST(WithoutReal, NcclsAddressOfRank0IsWarnedAbout) {
  const std::string log = testing::TempDir() + "comm_id." + std::to_string(getpid());
  Job job = with_gpus(1);
  job.environment = {{"NCCL_COMM_ID", "127.0.0.1:29999"}, {"EPCCL_DEBUG", "WARN"}, {"EPCCL_DEBUG_FILE", log}};
  run_ranks(job, [&](const RankContext&) {
    std::ifstream file(log);
    const std::string said{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(said, HasSubstr("NCCL_COMM_ID=127.0.0.1:29999 has no effect"));
  });
  std::filesystem::remove(log);
}

// Its name is that of this library, which is loaded.
TEST(WithoutReal, ANameWithoutAFolderIsThisLibrary) {
  run_ranks(with_library("libnccl.so.2"), [](const RankContext& context) {
    Comm comm(context);
    cuda_memory_is_refused(comm, "libnccl.so.2 is EPCCL's own library (by its name, or a copy)");
  });
}

TEST(WithoutReal, EmptyCollectivesTakeAnyPointers) {
  run_ranks(with_library("/nowhere/libnccl.so.2"), [](const RankContext& context) {
    Comm comm(context);
    const DeviceMemory memory(64);
    int ordinary = 0;
    void* const mine = context.rank == 0 ? memory.get() : nullptr;
    NCCL_OK(ncclAlltoAll(mine, &ordinary, 0, ncclInt32, comm, cuda_stream()));
    NCCL_OK(ncclAllReduce(mine, mine, 0, ncclInt32, ncclSum, comm, cuda_stream()));
    NCCL_OK(ncclAlltoAll(mine, mine, 0, ncclInt32, comm, nullptr));
    NCCL_FAILS(ncclAlltoAll(memory.get(), nullptr, 0, ncclInt32, nullptr, cuda_stream()), ncclInvalidArgument,
               "the communicator is NULL");
    host_memory_works(context, comm);
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

// Whether it is the one that makes the id or another.
TEST(WithoutReal, OneRankOfTheHostDeviceDecidesForAll) {
  for (const int odd : {0, 1})
    run_ranks(with_gpus(2), [odd](const RankContext& context) {
      if (context.rank == odd) setenv("EPCCL_DEVICE", "host", 1);
      Comm comm(context);
      host_memory_works(context, comm);
      cuda_memory_is_refused(comm, "EPCCL_DEVICE=host");
    });
}

/// On the rank whose real NCCL failed, and on the others.
ncclResult_t expected_on(const RankContext& context, int failed) {
  return context.rank == failed ? ncclSystemError : ncclRemoteError;
}

// One that is missing may not be needed; one that is there and fails is a failure, as the program's NCCL alone would have told.
TEST(WithoutReal, OneRankWhoseNcclFailsFailsAll) {
  run_ranks(with_gpus(3), [](const RankContext& context) {
    if (context.rank == 2) setenv("FAKE_NCCL_FAILS", "ncclCommInitRankConfig", 1);
    ncclComm_t comm = nullptr;
    NCCL_FAILS(ncclCommInitRank(&comm, 3, context.id, context.rank), expected_on(context, 2),
               "rank 2 could not make one: the real NCCL: an error of the double");
    EXPECT_EQ(comm, nullptr);
    const auto asked = asked_of_real();
    EXPECT_EQ(asked.back(), context.rank == 2 ? asked.front() : "CommAbort " + made_in(asked));
  });
}

TEST(WithoutReal, OneThatFailsInTheBackgroundIsTheCommunicatorsFailure) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    if (context.rank == 1) setenv("FAKE_NCCL_FAILS", "ncclCommInitRankConfig", 1);
    ncclConfig_t config = nonblocking_config();
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, context.id, context.rank, &config), ncclInProgress);
    EXPECT_EQ(settled(comm), expected_on(context, 1));
    EXPECT_THAT(ncclGetLastError(comm), HasSubstr("rank 1 could not make one"));
    context.meet();  // an abort is told to the other rank, which is to have its own reason
    NCCL_OK(ncclCommAbort(comm));
  });
}

TEST(WithoutReal, OneThatFailsFailsSplitsAndAllRanksOfAThread) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    ncclComm_t part = nullptr;
    if (context.rank == 0) setenv("FAKE_NCCL_FAILS", "ncclCommSplit", 1);
    NCCL_FAILS(ncclCommSplit(comm, 0, 0, &part, nullptr), expected_on(context, 0),
               "rank 0 could not make one");
    EXPECT_EQ(part, nullptr);
    host_memory_works(context, comm);
    setenv("FAKE_NCCL_FAILS", "ncclCommInitAll", 1);
    for (const bool grouped : {false, true}) {
      std::array<ncclComm_t, 2> comms{};
      if (grouped) NCCL_OK(ncclGroupStart());
      ncclResult_t made = ncclCommInitAll(comms.data(), 2, nullptr);
      if (grouped) made = ncclGroupEnd();
      EXPECT_EQ(made, ncclSystemError);
      EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("the real ncclCommInitAll"));
      EXPECT_THAT(comms, testing::Each(nullptr));
    }
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
    NCCL_FAILS(ncclDevCommCreate(nullptr, nullptr, nullptr), ncclInvalidArgument, "the communicator is NULL");
    NCCL_FAILS(ncclLsaBarrierCreateRequirement(ncclTeam_t{2, 0, 1}, 1, nullptr, nullptr), ncclInvalidArgument,
               "ncclLsaBarrierCreateRequirement: outHandle is NULL");
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
