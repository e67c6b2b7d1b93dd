// Collectives with CUDA memory are EPCCL's own where there is no real NCCL, or if asked for; with all calls EPCCL's the real one is not even opened.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "asked.hpp"
#include "fake_driver.hpp"
#include "gpu_rank.hpp"

namespace nccl_programs {
namespace {

using epccl::tests::GpuArray;
using epccl::tests::GpuRank;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const Environment without_real{{"EPCCL_NCCL_LIB", "/nowhere/libnccl.so.2"}};
const Environment all_native{
    {"EPCCL_NCCL_ALLTOALL", "native"}, {"EPCCL_NCCL_GROUPS", "native"}, {"EPCCL_NCCL_COLLECTIVES", "native"}};

bool real_is_open() {
  return dlopen(FAKE_NCCL, RTLD_NOW | RTLD_NOLOAD) != nullptr;
}

/// What each rank puts in: `count` elements that differ for every rank and place.
std::vector<int> input_of(int rank, size_t count) {
  std::vector<int> values;
  for (size_t i = 0; i < count; ++i) values.push_back(100 * (rank + 1) + static_cast<int>(i));
  return values;
}

std::vector<int> sum_of(int ranks, size_t count) {
  std::vector<int> sum(count);
  for (int rank = 0; rank < ranks; ++rank)
    for (size_t i = 0; i < count; ++i) sum[i] += input_of(rank, count)[i];
  return sum;
}

/// Three elements from each of two ranks.
void expect_every_collective_to_be_right(const RankContext& context, const GpuRank& gpu, ncclComm_t comm) {
  constexpr size_t count = 3;
  ASSERT_EQ(context.ranks, 2);
  const int root = 1;
  const bool is_root = context.rank == root;
  const std::vector<int> first = input_of(0, count), second = input_of(1, count), sum = sum_of(2, count);
  const std::vector<int> untouched(2 * count, -1), both = {100, 101, 102, 200, 201, 202};
  const auto part_of = [](const std::vector<int>& whole, int rank, size_t length) {
    const auto begin = whole.begin() + rank * static_cast<int>(length);
    return std::vector<int>(begin, begin + static_cast<int>(length));
  };
  const GpuArray<int> in(gpu, input_of(context.rank, count)), wide(gpu, input_of(context.rank, 2 * count));
  GpuArray<int> narrow(gpu, count), broad(gpu, 2 * count);
  const auto clear = [&] { broad.put(untouched); };

  NCCL_OK(ncclAllReduce(in.data(), narrow.data(), count, ncclInt32, ncclSum, comm, gpu.stream()));
  EXPECT_EQ(narrow.get(), sum);
  NCCL_OK(ncclReduceScatter(wide.data(), narrow.data(), count, ncclInt32, ncclSum, comm, gpu.stream()));
  EXPECT_EQ(narrow.get(), part_of(sum_of(2, 2 * count), context.rank, count));
  NCCL_OK(ncclAllGather(in.data(), broad.data(), count, ncclInt32, comm, gpu.stream()));
  EXPECT_EQ(broad.get(), both);
  NCCL_OK(ncclBroadcast(is_root ? in.data() : nullptr, narrow.data(), count, ncclInt32, root, comm,
                        gpu.stream()));
  EXPECT_EQ(narrow.get(), second);
  GpuArray<int> everybodys(gpu, input_of(context.rank, count));
  NCCL_OK(ncclBcast(everybodys.data(), count, ncclInt32, 0, comm, gpu.stream()));
  EXPECT_EQ(everybodys.get(), first);
  clear();
  NCCL_OK(ncclReduce(in.data(), is_root ? broad.data() : nullptr, count, ncclInt32, ncclMax, root, comm,
                     gpu.stream()));
  EXPECT_EQ(part_of(broad.get(), 0, count), is_root ? second : part_of(untouched, 0, count));
  clear();
  NCCL_OK(
      ncclGather(in.data(), is_root ? broad.data() : nullptr, count, ncclInt32, root, comm, gpu.stream()));
  EXPECT_EQ(broad.get(), is_root ? both : untouched);
  NCCL_OK(ncclScatter(is_root ? wide.data() : nullptr, narrow.data(), count, ncclInt32, root, comm,
                      gpu.stream()));
  EXPECT_EQ(narrow.get(), part_of(input_of(root, 2 * count), context.rank, count));
}

TEST(NativeCollectives, AreAllRightWithoutTheRealLibrary) {
  run_ranks(with_gpus(2, without_real), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    expect_every_collective_to_be_right(context, gpu, comm);
    ncclComm_t part = nullptr;
    NCCL_OK(ncclCommSplit(comm, 0, 1 - context.rank, &part, nullptr));
    expect_every_collective_to_be_right({1 - context.rank, 2, context.id}, gpu, part);
    NCCL_OK(ncclCommDestroy(part));
  });
}

TEST(NativeCollectives, AreRightBetweenNodesToo) {
  for (const Environment& environment : {without_real, all_native}) {
    Job job = with_gpus(2, environment);
    job.ranks_per_node = 1;
    if (environment == without_real) job.environment.emplace_back("EPCCL_NCCL_COLLECTIVES", "native");
    run_ranks(job, [](const RankContext& context) {
      const GpuRank gpu;
      const Comm comm(context);
      expect_every_collective_to_be_right(context, gpu, comm);
    });
  }
}

TEST(NativeCollectives, ArePassedOnWhereThereIsARealLibrary) {
  for (const char* wish : {"auto", "real"})
    run_ranks(with_gpus(2, {{"EPCCL_NCCL_COLLECTIVES", wish}}), [](const RankContext& context) {
      const GpuRank gpu;
      const Comm comm(context);
      const GpuArray<int> data(gpu, 1);
      asked_of_real();
      NCCL_OK(ncclAllGather(data.data(), data.data(), 0, ncclInt32, comm, gpu.stream()));
      NCCL_OK(ncclBroadcast(data.data(), data.data(), 1, ncclInt32, 0, comm, gpu.stream()));
      EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("AllGather "), StartsWith("Broadcast ")));
    });
}

