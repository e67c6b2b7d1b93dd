#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

#include "ranks.hpp"
#include "refused_calls.hpp"

namespace epccl::tests {
namespace {

// counts[s * ranks + d] elements of two bytes; blocks lie in a random order with gaps between them.
struct Layout {
  std::vector<size_t> counts, displs;
  size_t extent = 0;
};

Layout lay_out(std::vector<size_t> counts, std::mt19937_64& random) {
  Layout layout;
  std::vector<size_t> order(counts.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  layout.displs.resize(counts.size());
  for (const size_t block : order) {
    layout.extent += random() % 3;
    layout.displs[block] = layout.extent;
    layout.extent += counts[block];
  }
  layout.counts = std::move(counts);
  return layout;
}

void alltoallv_once(epcclComm_t comm, const RankContext& context, const std::vector<size_t>& matrix,
                    int iteration) {
  std::mt19937_64 random(static_cast<uint64_t>(context.rank + 1000 * iteration));
  const auto ranks = static_cast<size_t>(context.ranks), me = static_cast<size_t>(context.rank);
  std::vector<size_t> sends, receives;
  for (size_t peer = 0; peer < ranks; ++peer) {
    sends.push_back(matrix[me * ranks + peer]);
    receives.push_back(matrix[peer * ranks + me]);
  }
  const Layout send = lay_out(sends, random), recv = lay_out(receives, random);
  std::vector<uint16_t> input(send.extent + 1, 0xdead), output(recv.extent + 1, poison),
      expected(recv.extent + 1, poison);
  const auto value = [&](size_t source, size_t destination, size_t i) {
    return static_cast<uint16_t>(
        unique_byte(static_cast<int>(source), static_cast<int>(destination), i, iteration) * 257);
  };
  for (size_t peer = 0; peer < ranks; ++peer) {
    for (size_t i = 0; i < send.counts[peer]; ++i) input[send.displs[peer] + i] = value(me, peer, i);
    for (size_t i = 0; i < recv.counts[peer]; ++i) expected[recv.displs[peer] + i] = value(peer, me, i);
  }
  ASSERT_EQ(epcclAlltoallv(input.data(), send.counts.data(), send.displs.data(), output.data(),
                           recv.counts.data(), recv.displs.data(), epcclBfloat16, comm, nullptr),
            epcclSuccess)
      << epcclGetLastError(comm);
  EXPECT_TRUE(output == expected) << "rank " << context.rank << " iteration " << iteration;
}

class Alltoallv : public testing::TestWithParam<std::pair<std::vector<int>, const char*>> {};

TEST_P(Alltoallv, MovesRandomCountsWithZerosAndNothingElse) {
  const char* given = std::getenv("EPCCL_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  fmt::print("EPCCL_TEST_SEED={}\n", seed);
  run_ranks({GetParam().first, {}, {}}, [seed](const RankContext& context) {
    Comm comm(context, GetParam().second);
    std::mt19937_64 random(seed);  // the same on every rank
    const auto pairs = static_cast<size_t>(context.ranks * context.ranks);
    for (int iteration = 0; iteration < 12; ++iteration) {
      const size_t most = std::vector<size_t>{3, 500, 6000, 60'000}[static_cast<size_t>(iteration) % 4];
      std::vector<size_t> matrix;
      for (size_t i = 0; i < pairs; ++i) matrix.push_back(random() % 3 == 0 ? 0 : random() % most);
      alltoallv_once(comm, context, matrix, iteration);
    }
    alltoallv_once(comm, context, std::vector<size_t>(pairs, 0), 100);
    std::vector<size_t> to_last(pairs, 0);
    for (size_t source = 0; source < static_cast<size_t>(context.ranks); ++source)
      to_last[source * static_cast<size_t>(context.ranks) + static_cast<size_t>(context.ranks) - 1] = 10'000;
    alltoallv_once(comm, context, to_last, 101);
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Alltoallv,
                         testing::Values(std::pair(std::vector{1}, "auto"), std::pair(std::vector{4}, "auto"),
                                         std::pair(std::vector{2, 2}, "flat"),
                                         std::pair(std::vector{2, 2}, "two_stage"),
                                         std::pair(std::vector{3, 2}, "two_stage"),
                                         std::pair(std::vector{1, 3}, "auto"),
                                         std::pair(std::vector{2, 2, 2}, "two_stage")));

// Peers read large blocks where they lie, which takes them a while.
TEST(AlltoallvOfRegisteredMemory, AnInputIsItsOwnersAgainWhenTheCallHasReturned) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    constexpr size_t count = 2'000'000;
    void *in = nullptr, *out = nullptr;
    ASSERT_EQ(epcclMemAlloc(&in, 3 * count * sizeof(int)), epcclSuccess);
    ASSERT_EQ(epcclMemAlloc(&out, 3 * count * sizeof(int)), epcclSuccess);
    const std::span input(static_cast<int*>(in), 3 * count), output(static_cast<int*>(out), 3 * count);
    std::ranges::fill(input, context.rank);
    // Rank 0 has something large for rank 1 alone, and so waits for nobody else.
    std::vector<size_t> sends(3, 1), receives(3, 1);
    const std::vector<size_t> displs{0, count, 2 * count};
    if (context.rank == 0) sends[1] = count;
    if (context.rank == 1) receives[0] = count;
    EXPECT_EQ(epcclAlltoallv(in, sends.data(), displs.data(), out, receives.data(), displs.data(), epcclInt32,
                             comm, nullptr),
              epcclSuccess)
        << epcclGetLastError(comm);
    std::ranges::fill(input, -1);
    context.meet();
    if (context.rank == 1) {
      EXPECT_EQ(std::ranges::count(output.first(count), 0), static_cast<std::ptrdiff_t>(count));
    }
    for (void* memory : {in, out}) EXPECT_EQ(epcclMemFree(memory), epcclSuccess);
  });
}

// What peers read lies in scratch for them, gaps between blocks included.
TEST(AlltoallvOfPlainMemory, ReadsNothingOfPeersWhereInputsFitIntoScratch) {
  run_ranks({{3}, {{"EPCCL_STAGING", "always"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    constexpr size_t pairs = 9;
    alltoallv_once(comm, context, std::vector<size_t>(pairs, 60'000), 1);
    refuse_calls({SYS_process_vm_readv});  // the library has already found that it may read
    alltoallv_once(comm, context, std::vector<size_t>(pairs, 60'000), 2);
    alltoallv_once(comm, context, {0, 1, 5000, 300'000, 0, 0, 7, 100'000, 9}, 3);
  });
}

}  // namespace
}  // namespace epccl::tests
