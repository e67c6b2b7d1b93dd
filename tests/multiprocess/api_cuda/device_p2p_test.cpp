// Sends, receives and groups of them on GPU memory: any pattern, whatever memory each end has, in the order of the user's streams.
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdio>
#include <deque>
#include <random>
#include <thread>

#include "../ep_cuda/gpu_memory.hpp"
#include "cuda_calls.hpp"
#include "graph_rank.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;
using Environment = std::vector<std::pair<std::string, std::string>>;

uint64_t new_seed() {
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("EPCCL_TEST_SEED"); given != nullptr)
    seed = std::strtoull(given, nullptr, 10);
  std::printf("random seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

enum class Where { cuda_malloc, mem_alloc, unmappable, host };

constexpr Where plain = Where::cuda_malloc;

/// A message of a pattern that every rank knows.
struct Letter {
  int from, to;
  size_t bytes;
  Where source, destination;
};

/// A buffer of a message; of a GPU, its contents come and go in the order of a stream.
class Buffer {
 public:
  Buffer(Where where, size_t bytes) : where_(where), host_(bytes) {
    if (where == Where::mem_alloc) {
      EXPECT_EQ(epcclMemAlloc(&own_, std::max<size_t>(bytes, 1)), epcclSuccess) << epcclGetLastError(nullptr);
    } else if (where != Where::host) {
      memory_.emplace_back(where == Where::unmappable ? GpuMemoryKind::unmappable : GpuMemoryKind::plain,
                           std::max<size_t>(bytes, 1));
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (own_ != nullptr) {
      EXPECT_EQ(epcclMemFree(own_), epcclSuccess);
    }
  }
  void* data() {
    if (where_ == Where::host) return host_.data();
    return own_ != nullptr ? own_ : reinterpret_cast<void*>(memory_.front().address());
  }
  epcclStream_t stream(const GpuRank& gpu) const { return where_ == Where::host ? nullptr : gpu.as_epccl(); }
  void put(const Bytes& values, const GpuRank& gpu) {
    host_ = values;
    if (where_ != Where::host && !host_.empty()) copy(address(), here(), gpu);
  }
  void get(const GpuRank& gpu) {
    if (where_ != Where::host && !host_.empty()) copy(here(), address(), gpu);
  }
  const Bytes& values() const { return host_; }

 private:
  CUdeviceptr address() { return reinterpret_cast<CUdeviceptr>(data()); }
  CUdeviceptr here() { return reinterpret_cast<CUdeviceptr>(host_.data()); }
  void copy(CUdeviceptr to, CUdeviceptr from, const GpuRank& gpu) {
    EXPECT_EQ(cuMemcpyAsync(to, from, host_.size(), gpu.stream()), CUDA_SUCCESS);
  }
  const Where where_;
  Bytes host_;
  std::deque<GpuMemory> memory_;
  void* own_ = nullptr;
};

Bytes content(const Letter& letter, int mark) {
  Bytes values(letter.bytes);
  for (size_t i = 0; i < values.size(); ++i) values[i] = unique_byte(letter.from, letter.to, i, mark);
  return values;
}

/// This rank's half of a pattern: its messages take turns in two streams, each behind what the stream had before.
class Half {
 public:
  Half(int rank, const std::vector<Letter>& letters, const GpuRank& first, const GpuRank& second, int mark) {
    for (const Letter& letter : letters) {
      ++mark;
      const GpuRank& gpu = parts_.size() % 3 == 2 ? second : first;
      if (letter.from == rank) {
        parts_.emplace_back(true, letter.to, gpu, letter.source, content(letter, mark));
        parts_.back().buffer.put(parts_.back().values, gpu);
      }
      if (letter.to == rank) {
        parts_.emplace_back(false, letter.from, gpu, letter.destination, content(letter, mark));
        parts_.back().buffer.put(Bytes(letter.bytes, poison), gpu);
      }
    }
  }
  void issue(epcclComm_t comm) {
    for (Part& part : parts_) {
      const size_t bytes = part.values.size();
      void* const data = part.buffer.data();
      const epcclStream_t stream = part.buffer.stream(part.gpu);
      EXPECT_EQ(part.is_send ? epcclSend(data, bytes, epcclUint8, part.peer, comm, stream)
                             : epcclRecv(data, bytes, epcclUint8, part.peer, comm, stream),
                epcclSuccess)
          << epcclGetLastError(comm);
    }
  }
  void check() {
    for (Part& part : parts_)
      if (!part.is_send) part.buffer.get(part.gpu);
    for (Part& part : parts_) part.gpu.wait();
    for (Part& part : parts_)
      if (!part.is_send) {
        EXPECT_TRUE(part.buffer.values() == part.values)
            << part.values.size() << " bytes from rank " << part.peer;
      }
  }
  void run(epcclComm_t comm) {
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    issue(comm);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
    check();
  }

 private:
  struct Part {
    Part(bool sends, int other, const GpuRank& its_gpu, Where where, Bytes its_values)
        : is_send(sends),
          peer(other),
          gpu(its_gpu),
          values(std::move(its_values)),
          buffer(where, values.size()) {}
    bool is_send;
    int peer;
    const GpuRank& gpu;
    Bytes values;
    Buffer buffer;
  };
  std::deque<Part> parts_;
};

enum Kind { alltoallv, star, ring, pipeline_and_alltoallv, several_each, kinds };

// Any memory at either end; now and then a rank has all its on the host.
std::vector<Letter> pattern(int ranks, std::mt19937_64& random) {
  std::vector<bool> on_host;
  for (int rank = 0; rank < ranks; ++rank) on_host.push_back(random() % 6 == 0);
  std::vector<Letter> letters;
  const auto where = [&](int rank) {
    return on_host[static_cast<size_t>(rank)] ? Where::host : static_cast<Where>(random() % 4);
  };
  const auto add = [&](int from, int to) {
    const uint64_t dice = random() % 10;
    const size_t bytes = dice == 0 ? 0 : dice == 1 ? random() % 100'000 : 1 + random() % 9000;
    const Where source = where(from), destination = where(to);
    letters.push_back({from, to, bytes, source, destination});
  };
  const uint64_t kind = random() % kinds;
  const int root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  const bool leaves_some_out = random() % 2 == 0;
  for (int a = 0; a < ranks; ++a) {
    if (kind == alltoallv || kind == pipeline_and_alltoallv)
      for (int b = 0; b < ranks; ++b)
        if (!leaves_some_out || random() % 3 != 0) add(a, b);
    if (kind == star) add(root, a), add(a, root);
    if (kind == ring) add(a, (a + 1) % ranks);
    if (kind == pipeline_and_alltoallv && a > 0) add(a - 1, a);
    if (kind == several_each)
      for (int i = 0; i < 4; ++i) add(a, ranks - 1 - a);
  }
  return letters;
}

void run_patterns(const RankContext& context, uint64_t seed, int rounds, const char* copy_engine = nullptr) {
  std::mt19937_64 random(seed);  // the same on every rank
  const GpuRank first, second;
  const Comm comm(context);
  EXPECT_EQ(epcclCommSetCopyEngine(comm, copy_engine), epcclSuccess);
  // Connects every pair: addresses are asked for at the rendezvous, which ends with rank 0's process.
  std::vector<Letter> all;
  for (int from = 0; from < context.ranks; ++from)
    for (int to = 0; to < context.ranks; ++to) all.push_back({from, to, 10'000, plain, plain});
  Half(context.rank, all, first, second, 1).run(comm);
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round)
    Half(context.rank, pattern(context.ranks, random), first, second, 1000 * round).run(comm);
}

TEST(GpuGroups, OfRandomMessagesArrive) {
  const uint64_t seed = new_seed();
  for (const RanksAre are : {RanksAre::processes, RanksAre::threads})
    run_gpu_ranks(are, 4, {{"EPCCL_DEVICE", "cuda"}},
                  [seed](const RankContext& context) { run_patterns(context, seed, 6); });
}

TEST(GpuGroups, OfRandomMessagesArriveOnTwoNodesAndWithoutCopyEngines) {
  const uint64_t seed = new_seed();
  run_ranks({{2, 2}, {{"EPCCL_DEVICE", "cuda"}}, {}},
            [seed](const RankContext& context) { run_patterns(context, seed, 4); });
  // One rank wants none of them.
  run_ranks({{3}, {{"EPCCL_DEVICE", "cuda"}}, {}}, [seed](const RankContext& context) {
    run_patterns(context, seed, 4, context.rank == 1 ? "never" : nullptr);
  });
}

/// A second communicator of the same ranks; rank 0 makes its id.
RankContext another(const RankContext& context, epcclComm_t comm) {
  RankContext second = context;
  if (context.rank == 0) {
    EXPECT_EQ(epcclGetUniqueId(&second.id), epcclSuccess);
  }
  EXPECT_EQ(epcclBroadcast(&second.id, &second.id, sizeof second.id, epcclUint8, 0, comm, nullptr),
            epcclSuccess);
  return second;
}

// Each rank issues them in another order, all in the same two streams.
TEST(GpuGroups, OfTwoCommunicatorsMoveTogether) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    const GpuRank first, second;
    const Comm a(context), b(another(context, a));
    std::vector<Letter> letters;
    for (int from = 0; from < 3; ++from)
      for (int to = 0; to < 3; ++to) letters.push_back({from, to, 5000, plain, plain});
    for (int round = 0; round < 3; ++round) {
      Half in_a(context.rank, letters, first, second, 100 * round);
      Half in_b(context.rank, letters, first, second, 100 * round + 50);
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      if (context.rank % 2 == 0) in_a.issue(a);
      in_b.issue(b);
      if (context.rank % 2 != 0) in_a.issue(a);
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(a) << epcclGetLastError(b);
      in_a.check();
      in_b.check();
    }
  });
}