TEST(NativeCollectives, AskedForBesideARealLibraryDoNotUseIt) {
  run_ranks(with_gpus(2, {{"EPCCL_NCCL_COLLECTIVES", "native"}, {"EPCCL_NCCL_GROUPS", "real"}}),
            [](const RankContext& context) {
              const GpuRank gpu;
              const Comm comm(context);
              asked_of_real();
              expect_every_collective_to_be_right(context, gpu, comm);
              EXPECT_THAT(asked_of_real(), IsEmpty());
            });
}

// Then it makes no communicator, whoever makes it and how.
TEST(NativeCollectives, WithAllOtherCallsLeaveTheRealLibraryUnopened) {
  run_ranks(with_gpus(2, all_native), [](const RankContext& context) {
    const GpuRank gpu;
    {
      const Comm comm(context);
      expect_every_collective_to_be_right(context, gpu, comm);
      ncclComm_t part = nullptr;
      NCCL_OK(ncclCommSplit(comm, 0, context.rank, &part, nullptr));
      expect_every_collective_to_be_right(context, gpu, part);
      NCCL_OK(ncclCommDestroy(part));
      void* memory = nullptr;
      NCCL_OK(ncclMemAlloc(&memory, 64));
      void* handle = nullptr;
      NCCL_OK(ncclCommRegister(comm, memory, 64, &handle));
      NCCL_OK(ncclBcast(memory, 16, ncclInt32, 0, comm, gpu.stream()));
      gpu.wait();
      NCCL_OK(ncclCommDeregister(comm, handle));
      // Whose it is does not depend on what the settings are by now.
      unsetenv("EPCCL_NCCL_COLLECTIVES");
      NCCL_OK(ncclMemFree(memory));
    }
    EXPECT_FALSE(real_is_open());
  });
}

TEST(NativeCollectives, OfANonblockingCommunicator) {
  for (const Environment& environment : {without_real, all_native})
    run_ranks(with_gpus(2, environment), [](const RankContext& context) {
      const GpuRank gpu;
      ncclConfig_t config = nonblocking_config();
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, context.id, context.rank, &config), ncclInProgress);
      EXPECT_EQ(settled(comm), ncclSuccess);
      expect_every_collective_to_be_right(context, gpu, comm);
      const ncclResult_t finalized = ncclCommFinalize(comm);
      EXPECT_TRUE(finalized == ncclSuccess || finalized == ncclInProgress) << finalized;
      EXPECT_EQ(settled(comm), ncclSuccess);
      NCCL_OK(ncclCommDestroy(comm));
      EXPECT_THAT(asked_of_real(), IsEmpty());
    });
}

