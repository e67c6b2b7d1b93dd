// Calls on GPU memory whose input overlaps their output, and not as in a call in place: they read a copy, however they are made.
#include <numeric>

#include "graph_rank.hpp"

namespace epccl::tests {
namespace {

using Ints = std::vector<int32_t>;

struct Way {
  const char* name;
  std::vector<int> shape;
  const char* copy_engine;
};

class GpuOverlap : public testing::TestWithParam<Way> {
 protected:
  /// `call` on one array; what it leaves from `output_at` on.
  static void run(const std::function<epcclResult_t(int32_t* memory, epcclComm_t, epcclStream_t)>& call,
                  const std::function<Ints(const RankContext&)>& expected, size_t output_at,
                  bool in_a_graph = false) {
    // Stages of fewer bytes than a block has: calls by way of the host are made in several slices.
    run_ranks(
        {GetParam().shape, {{"EPCCL_COPY_ENGINE", GetParam().copy_engine}, {"EPCCL_STAGE_SIZE", "4096"}}, {}},
        [&](const RankContext& context) {
          const GpuRank gpu;
          const Comm comm(context);
          Ints initial(room);
          std::iota(initial.begin(), initial.end(), element(context.rank, 0));
          GpuArray<int32_t> memory(gpu, initial);
          const auto issue = [&] {
            EXPECT_EQ(call(memory.data(), comm, gpu.as_epccl()), epcclSuccess) << epcclGetLastError(comm);
          };
          if (in_a_graph) {
            Graph graph(gpu, issue);
            for (int launch = 0; launch < 2; ++launch) {
              memory.put(initial);
              graph.launch();
              gpu.wait();
            }
          } else {
            issue();
          }
          const Ints wanted = expected(context), all = memory.get();
          const auto from = all.begin() + static_cast<std::ptrdiff_t>(output_at);
          EXPECT_EQ(Ints(from, from + static_cast<std::ptrdiff_t>(wanted.size())), wanted)
              << "rank " << context.rank;
        });
  }

  static constexpr int block = 3000, ranks = 3;
  static constexpr size_t room = 5 * block;
  static int32_t element(int rank, int index) { return rank * 100'000 + index; }
  static Ints of_all(int first, int elements = block) {
    Ints all;
    for (int rank = 0; rank < ranks; ++rank)
      for (int i = 0; i < elements; ++i) all.push_back(element(rank, first + i));
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, GpuOverlap,
                         testing::Values(Way{"EnginesOnANode", {3}, "always"},
                                         Way{"CoresOnANode", {3}, "never"},
                                         Way{"EnginesOnTwoNodes", {2, 1}, "always"},
                                         Way{"CoresOnTwoNodes", {2, 1}, "never"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(GpuOverlap, AlltoallInPlace) {
  run([](int32_t* memory, epcclComm_t comm,
         epcclStream_t stream) { return epcclAlltoall(memory, memory, block, epcclInt32, comm, stream); },
      [](const RankContext& context) { return of_all(context.rank * block); }, 0);
}

TEST_P(GpuOverlap, AlltoallInPlaceInAGraph) {
  if (!graphs_can_be_made()) GTEST_SKIP() << "built without CUDA kernels";
  run([](int32_t* memory, epcclComm_t comm,
         epcclStream_t stream) { return epcclAlltoall(memory, memory, block, epcclInt32, comm, stream); },
      [](const RankContext& context) { return of_all(context.rank * block); }, 0, true);
}

TEST_P(GpuOverlap, AlltoallvOneBlockFurtherInTheOtherOrder) {
  static const size_t counts[] = {700, 700, 700}, sends[] = {6000, 3000, 0}, receives[] = {0, 700, 1400};
  run(
      [](int32_t* memory, epcclComm_t comm, epcclStream_t stream) {
        return epcclAlltoallv(memory, counts, sends, memory + block, counts, receives, epcclInt32, comm,
                              stream);
      },
      [](const RankContext& context) {
        return of_all(static_cast<int>(sends[static_cast<size_t>(context.rank)]), 700);
      },
      block);
}

// The others' calls are as always: whether the graph makes the call must not be one rank's own affair.
TEST_P(GpuOverlap, GatherToTheBeginningAtTheRootAlone) {
  for (const bool in_a_graph : {false, graphs_can_be_made()})
    run([](int32_t* memory, epcclComm_t comm,
           epcclStream_t stream) { return epcclGather(memory, memory, block, epcclInt32, 1, comm, stream); },
        [](const RankContext& context) { return context.rank == 1 ? of_all(0) : Ints{}; }, 0, in_a_graph);
}

TEST_P(GpuOverlap, AllGatherFromTheBeginning) {
  run([](int32_t* memory, epcclComm_t comm,
         epcclStream_t stream) { return epcclAllGather(memory, memory, block, epcclInt32, comm, stream); },
      [](const RankContext&) { return of_all(0); }, 0);
}

}  // namespace
}  // namespace epccl::tests
