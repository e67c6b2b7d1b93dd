// Calls whose input overlaps their output, and not as in a call in place: what they read is the input as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

using Values = std::vector<int32_t>;

/// How a call is issued.
enum class By { call, stream, group };

class Overlapping : public testing::TestWithParam<By> {
 protected:
  /// Runs `call` on ranks of one node and of two, and compares the output that it returns with `expected`.
  static void run(const std::function<epcclResult_t(Values& memory, const RankContext&, epcclComm_t,
                                                    epcclStream_t)>& call,
                  const std::function<Values(const RankContext&)>& expected, size_t output_at) {
    for (const std::vector<int>& shape : {std::vector{3}, std::vector{2, 1}})
      run_ranks({shape, {}, {}}, [&](const RankContext& context) {
        const Comm comm(context);
        Values memory = initial(context.rank);
        epcclStream_t stream = nullptr;
        if (GetParam() == By::stream) {
          ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
        }
        if (GetParam() == By::group) {
          ASSERT_EQ(epcclGroupStart(), epcclSuccess);
        }
        EXPECT_EQ(call(memory, context, comm, stream), epcclSuccess) << epcclGetLastError(comm);
        if (GetParam() == By::group) {
          ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
        }
        if (stream != nullptr) {
          EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess);
          EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
        }
        const Values wanted = expected(context);
        const auto from = memory.begin() + static_cast<std::ptrdiff_t>(output_at);
        EXPECT_EQ(Values(from, from + static_cast<std::ptrdiff_t>(wanted.size())), wanted)
            << "rank " << context.rank << " of " << shape.size() << " nodes";
      });
  }

  static constexpr int block = 1000, ranks = 3;
  static constexpr size_t room = 5 * block;
  static int32_t element(int rank, int index) { return rank * 100'000 + index; }
  static Values initial(int rank) {
    Values memory(room);
    std::iota(memory.begin(), memory.end(), element(rank, 0));
    return memory;
  }
  /// What every rank has in `elements` from `first` on, behind each other.
  static Values of_all(int first, int elements = block) {
    Values all;
    for (int rank = 0; rank < ranks; ++rank)
      for (int i = 0; i < elements; ++i) all.push_back(element(rank, first + i));
    return all;
  }
  static Values sums(int first, int elements) {
    Values sum;
    for (int i = 0; i < elements; ++i)
      sum.push_back(element(0, first + i) + element(1, first + i) + element(2, first + i));
    return sum;
  }
};

std::string name_of(const testing::TestParamInfo<By>& info) {
  constexpr std::array<const char*, 3> names{"AsACall", "OnAStream", "InAGroup"};
  return names[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Issued, Overlapping, testing::Values(By::call, By::stream, By::group), name_of);

// As nccl-tests' alltoall_perf does.
TEST_P(Overlapping, AlltoallInPlace) {
  run(
      [](Values& memory, const RankContext&, epcclComm_t comm, epcclStream_t stream) {
        return epcclAlltoall(memory.data(), memory.data(), block, epcclInt32, comm, stream);
      },
      [](const RankContext& context) { return of_all(context.rank * block); }, 0);
}

TEST_P(Overlapping, AlltoallHalfABlockFurther) {
  run(
      [](Values& memory, const RankContext&, epcclComm_t comm, epcclStream_t stream) {
        return epcclAlltoall(memory.data(), memory.data() + block / 2, block, epcclInt32, comm, stream);
      },
      [](const RankContext& context) { return of_all(context.rank * block); }, block / 2);
}

// Blocks in the other order, with holes.
TEST_P(Overlapping, AlltoallvInPlace) {
  static const size_t counts[] = {400, 400, 400}, sends[] = {3000, 1500, 0}, receives[] = {0, 400, 800};
  run(
      [](Values& memory, const RankContext&, epcclComm_t comm, epcclStream_t stream) {
        return epcclAlltoallv(memory.data(), counts, sends, memory.data(), counts, receives, epcclInt32, comm,
                              stream);
      },
      [](const RankContext& context) {
        return of_all(static_cast<int>(sends[static_cast<size_t>(context.rank)]), 400);
      },
      0);
}

// As RCCL's tests have it: the input at the beginning, whichever rank it is.
TEST_P(Overlapping, AllGatherFromTheBeginning) {
  run(
      [](Values& memory, const RankContext&, epcclComm_t comm, epcclStream_t stream) {
        return epcclAllGather(memory.data(), memory.data(), block, epcclInt32, comm, stream);
      },
      [](const RankContext&) { return of_all(0); }, 0);
}

TEST_P(Overlapping, ReduceScatterToTheBeginning) {
  run(
      [](Values& memory, const RankContext&, epcclComm_t comm, epcclStream_t stream) {
        return epcclReduceScatter(memory.data(), memory.data(), block, epcclInt32, epcclSum, comm, stream);
      },
      [](const RankContext& context) { return sums(context.rank * block, block); }, 0);
}

TEST_P(Overlapping, AllReduceOneElementFurther) {
  run(
      [](Values& memory, const RankContext&, epcclComm_t comm, epcclStream_t stream) {
        return epcclAllReduce(memory.data(), memory.data() + 1, 4 * block, epcclInt32, epcclSum, comm,
                              stream);
      },
      [](const RankContext&) { return sums(0, 4 * block); }, 1);
}

// The root has its own block before a rank that comes late has fetched the one that lay there.
TEST(OverlappingOfARoot, ScatterToTheBeginning) {
  constexpr size_t count = 1 << 18;
  constexpr int root = 2;
  run_ranks({{3}, {}, {}}, [&](const RankContext& context) {
    const Comm comm(context);
    void* allocated = nullptr;  // so that others read it as it lies there
    ASSERT_EQ(epcclMemAlloc(&allocated, 3 * count * sizeof(int32_t)), epcclSuccess);
    auto* const memory = static_cast<int32_t*>(allocated);
    for (size_t i = 0; context.rank == root && i < 3 * count; ++i)
      memory[i] = static_cast<int32_t>(i / count);
    if (context.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_EQ(epcclScatter(memory, memory, count, epcclInt32, root, comm, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
    EXPECT_EQ(std::count(memory, memory + count, context.rank), count) << "rank " << context.rank;
    EXPECT_EQ(epcclMemFree(allocated), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