TEST(NativeCollectives, OfAnInitAll) {
  Environment environment = all_native;
  environment.emplace_back("FAKE_CUDA_DEVICES", "2");
  run_ranks(with_gpus(1, environment), [](const RankContext&) {
    constexpr std::array devices{0, 1};
    std::array<ncclComm_t, 2> comms{};
    NCCL_OK(ncclCommInitAll(comms.data(), 2, devices.data()));
    const GpuRank first_gpu(0);
    const GpuArray<int> first(first_gpu, input_of(0, 2));
    const GpuRank second_gpu(1);
    const GpuArray<int> second(second_gpu, input_of(1, 2));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclAllReduce(first.data(), first.data(), 2, ncclInt32, ncclSum, comms[0], first_gpu.stream()));
    NCCL_OK(
        ncclAllReduce(second.data(), second.data(), 2, ncclInt32, ncclSum, comms[1], second_gpu.stream()));
    NCCL_OK(ncclGroupEnd());
    EXPECT_EQ(second.get(), sum_of(2, 2));
    for (size_t i = 0; i < 2; ++i) {
      int device = -1;
      NCCL_OK(ncclCommCuDevice(comms[i], &device));
      EXPECT_EQ(device, devices[i]);
      NCCL_OK(ncclCommDestroy(comms[i]));
    }
    EXPECT_FALSE(real_is_open());
  });
}

TEST(NativeCollectives, OneRankThatWantsTheRealLibraryDecidesForAll) {
  run_ranks(with_gpus(2, all_native), [](const RankContext& context) {
    const GpuRank gpu;
    if (context.rank == 1) setenv("EPCCL_NCCL_COLLECTIVES", "real", 1);
    const Comm comm(context);
    const GpuArray<int> data(gpu, 1);
    asked_of_real();
    NCCL_OK(ncclBroadcast(data.data(), data.data(), 1, ncclInt32, 0, comm, gpu.stream()));
    EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("Broadcast ")));
  });
}

TEST(NativeCollectives, OfPremultipliedSums) {
  for (const Environment& environment : {without_real, all_native})
    run_ranks(with_gpus(2, environment), [](const RankContext& context) {
      const GpuRank gpu;
      const Comm comm(context);
      const GpuArray<float> in(gpu, std::vector<float>{1, 2}), out(gpu, 2);
      const GpuArray<float> on_gpu(gpu, std::vector<float>{static_cast<float>(context.rank + 2)});
      float in_program = static_cast<float>(context.rank + 2);
      for (const bool of_gpu : {false, true}) {
        ncclRedOp_t op{};
        NCCL_OK(ncclRedOpCreatePreMulSum(&op, of_gpu ? on_gpu.data() : &in_program, ncclFloat32,
                                         of_gpu ? ncclScalarDevice : ncclScalarHostImmediate, comm));
        NCCL_OK(ncclAllReduce(in.data(), out.data(), 2, ncclFloat32, op, comm, gpu.stream()));
        EXPECT_EQ(out.get(), (std::vector<float>{5, 10})) << of_gpu;
        NCCL_OK(ncclRedOpDestroy(op, comm));
      }
    });
}

TEST(NativeCollectives, MixWithHostMemoryInAGroupAndNotInACall) {
  run_ranks(with_gpus(2, without_real), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const GpuArray<int> data(gpu, input_of(context.rank, 2));
    int ordinary = context.rank + 1;
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclAllReduce(data.data(), data.data(), 2, ncclInt32, ncclSum, comm, gpu.stream()));
    NCCL_OK(ncclAllReduce(&ordinary, &ordinary, 1, ncclInt32, ncclSum, comm, nullptr));
    NCCL_OK(ncclGroupEnd());
    EXPECT_EQ(data.get(), sum_of(2, 2));
    EXPECT_EQ(ordinary, 3);
    NCCL_FAILS(ncclAllReduce(data.data(), &ordinary, 1, ncclInt32, ncclSum, comm, gpu.stream()),
               ncclInvalidArgument, "both must be of one kind");
  });
}

