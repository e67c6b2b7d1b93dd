// What only the double of the driver shows: two GPUs, and one that has little memory.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <numeric>
#include <thread>

#include "../api/ranks.hpp"
#include "fake_driver.hpp"
#include "gpu_rank.hpp"
#include "lost_gpu.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;

TEST(CudaMemoryArguments, MemoryOfAnotherGpuIsRefused) {
  run_ranks({{1}, {{"FAKE_CUDA_DEVICES", "2"}}, {}}, [](const RankContext& context) {
    GpuRank gpu(0);
    const Comm comm(context);
    const GpuArray<float> mine(gpu, 10), mine_too(gpu, 10);
    EXPECT_EQ(epcclAlltoall(mine.data(), mine_too.data(), 10, epcclFloat32, comm, gpu.as_epccl()),
              epcclSuccess);
    gpu.wait();
    GpuRank other(1);
    const GpuArray<float> theirs(other, 10), theirs_too(other, 10);
    EXPECT_EQ(epcclAlltoall(mine.data(), theirs.data(), 10, epcclFloat32, comm, gpu.as_epccl()),
              epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("is memory of GPU 0, but recvbuff"));
    EXPECT_EQ(epcclAlltoall(theirs.data(), theirs_too.data(), 10, epcclFloat32, comm, other.as_epccl()),
              epcclInvalidUsage);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("the communicator uses GPU 0, so not memory of GPU 1"));
    EXPECT_EQ(epcclAlltoall(mine.data(), mine_too.data(), 10, epcclFloat32, comm, other.as_epccl()),
              epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("is of another context"));
  });
}

TEST(CudaMemoryArguments, AScalarOfAnotherGpuIsRefused) {
  run_ranks({{1}, {{"FAKE_CUDA_DEVICES", "2"}}, {}}, [](const RankContext& context) {
    GpuRank other(1);
    const GpuArray<float> scalar(other, std::vector<float>{2});
    GpuRank gpu(0);
    const Comm comm(context);
    const GpuArray<float> in(gpu, 10), out(gpu, 10);
    epcclRedOp_t scaled{};
    ASSERT_EQ(epcclRedOpCreatePreMulSum(&scaled, scalar.data(), epcclFloat32, epcclScalarDevice, comm),
              epcclSuccess);
    EXPECT_EQ(epcclAllReduce(in.data(), out.data(), 10, epcclFloat32, scaled, comm, gpu.as_epccl()),
              epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr),
                HasSubstr("is memory of GPU 1, but the buffers are memory of GPU 0"));
    EXPECT_EQ(epcclRedOpDestroy(scaled, comm), epcclSuccess);
  });
}

TEST(CudaMemoryArguments, OutOfMemoryNamesSizesAndLeavesTheCommunicatorUsable) {
  run_ranks({{1}, {{"EPCCL_DEVICE", "cuda"}}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    fake_cuda_set("memory", fake_cuda_live("memory") + (64 << 20));
    void* memory = nullptr;
    EXPECT_EQ(epcclMemAlloc(&memory, 1 << 30), epcclUnhandledDeviceError);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("allocating 1073741824 bytes where 67108864 of "));
    const GpuArray<float> in(gpu, std::vector<float>{1}), out(gpu, 1);
    EXPECT_EQ(epcclAlltoall(in.data(), out.data(), 1, epcclFloat32, comm, gpu.as_epccl()), epcclSuccess);
    EXPECT_EQ(out.get(), std::vector<float>{1});
  });
}

