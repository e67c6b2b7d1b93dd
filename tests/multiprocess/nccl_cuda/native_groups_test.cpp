// Sends and receives of CUDA memory are EPCCL's own where its copy engines reach all ranks: every one of a communicator, whatever the
// group looks like. The double of the driver has streams that run; the real NCCL's double copies in them.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
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

/// Differs for every source, destination, place and call.
int value(int source, int destination, size_t index, int call) {
  return 1'000'000 * (call + 1) + 10'000 * source + 1'000 * destination + static_cast<int>(index % 1000);
}

/// An alltoallv as PyTorch issues it: sizes of zero are left out, or not.
class Exchange {
 public:
  Exchange(const RankContext& context, const GpuRank& gpu, uint64_t seed, int call)
      : rank_(context.rank), ranks_(context.ranks), gpu_(gpu) {
    std::mt19937_64 random(seed);  // the same on every rank
    leaves_zeros_out_ = random() % 2 == 0;
    std::vector<int> sent;
    for (int from = 0; from < ranks_; ++from)
      for (int to = 0; to < ranks_; ++to) {
        const size_t count = random() % 3 == 0 ? 0 : random() % 5000;
        if (from == rank_) send_.push_back(count);
        if (to == rank_) receive_.push_back(count);
        for (size_t i = 0; from == rank_ && i < count; ++i) sent.push_back(value(from, to, i, call));
        for (size_t i = 0; to == rank_ && i < count; ++i) expected_.push_back(value(from, to, i, call));
      }
    in_ = std::make_unique<GpuArray<int>>(gpu, sent);
    out_ = std::make_unique<GpuArray<int>>(gpu, std::vector<int>(expected_.size(), -1));
  }
  void issue(ncclComm_t comm) const {
    size_t sent = 0, received = 0;
    NCCL_OK(ncclGroupStart());
    for (size_t peer = 0; peer < send_.size(); ++peer) {
      const int other = static_cast<int>(peer);
      if (send_[peer] > 0 || !leaves_zeros_out_)
        NCCL_OK(ncclSend(in_->data() + sent, send_[peer], ncclInt32, other, comm, gpu_.stream()));
      if (receive_[peer] > 0 || !leaves_zeros_out_)
        NCCL_OK(ncclRecv(out_->data() + received, receive_[peer], ncclInt32, other, comm, gpu_.stream()));
      sent += send_[peer];
      received += receive_[peer];
    }
    NCCL_OK(ncclGroupEnd());
  }
  void check() const { EXPECT_TRUE(out_->get() == expected_); }

 private:
  const int rank_, ranks_;
  const GpuRank& gpu_;
  bool leaves_zeros_out_ = false;
  std::vector<size_t> send_, receive_;
  std::vector<int> expected_;
  std::unique_ptr<GpuArray<int>> in_, out_;
};

void expect_native_group(const RankContext& context, const GpuRank& gpu, ncclComm_t comm) {
  const Exchange exchange(context, gpu, 1, 0);
  asked_of_real();
  exchange.issue(comm);
  exchange.check();
  EXPECT_THAT(asked_of_real(), IsEmpty());
}

void expect_group_passed_on(const RankContext& context, const GpuRank& gpu, ncclComm_t comm) {
  const GpuArray<int> data(gpu, 1);
  asked_of_real();
  NCCL_OK(ncclSend(data.data(), 1, ncclInt32, 1 - context.rank, comm, gpu.stream()));
  EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("Send " + text_of(data.data()))));
}

TEST(NativeGroups, AreAllToAllsOfAnySizes) {
  const uint64_t seed = std::random_device{}();
  std::printf("random seed %llu\n", static_cast<unsigned long long>(seed));
  run_ranks(with_gpus(4), [seed](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    asked_of_real();
    for (int call = 0; call < 5; ++call) {
      const Exchange exchange(context, gpu, seed + static_cast<uint64_t>(call), call);
      exchange.issue(comm);
      exchange.check();
    }
    EXPECT_THAT(asked_of_real(), IsEmpty());
  });
}

// Rank 1 is told by rank 0, after its group has ended, to issue its own. NVIDIA's library, of which a call is in the same group, waits
// for the stream there.
TEST(NativeGroups, EndBeforeTheOtherRankHasIssuedItsOwn) {
  std::array<int, 2> line{};
  ASSERT_EQ(pipe(line.data()), 0);
  run_ranks(with_gpus(2, {{"EPCCL_CUDA_FIRST_CALLS", "0"}}), [&](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    constexpr size_t count = 5000;  // what does not leave at once
    const std::vector<int> sent(count, 40 + context.rank), expected(count, 41 - context.rank);
    const GpuArray<int> mine(gpu, sent), theirs(gpu, count), sum(gpu, 1);
    char byte = 'x';
    if (context.rank == 1) {
      EXPECT_EQ(read(line[0], &byte, 1), 1);
    }
    asked_of_real();
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(mine.data(), count, ncclInt32, 1 - context.rank, comm, gpu.stream()));
    NCCL_OK(ncclRecv(theirs.data(), count, ncclInt32, 1 - context.rank, comm, gpu.stream()));
    NCCL_OK(ncclAllReduce(mine.data(), sum.data(), 1, ncclInt32, ncclSum, comm, gpu.stream()));
    NCCL_OK(ncclGroupEnd());
    if (context.rank == 0) {
      EXPECT_EQ(write(line[1], &byte, 1), 1);
    }
    EXPECT_EQ(theirs.get(), expected);
    EXPECT_EQ(sum.get(), std::vector<int>{40 + context.rank});
    EXPECT_THAT(asked_of_real(), ElementsAre("GroupStart", StartsWith("AllReduce "), "GroupEnd"));
  });
  close(line[0]);
  close(line[1]);
}