TEST(NativeCollectives, AreRefusedWhereCopyEnginesDoNotReachAndThereIsNoRealLibrary) {
  const Environment environment = without_real;
  run_ranks(with_gpus(2, environment), [](const RankContext& context) {
    const GpuRank gpu;
    fake_cuda_set("import_error", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    const Comm comm(context);
    const GpuArray<int> data(gpu, 1);
    NCCL_FAILS(ncclBcast(data.data(), 1, ncclInt32, 0, comm, gpu.stream()), ncclInvalidUsage,
               "ncclBcast: buff " + text_of(data.data()) + " is CUDA memory");
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("/nowhere/libnccl.so.2"));
  });
}

TEST(NativeCollectives, BesideARealLibraryRegistrationsAreItsAndScalarsOfTheGpuAreTaken) {
  run_ranks(with_gpus(2, {{"EPCCL_NCCL_COLLECTIVES", "native"}, {"EPCCL_NCCL_GROUPS", "real"}}),
            [](const RankContext& context) {
              const GpuRank gpu;
              const Comm comm(context);
              const GpuArray<float> in(gpu, std::vector<float>{1, 2}), out(gpu, 2),
                  scalar(gpu, std::vector<float>{3});
              asked_of_real();
              ncclWindow_t window = nullptr;
              NCCL_OK(ncclCommWindowRegister(comm, in.data(), 8, &window, 0));
              NCCL_OK(ncclCommWindowDeregister(comm, window));
              ncclRedOp_t op{};
              NCCL_OK(ncclRedOpCreatePreMulSum(&op, scalar.data(), ncclFloat32, ncclScalarDevice, comm));
              EXPECT_THAT(asked_of_real(),
                          ElementsAre(StartsWith("CommWindowRegister "), StartsWith("CommWindowDeregister "),
                                      StartsWith("RedOpCreatePreMulSum ")));
              NCCL_OK(ncclAllReduce(in.data(), out.data(), 2, ncclFloat32, op, comm, gpu.stream()));
              EXPECT_EQ(out.get(), (std::vector<float>{6, 12}));
              EXPECT_THAT(asked_of_real(), IsEmpty());
              NCCL_OK(ncclRedOpDestroy(op, comm));
            });
}

// What is in front of it in the stream may not have been written.
TEST(NativeCollectives, DoNotTakePinnedMemoryOnTheGpusStreams) {
  for (const Environment& environment : {without_real, all_native})
    run_ranks(with_gpus(2, environment), [](const RankContext& context) {
      const GpuRank gpu;
      const Comm comm(context);
      void* pinned = nullptr;
      EXPECT_EQ(cuMemHostAlloc(&pinned, 64, 0), CUDA_SUCCESS);
      for (cudaStream_t stream :
           {static_cast<cudaStream_t>(nullptr), static_cast<cudaStream_t>(gpu.stream())})
        NCCL_FAILS(ncclAllReduce(pinned, pinned, 1, ncclInt32, ncclSum, comm, stream), ncclInvalidUsage,
                   "ncclAllReduce: pinned host memory in a collective on a CUDA stream needs");
      EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
    });
}

TEST(NativeCollectives, GoOnWithoutARealLibraryThatFailsAndAWarningSaysSo) {
  const std::string log = testing::TempDir() + "failed_real." + std::to_string(getpid());
  run_ranks(with_gpus(2, {{"FAKE_NCCL_FAILS", "ncclCommInitRankConfig"},
                          {"EPCCL_DEBUG", "WARN"},
                          {"EPCCL_DEBUG_FILE", log}}),
            [&](const RankContext& context) {
              const GpuRank gpu;
              const Comm comm(context);
              expect_every_collective_to_be_right(context, gpu, comm);
              std::ifstream file(log);
              const std::string said{std::istreambuf_iterator<char>(file), {}};
              EXPECT_THAT(said, HasSubstr("no real NCCL communicator for CUDA memory: rank "));
            });
  std::filesystem::remove(log);
}

TEST(NativeCollectives, OfAJobWhoseRanksDoNotAllHaveTheLibrary) {
  run_ranks(with_gpus(2, {}), [](const RankContext& context) {
    const GpuRank gpu;
    if (context.rank == 1) setenv("EPCCL_NCCL_LIB", "/nowhere/libnccl.so.2", 1);
    const Comm comm(context);
    expect_every_collective_to_be_right(context, gpu, comm);
  });
}

}  // namespace
}  // namespace nccl_programs
