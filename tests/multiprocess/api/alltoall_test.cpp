#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <vector>

#include "ranks.hpp"
#include "refused_calls.hpp"

namespace epccl::tests {
namespace {

struct Buffers {
  Buffers(size_t bytes, bool registered) : registered_(registered) {
    if (registered) {
      EXPECT_EQ(epcclMemAlloc(reinterpret_cast<void**>(&input), bytes), epcclSuccess);
      EXPECT_EQ(epcclMemAlloc(reinterpret_cast<void**>(&output), bytes), epcclSuccess);
    } else {
      plain_.resize(2 * bytes);
      input = plain_.data();
      output = plain_.data() + bytes;
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    if (!registered_) return;
    epcclMemFree(input);
    epcclMemFree(output);
  }
  uint8_t* input = nullptr;
  uint8_t* output = nullptr;

 private:
  bool registered_;
  std::vector<uint8_t> plain_;
};

void alltoall_once(epcclComm_t comm, const RankContext& context, size_t block, int iteration,
                   bool registered) {
  const size_t bytes = block * static_cast<size_t>(context.ranks);
  Buffers buffers(bytes, registered);
  for (int peer = 0; peer < context.ranks; ++peer)
    for (size_t i = 0; i < block; ++i)
      buffers.input[static_cast<size_t>(peer) * block + i] = unique_byte(context.rank, peer, i, iteration);
  std::fill_n(buffers.output, bytes, poison);
  ASSERT_EQ(epcclAlltoall(buffers.input, buffers.output, block, epcclUint8, comm, nullptr), epcclSuccess)
      << epcclGetLastError(comm);
  size_t wrong = 0;
  for (int peer = 0; peer < context.ranks; ++peer)
    for (size_t i = 0; i < block; ++i)
      wrong += buffers.output[static_cast<size_t>(peer) * block + i] !=
               unique_byte(peer, context.rank, i, iteration);
  EXPECT_EQ(wrong, 0U) << "rank " << context.rank << " block " << block << " iteration " << iteration;
}

void sweep(const RankContext& context, const char* algorithm) {
  Comm comm(context, algorithm);
  int iteration = 0;
  for (const size_t block : {1, 3, 64, 1000, 8192, 8193, 70'000, 300'000})
    for (const bool registered : {false, true}) alltoall_once(comm, context, block, ++iteration, registered);
  for (int repeat = 0; repeat < 200; ++repeat) alltoall_once(comm, context, 40, ++iteration, false);
}

struct Case {
  std::vector<int> ranks_per_node;
  const char* algorithm;
};

class Alltoall : public testing::TestWithParam<Case> {};

TEST_P(Alltoall, MovesEveryByte) {
  run_ranks({GetParam().ranks_per_node, {}, {}},
            [](const RankContext& context) { sweep(context, GetParam().algorithm); });
}

// Chunks of 64 bytes and staging rings of a few of them: every wrap of every ring. Outputs are written past the cache.
TEST_P(Alltoall, MovesEveryByteWithTinyConstants) {
  run_ranks({GetParam().ranks_per_node,
             {{"EPCCL_CHUNK_SIZE", "64"},
              {"EPCCL_EAGER_LIMIT", "32"},
              {"EPCCL_SCRATCH_SIZE", "4K"},
              {"EPCCL_STREAMING_SIZE", "1"}},
             {}},
            [](const RankContext& context) {
              Comm comm(context, GetParam().algorithm);
              int iteration = 0;
              for (const size_t block : {1, 31, 33, 100, 1000, 5000})
                for (const bool registered : {false, true})
                  alltoall_once(comm, context, block, ++iteration, registered);
            });
}

TEST_P(Alltoall, MovesEveryByteWherePeersCannotBeRead) {
  run_ranks({GetParam().ranks_per_node, {{"EPCCL_CMA", "0"}}, {}}, [](const RankContext& context) {
    Comm comm(context, GetParam().algorithm);
    int iteration = 0;
    for (const size_t block : {7, 70'000, 300'000}) alltoall_once(comm, context, block, ++iteration, false);
  });
}

// What peers cannot map lies in scratch for them, as far as there is room.
TEST(AlltoallOfPlainMemory, ReadsOfPeersWhatDoesNotFitIntoScratchOnly) {
  run_ranks(
      {{3}, {{"EPCCL_SCRATCH_SIZE", "1M"}, {"EPCCL_STAGING", "always"}}, {}}, [](const RankContext& context) {
        const Comm comm(context);
        alltoall_once(comm, context, 400'000, 1, false);
        refuse_calls({SYS_process_vm_readv});
        alltoall_once(comm, context, 300'000, 2, false);
        alltoall_once(comm, context, 8193, 3, false);
        std::vector<uint8_t> plain(6 * 400'000);
        EXPECT_NE(epcclAlltoall(plain.data(), plain.data() + 3 * 400'000, 400'000, epcclUint8, comm, nullptr),
                  epcclSuccess);
      });
}

TEST(AlltoallOfPlainMemory, IsReadOfPeersWhereNothingIsToBeStaged) {
  run_ranks({{3}, {{"EPCCL_STAGING", "never"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    alltoall_once(comm, context, 40'000, 1, false);
    refuse_calls({SYS_process_vm_readv});
    alltoall_once(comm, context, 20'000, 2, false);  // too little for that
    std::vector<uint8_t> plain(6 * 40'000);
    EXPECT_NE(epcclAlltoall(plain.data(), plain.data() + 3 * 40'000, 40'000, epcclUint8, comm, nullptr),
              epcclSuccess);
  });
}

TEST_P(Alltoall, WaitsWithoutSpinningOrYielding) {
  run_ranks({GetParam().ranks_per_node, {{"EPCCL_SPIN", "0"}, {"EPCCL_YIELD", "0"}}, {}},
            [](const RankContext& context) {
              Comm comm(context, GetParam().algorithm);
              for (int iteration = 0; iteration < 100; ++iteration)
                alltoall_once(comm, context, 100, iteration, false);
            });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Alltoall,
                         testing::Values(Case{{1}, "auto"}, Case{{2}, "auto"}, Case{{5}, "flat"},
                                         Case{{1, 1}, "two_stage"}, Case{{2, 2}, "flat"},
                                         Case{{2, 2}, "two_stage"}, Case{{2, 2}, "auto"},
                                         Case{{3, 5}, "two_stage"}, Case{{1, 4}, "auto"},
                                         Case{{2, 2, 2}, "two_stage"}),
                         [](const auto& test) {
                           std::string name;
                           for (const int size : test.param.ranks_per_node) name += fmt::format("{}_", size);
                           return name + test.param.algorithm;
                         });

TEST(AlltoallOfCarriers, MovesEveryByteForEveryNumberOfCarriers) {
  for (const char* carriers : {"1", "2", "3", "8"})
    run_ranks({{3, 3}, {{"EPCCL_CARRIERS", carriers}}, {}}, [](const RankContext& context) {
      Comm comm(context, "two_stage");
      int iteration = 0;
      for (const size_t block : {5, 4096, 100'000}) alltoall_once(comm, context, block, ++iteration, false);
    });
}

TEST(AlltoallOfElements, CountsInElementsOfTheDatatype) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<double> input(6), output(6, -1);
    for (size_t i = 0; i < 6; ++i) input[i] = context.rank * 100 + static_cast<double>(i);
    ASSERT_EQ(epcclAlltoall(input.data(), output.data(), 2, epcclFloat64, comm, nullptr), epcclSuccess);
    for (size_t i = 0; i < 6; ++i)
      EXPECT_EQ(output[i], static_cast<double>(i / 2) * 100 + context.rank * 2 + static_cast<double>(i % 2));
  });
}

TEST(AlltoallOfElements, MovesNothingForCountZeroAndNullBuffers) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    EXPECT_EQ(epcclAlltoall(nullptr, nullptr, 0, epcclFloat32, comm, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
  });
}

}  // namespace
}  // namespace epccl::tests
