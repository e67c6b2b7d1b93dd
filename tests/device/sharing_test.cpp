// Ranks on one GPU that map each other's memory and move data with queues: what copy-engine collectives are made of. Runs on the
// double of the driver everywhere (tests/unit/cuda), and on a GPU (tests/device).
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cstring>
#include <span>

#include "ranks.hpp"
#include "transports/cuda_ipc/peer_memory.hpp"

namespace epccl::device::test {
namespace {

using transports::PeerMemory;
using transports::SharedBuffers;

/// Unique to source, destination, place and round.
uint32_t number(int source, int destination, size_t index, int round) {
  return static_cast<uint32_t>(source * 1000003 + destination * 10007 + round * 101) * 2654435761U +
         static_cast<uint32_t>(index);
}

class CudaSharing : public ::testing::TestWithParam<As> {
 protected:
  void SetUp() override {
#ifdef EPCCL_ON_A_GPU
    if (ask_for_gpu() != 0) GTEST_SKIP() << "no GPU";
#endif
  }
};

/// Host memory that the GPU copies directly.
class PinnedNumbers {
 public:
  PinnedNumbers(Device& device, size_t count)
      : device_(device),
        count_(count),
        data_(take(device.allocate(MemoryKind::pinned, count * sizeof(uint32_t)))) {}
  PinnedNumbers(const PinnedNumbers&) = delete;
  PinnedNumbers& operator=(const PinnedNumbers&) = delete;
  ~PinnedNumbers() { static_cast<void>(device_.free(data_)); }
  std::span<uint32_t> numbers() const { return {static_cast<uint32_t*>(data_), count_}; }

 private:
  Device& device_;
  const size_t count_;
  void* const data_;
};

/// rank r's queue: copies block p into every peer's output, then tells it; and waits for all.
void alltoall(Rank& rank, size_t block, int rounds, bool pushes) {
  Device& device = rank.device();
  const int me = rank.number(), count = rank.count();
  const uint64_t bytes = block * sizeof(uint32_t), all = bytes * static_cast<uint64_t>(count);
  ShareableBuffer input(device, all), output(device, all);
  must(device.make_words_visible(&rank.shared(), sizeof(Shared)));
  rank.shared().handles[me][0] = take(device.export_memory(input.data, all));
  rank.shared().handles[me][1] = take(device.export_memory(output.data, all));
  rank.barrier();
  std::vector<MemoryHandle> theirs;
  for (int peer = 0; peer < count; ++peer) theirs.push_back(rank.shared().handles[peer][pushes ? 1 : 0]);
  {
    const SharedBuffers buffers = take(SharedBuffers::map(device, theirs));
    const auto engine = take(device.make_queue(QueueKind::copy_engine));
    // Pinned: a copy of pageable memory that is queued behind waits may block the thread, and what it waits for is not queued yet.
    const PinnedNumbers memory(device, block * static_cast<size_t>(count));
    const std::span<uint32_t> host = memory.numbers();
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < host.size(); ++i)
        host[i] = number(me, static_cast<int>(i / block), i % block, round);
      const CopyWork in{input.data, reinterpret_cast<std::byte*>(host.data()), all};
      must(engine->copy({&in, 1}));
      const auto begun = static_cast<uint64_t>(2 * round + 1), moved = begun + 1;
      must(engine->post(rank.word(me, 0), begun));
      // As in the library: a wait is queued when what ends it has been, since it may hold up what comes into the same hardware queue.
      rank.barrier();
      std::vector<CopyWork> copies;
      for (int step = 1; step <= count; ++step) {
        const int peer = (me + step) % count;
        must(engine->wait(rank.word(peer, 0), begun));
        const uint64_t mine = static_cast<uint64_t>(me) * bytes, its = static_cast<uint64_t>(peer) * bytes;
        copies.push_back(pushes ? CopyWork{buffers.address(peer) + mine, input.data + its, bytes}
                                : CopyWork{output.data + its, buffers.address(peer) + mine, bytes});
      }
      must(engine->copy(copies));
      must(engine->post(rank.word(me, 1), moved));
      rank.barrier();
      for (int peer = 0; peer < count; ++peer) must(engine->wait(rank.word(peer, 1), moved));
      const CopyWork out{reinterpret_cast<std::byte*>(host.data()), output.data, all};
      must(engine->copy({&out, 1}));
      must(engine->synchronize());
      for (size_t i = 0; i < host.size(); ++i)
        if (host[i] != number(static_cast<int>(i / block), me, i % block, round))
          throw std::runtime_error(
              fmt::format("round {}, from rank {}, element {}: wrong", round, i / block, i % block));
    }
  }
  rank.barrier();
  device.hide_words(&rank.shared());
}

TEST_P(CudaSharing, PushesAnAlltoall) {
  run_ranks(GetParam(), 4, [](Rank& rank) { alltoall(rank, 3001, 5, true); });
}

TEST_P(CudaSharing, PullsAnAlltoall) {
  run_ranks(GetParam(), 4, [](Rank& rank) { alltoall(rank, 3001, 5, false); });
}

TEST_P(CudaSharing, WorksWithEightRanks) {
  run_ranks(GetParam(), 8, [](Rank& rank) { alltoall(rank, 100, 3, true); });
}

TEST_P(CudaSharing, KnowsMemoryThatWasAllocatedAnew) {
  run_ranks(GetParam(), 2, [](Rank& rank) {
    Device& device = rank.device();
    PeerMemory peers(device, 2);
    const int me = rank.number(), other = 1 - me;
    for (uint64_t round = 1; round <= 6; ++round) {
      ShareableBuffer buffer(device, 64 << 10);
      const auto queue = take(device.make_queue(QueueKind::copy_engine));
      const std::array<uint64_t, 2> mine{static_cast<uint64_t>(me) * 100 + round, 0};
      std::array<uint64_t, 2> got{};
      const CopyWork in{buffer.data + 8, reinterpret_cast<const std::byte*>(mine.data()), 8};
      must(queue->copy({&in, 1}));
      must(queue->synchronize());
      rank.shared().handles[me][0] = take(peers.offer(buffer.data + 8, 8));
      rank.barrier();
      std::byte* theirs = take(peers.address_of(other, rank.shared().handles[other][0], 8, round));
      const CopyWork out{reinterpret_cast<std::byte*>(got.data()), theirs, 8};
      must(queue->copy({&out, 1}));
      must(queue->synchronize());
      peers.calls_over(round);
      if (got[0] != static_cast<uint64_t>(other) * 100 + round)
        throw std::runtime_error("an old allocation was read");
      rank.barrier();
    }
  });
}

// What these tests stand on: a rank that is gone leaves nobody waiting.
TEST(RanksOfAGpu, EndWhenOneOfThemDies) {
  EXPECT_NONFATAL_FAILURE(run_ranks(As::processes, 2,
                                    [](Rank& rank) {
                                      if (rank.number() == 1) raise(SIGKILL);
                                      rank.barrier();
                                    }),
                          "died of signal 9");
}

INSTANTIATE_TEST_SUITE_P(As, CudaSharing, ::testing::Values(As::threads, As::processes),
                         [](const auto& by) { return std::string(text_of(by.param)); });

}  // namespace
}  // namespace epccl::device::test