TEST(CudaMemoryArguments, WhetherCopyEnginesReachAllRanksIsTheSameAnswerEverywhere) {
  struct Case {
    std::vector<int> ranks_per_node;
    const char* use;
    int device_of_second;
    const char* why;  // "": they do
  };
  const std::vector<Case> cases{
      {{2}, "auto", EPCCL_CURRENT_GPU, ""},
      {{2}, "auto", 1, "rank 1: there is no GPU 1: the CUDA driver knows 1"},
      {{2}, "auto", EPCCL_NO_GPU, "rank 1: it was asked without a GPU"},
      {{2}, "never", 0, "rank 0: the copy engine is never to be used"},
      {{1, 1},
       "auto",
       0,
       "rank 0: messages between nodes would pass host memory: tcp moves host memory only"}};
  for (const Case& one : cases)
    run_ranks({one.ranks_per_node, {{"EPCCL_COPY_ENGINE", one.use}}, {}}, [&](const RankContext& context) {
      GpuRank gpu;
      const Comm comm(context);
      int usable = -1;
      std::array<char, 100> why{};
      ASSERT_EQ(epcclCommCheckCopyEngines(comm, context.rank == 1 ? one.device_of_second : 0, &usable,
                                          why.data(), why.size()),
                epcclSuccess)
          << epcclGetLastError(nullptr);
      EXPECT_EQ(usable, *one.why == 0 ? 1 : 0);
      EXPECT_STREQ(why.data(), one.why);
      EXPECT_EQ(epcclCommCheckCopyEngines(comm, 0, nullptr, nullptr, 0), epcclInvalidArgument);
      EXPECT_EQ(epcclCommCheckCopyEngines(comm, 0, &usable, nullptr, 1), epcclInvalidArgument);
      EXPECT_EQ(epcclCommCheckCopyEngines(comm, -3, &usable, nullptr, 0), epcclInvalidArgument);
      EXPECT_EQ(fake_cuda_live("imports"), 0);
    });
}

TEST(GpuCalls, TellPeersOfTheSameMemoryWithoutAskingTheDriverAgain) {
  run_ranks({{2}, {{"EPCCL_CUDA_SHARE", "ipc"}}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const GpuArray<int> in(gpu, std::vector<int>{10 * context.rank, 10 * context.rank + 1}), out(gpu, 2);
    for (int round = 0; round < 4; ++round) {
      fake_cuda_forget_calls();
      ASSERT_EQ(epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess);
      gpu.wait();
      EXPECT_EQ(out.get(), (std::vector<int>{context.rank, 10 + context.rank}));
      if (round == 0) continue;
      EXPECT_EQ(fake_cuda_calls("cuIpcGetMemHandle"), 0) << "of input, output and scratch";
    }
  });
}

// Whose sizes change, so that no two of them are at one address.
TEST(GpuCalls, KeepNoMemoryOfPeersThatWasFreed) {
  run_ranks({{2}, {{"EPCCL_DEVICE", "cuda"}}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    constexpr int rounds = 20;
    for (int round = 0; round < rounds; ++round) {
      void *in = nullptr, *out = nullptr;
      ASSERT_EQ(epcclMemAlloc(&in, static_cast<size_t>(4 + round) << 20), epcclSuccess);
      ASSERT_EQ(epcclMemAlloc(&out, static_cast<size_t>(4 + round) << 20), epcclSuccess);
      ASSERT_EQ(epcclAlltoall(in, out, 1000, epcclInt32, comm, gpu.as_epccl()), epcclSuccess);
      gpu.wait();
      context.meet();
      EXPECT_EQ(epcclMemFree(in), epcclSuccess);
      EXPECT_EQ(epcclMemFree(out), epcclSuccess);
    }
    const GpuArray<int> in(gpu, 2), out(gpu, 2);
    ASSERT_EQ(epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess);
    gpu.wait();
    constexpr int of_one_call = 3;  // input, output, scratch
    // A thread of its own unmaps; the test's timeout ends this.
    while (fake_cuda_live("imports") > of_one_call) std::this_thread::yield();
    context.meet();
  });
}

struct Hinted {
  const char* copy_engine;
  int gpus;
  size_t block;  // bytes from each rank to each
  long copies;   // of a rank, with the hint to leave compute cores alone
};
void PrintTo(const Hinted& hinted, std::ostream* out) {
  *out << fmt::format("{}, {} GPUs, blocks of {} bytes", hinted.copy_engine, hinted.gpus, hinted.block);
}

class CopyHints : public ::testing::TestWithParam<Hinted> {};