// The streams wait for each other's messages across the ranks: nothing here may wait for a stream that a group holds.
TEST(GpuGroups, HoldStreamsFromTheirEndOnAndNotBefore) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const int peer = 1 - context.rank;
    const std::vector<int> sent{context.rank, 10 + context.rank};
    GpuArray<int> in(gpu, 2), out(gpu, 2), all(gpu, 2);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    ASSERT_EQ(epcclSend(in.data(), 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    in.put(sent);  // is sent all the same, as the group begins at its end
    gpu.wait();
    ASSERT_EQ(epcclRecv(out.data(), 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclSend(in.data() + 1, 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclAllGather(in.data(), all.data(), 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclRecv(out.data() + 1, 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(out.get(), (std::vector<int>{peer, 10 + peer}));
    EXPECT_EQ(all.get(), (std::vector<int>{0, 1}));
  });
}

// ncclGroupEnd() does not wait for others either.
TEST(GpuGroups, ReturnBeforeTheOtherRankIsCalled) {
  run_gpu_ranks(RanksAre::threads, 1, {}, [](const RankContext&) {
    const GpuRank first, second;
    epcclComm_t comms[2];
    ASSERT_EQ(epcclCommInitAll(comms, 2, nullptr), epcclSuccess) << epcclGetLastError(nullptr);
    const std::vector<Letter> letters{{0, 1, 9000, plain, plain}, {1, 0, 70'000, plain, plain}};
    Half of_0(0, letters, first, first, 1), of_1(1, letters, second, second, 1);
    for (auto* half : {&of_0, &of_1}) {
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      half->issue(comms[half == &of_1]);
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    }
    of_0.check();
    of_1.check();
    for (epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(GpuGroups, AreNotNeededWhereRanksSendLittleBeforeTheyReceive) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const int peer = 1 - context.rank;
    const GpuArray<int> in(gpu, std::vector<int>(1024, context.rank)), out(gpu, 1024);
    ASSERT_EQ(epcclSend(in.data(), 1024, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    ASSERT_EQ(epcclRecv(out.data(), 1024, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
    EXPECT_EQ(out.get(), std::vector<int>(1024, peer));
  });
}

TEST(GpuGroups, OfWrongLengthsAreNamed) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    const GpuArray<uint8_t> data(gpu, 9000);
    EXPECT_EQ(context.rank == 0 ? epcclSend(data.data(), 8000, epcclUint8, 1, comm, gpu.as_epccl())
                                : epcclRecv(data.data(), 9000, epcclUint8, 0, comm, gpu.as_epccl()),
              epcclSuccess);
    gpu.wait();
    epcclResult_t failure = epcclSuccess;
    while (failure == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
    if (context.rank == 1) {
      EXPECT_THAT(epcclGetLastError(comm),
                  HasSubstr("recv of 9000 uint8 from rank 0 expects 9000 bytes, rank 0 sent 8000"));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

// Whether it sends, receives or both; and whether messages were on their way before.
TEST(GpuGroups, EndWhereAPeerDies) {
  run_ranks({{3}, {{"EPCCL_TIMEOUT", "20"}}, {1}}, [](const RankContext& context) {
    const GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    const std::vector<Letter> letters{
        {0, 1, 8000, plain, plain}, {1, 2, 8000, plain, plain}, {2, 0, 70'000, plain, plain}};
    Half(context.rank, letters, gpu, gpu, 1).run(comm);
    if (context.rank == 1) raise(SIGKILL);
    Half half(context.rank, letters, gpu, gpu, 2);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    half.issue(comm);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess);
    gpu.wait();  // not for ever
    epcclResult_t failure = epcclSuccess;
    while (failure == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
    EXPECT_EQ(failure, epcclRemoteError);
    EXPECT_THAT(epcclGetLastError(comm), HasSubstr("rank 1"));
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

TEST(GpuGroups, EndWithAnAbort) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
    const GpuArray<uint8_t> data(gpu, 9000);
    if (context.rank == 0) {
      ASSERT_EQ(epcclSend(data.data(), 9000, epcclUint8, 1, comm, gpu.as_epccl()), epcclSuccess);
      gpu.wait();  // rank 1 never receives
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