TEST(NativeGroups, KeepTheirPlaceBetweenPassedOnCallsOfTheStream) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const int peer = 1 - context.rank;
    GpuArray<int> in(gpu, 1), sent(gpu, 1), received(gpu, 1), out(gpu, 1);
    for (int round = 0; round < 3; ++round) {
      const std::vector<int> values{100 * round + context.rank};
      in.put(values);
      NCCL_OK(ncclAllReduce(in.data(), sent.data(), 1, ncclInt32, ncclSum, comm, gpu.stream()));
      NCCL_OK(ncclGroupStart());
      NCCL_OK(ncclSend(sent.data(), 1, ncclInt32, peer, comm, gpu.stream()));
      NCCL_OK(ncclRecv(received.data(), 1, ncclInt32, peer, comm, gpu.stream()));
      NCCL_OK(ncclGroupEnd());
      NCCL_OK(ncclAllReduce(received.data(), out.data(), 1, ncclInt32, ncclSum, comm, gpu.stream()));
      EXPECT_EQ(out.get(), std::vector<int>{100 * round + peer});
    }
  });
}

// One end may be pinned memory, which the other cannot know, and the stream may be one of CUDA's default ones.
TEST(NativeGroups, TakePinnedMemoryAndTheDefaultStreams) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    void* pinned = nullptr;
    EXPECT_EQ(cuMemHostAlloc(&pinned, sizeof(int), 0), CUDA_SUCCESS);
    const GpuArray<int> data(gpu, std::vector<int>{55});
    asked_of_real();
    for (const uintptr_t name : {0, 1, 2}) {
      auto* const stream = reinterpret_cast<cudaStream_t>(name);
      *static_cast<int*>(pinned) = context.rank == 0 ? 70 : -1;
      if (context.rank == 0) {
        NCCL_OK(ncclSend(pinned, 1, ncclInt32, 1, comm, stream));
        NCCL_OK(ncclSend(data.data(), 1, ncclInt32, 1, comm, stream));
        EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
      } else {
        NCCL_OK(ncclRecv(data.data(), 1, ncclInt32, 0, comm, stream));
        NCCL_OK(ncclRecv(pinned, 1, ncclInt32, 0, comm, stream));
        EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
        EXPECT_EQ(*static_cast<int*>(pinned), 55);
        EXPECT_EQ(data.get(), std::vector<int>{70});
      }
    }
    EXPECT_THAT(asked_of_real(), IsEmpty());
    EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
  });
}

TEST(NativeGroups, OfNothingMatchWhateverTheirPointersAre) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const GpuArray<int> data(gpu, 1);
    asked_of_real();
    if (context.rank == 0)
      NCCL_OK(ncclSend(nullptr, 0, ncclInt32, 1, comm, gpu.stream()));
    else
      NCCL_OK(ncclRecv(data.data(), 0, ncclInt32, 0, comm, gpu.stream()));
    gpu.wait();
    expect_native_group(context, gpu, comm);
  });
}

// What one rank does not want, none does; nor where engines do not reach all, unless all want it.
TEST(NativeGroups, AreAgreedOnByAllRanks) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    if (context.rank == 1) setenv("EPCCL_NCCL_GROUPS", "real", 1);
    const Comm comm(context);
    expect_group_passed_on(context, gpu, comm);
  });
  for (const bool asked : {false, true}) {
    Job job = with_gpus(2, {{"EPCCL_NCCL_GROUPS", asked ? "native" : "auto"}});
    job.ranks_per_node = 1;
    run_ranks(job, [&](const RankContext& context) {
      const GpuRank gpu;
      const Comm comm(context);
      asked ? expect_native_group(context, gpu, comm) : expect_group_passed_on(context, gpu, comm);
    });
  }
}

TEST(NativeGroups, ThatAreCapturedArePassedOn) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const GpuArray<int> data(gpu, 1);
    asked_of_real();
    EXPECT_EQ(cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    NCCL_OK(ncclSend(data.data(), 1, ncclInt32, 1 - context.rank, comm, gpu.stream()));
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(gpu.stream(), &graph), CUDA_SUCCESS);
    EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("Send ")));
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    expect_native_group(context, gpu, comm);
  });
}

TEST(NativeGroups, WorkWithoutTheRealLibrary) {
  run_ranks(with_gpus(2, {{"EPCCL_NCCL_LIB", "/nowhere/libnccl.so.2"}}), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    expect_native_group(context, gpu, comm);
  });
}

}  // namespace
}  // namespace nccl_programs