// An alltoall of two ranks is two copies of each.
TEST_P(CopyHints, AreGivenWhereEnginesAreAskedForOrFaster) {
  run_ranks(
      {{2}, {{"EPCCL_COPY_ENGINE", GetParam().copy_engine}, {"FAKE_CUDA_DEVICES", "2"}}, {}},
      [](const RankContext& context) {
        GpuRank gpu(context.rank % GetParam().gpus);
        const Comm comm(context);
        const size_t count = GetParam().block / sizeof(int);
        std::vector<int> expected(count, 1);
        expected.insert(expected.end(), count, 2);
        const GpuArray<int> in(gpu, std::vector<int>(2 * count, context.rank + 1)), out(gpu, 2 * count);
        fake_cuda_forget_calls();
        ASSERT_EQ(epcclAlltoall(in.data(), out.data(), count, epcclInt32, comm, gpu.as_epccl()), epcclSuccess)
            << epcclGetLastError(comm);
        gpu.wait();
        EXPECT_EQ(fake_cuda_calls("copies beside compute"), GetParam().copies);
        EXPECT_EQ(fake_cuda_calls("bytes beside compute"),
                  GetParam().copies * static_cast<long>(GetParam().block));
        EXPECT_EQ(out.get(), expected);
      });
}

INSTANTIATE_TEST_SUITE_P(OfCalls, CopyHints,
                         ::testing::Values(Hinted{"auto", 1, 128 << 10, 2}, Hinted{"auto", 1, 256 << 10, 0},
                                           Hinted{"auto", 2, 256 << 10, 1}, Hinted{"always", 1, 256 << 10, 2},
                                           Hinted{"always", 2, 256 << 10, 2}));

TEST(GpuMessages, GoFromGpuMemoryToGpuMemory) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    constexpr size_t count = 50'000;
    const int peer = 1 - context.rank;
    const GpuArray<int> in(gpu, std::vector<int>(count, context.rank)), out(gpu, count);
    for (int round = 0; round < 3; ++round) {
      // The driver chooses who makes a large copy inside a GPU, unless engines are asked for.
      const bool is_hinted = round == 2;
      ASSERT_EQ(epcclCommSetCopyEngine(comm, is_hinted ? "always" : "auto"), epcclSuccess);
      fake_cuda_forget_calls();
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      ASSERT_EQ(epcclSend(in.data(), count, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
      ASSERT_EQ(epcclRecv(out.data(), count, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
      gpu.wait();
      EXPECT_EQ(fake_cuda_calls("cuIpcOpenMemHandle_v2"), round == 0 ? 1 : 0);
      EXPECT_EQ(fake_cuda_calls("cuMemcpyAsync") + fake_cuda_calls("cuMemcpyBatchAsync_v2"), 1)
          << "the receiver's";
      EXPECT_EQ(fake_cuda_calls("copies beside compute"), is_hinted ? 1 : 0);
      EXPECT_EQ(out.get(), std::vector<int>(count, peer));
    }
  });
}

TEST(GpuMessages, OfARankToItselfReachHostMemoryThatTheDriverDoesNotKnow) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    std::vector<int> sent(50'000), received(sent.size());
    std::iota(sent.begin(), sent.end(), 1);
    const GpuArray<int> there(gpu, sent.size());
    fake_cuda_set("strict_lists", 1);
    const auto message = [&](const int* from, epcclStream_t sender, int* to, epcclStream_t receiver) {
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      ASSERT_EQ(epcclSend(from, sent.size(), epcclInt32, 0, comm, sender), epcclSuccess);
      ASSERT_EQ(epcclRecv(to, sent.size(), epcclInt32, 0, comm, receiver), epcclSuccess);
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
      gpu.wait();
    };
    message(sent.data(), nullptr, there.data(), gpu.as_epccl());
    EXPECT_EQ(there.get(), sent);
    message(there.data(), gpu.as_epccl(), received.data(), nullptr);
    EXPECT_EQ(received, sent);
    fake_cuda_set("strict_lists", 0);
  });
}

TEST(GpuMessages, EndWithAnErrorOfTheReceiversGpu) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    expect_a_message_to_end_with_an_error_of_the_receivers_gpu(context, 9000);
  });
}

}  // namespace
}  // namespace epccl::tests
