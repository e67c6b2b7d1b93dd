// Tensors in memory that the node's other ranks can map, in memory that they cannot, and in both.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "call_times.hpp"
#include "layer.hpp"
#include "refused_calls.hpp"

namespace epccl::tests {
namespace {

class RegisteredMemory : public OtherMemory {
 public:
  ~RegisteredMemory() override { take_back(); }
  void* place(void* data, size_t bytes) override {
    if (bytes == 0) return data;
    void* memory = nullptr;
    if (epcclMemAlloc(&memory, bytes) != epcclSuccess) {
      ADD_FAILURE() << epcclGetLastError(nullptr);
      return data;
    }
    std::memcpy(memory, data, bytes);
    placed_.push_back({data, memory, bytes});
    return memory;
  }
  void take_back() override {
    for (const Placed& tensor : placed_) {
      std::memcpy(tensor.data, tensor.memory, tensor.bytes);
      EXPECT_EQ(epcclMemFree(tensor.memory), epcclSuccess);
    }
    placed_.clear();
  }

 private:
  struct Placed {
    void *data, *memory;
    size_t bytes;
  };
  std::vector<Placed> placed_;
};

/// Problems of which the ranks that `registers(rank)` have registered tensors, the others those of malloc(). `then` comes before the
/// first dispatch.
template <typename Registers, typename Then>
void run_problems(const RunOptions& options, Registers registers, Then then) {
  const uint64_t seed = seed_of_this_test();
  run_ranks(options, [&, seed](const RankContext& context) {
    Comm comm(context);
    then();
    std::mt19937_64 random(seed);
    RegisteredMemory registered;
    for (int i = 0; i < 6 && !testing::Test::HasFailure(); ++i) {
      const Problem problem = random_problem(options.ranks_per_node, random);
      SCOPED_TRACE(fmt::format("problem {}: {}", i, problem.text()));
      Layer layer(context, comm, problem, nullptr, registers(context.rank) ? &registered : nullptr);
      layer.update();
      layer.forward(problem.by_expert());
      layer.forward(false);
      if (problem.by_expert()) layer.backward();
    }
  });
}

void nothing() {}

class MemoryOfTensors : public testing::TestWithParam<std::vector<int>> {};

TEST_P(MemoryOfTensors, MayBeRegistered) {
  run_problems(
      {GetParam(), {}, {}}, [](int) { return true; }, nothing);
}

TEST_P(MemoryOfTensors, MayDifferBetweenRanks) {
  run_problems(
      {GetParam(), {}, {}}, [](int rank) { return rank % 2 == 1; }, nothing);
  run_problems(
      {GetParam(), {{"EPCCL_CMA", "0"}}, {}}, [](int rank) { return rank % 2 == 0; }, nothing);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MemoryOfTensors,
                         testing::Values(std::vector<int>{4}, std::vector<int>{3, 2}),
                         [](const auto& shape) { return std::to_string(shape.param.size()) + "Nodes"; });

// On one node nobody touches another's memory but where it is mapped, whatever the kernel would allow.
TEST(MemoryOfTensorsOfOneNode, IsNotReachedForByTheKernel) {
  run_problems(
      {{4}, {}, {}}, [](int) { return false; },
      [] {
        refuse_calls({SYS_process_vm_readv, SYS_process_vm_writev});
      });
}

/// Every rank has 64 rows of 1 KiB for each rank: so many that an engine is worth its while.
Problem many_rows_for_everyone(const std::vector<int>& ranks_per_node) {
  Problem made;
  made.ranks_per_node = ranks_per_node;
  made.owner.resize(std::accumulate(ranks_per_node.begin(), ranks_per_node.end(), size_t{0}));
  std::iota(made.owner.begin(), made.owner.end(), 0);
  made.experts = static_cast<uint32_t>(made.owner.size());
  made.hidden = 256;
  made.max_tokens = 64 * made.experts;
  made.tokens.assign(made.owner.size(), made.max_tokens);
  std::vector<int64_t> in_turn(made.max_tokens);
  for (size_t token = 0; token < in_turn.size(); ++token)
    in_turn[token] = static_cast<int64_t>(token % made.owner.size());
  made.topk.assign(made.owner.size(), in_turn);
  made.weights.assign(made.owner.size(), std::vector<float>(made.max_tokens, 1));
  return made;
}

// What they move is what the routing says all the same.
TEST_P(MemoryOfTensors, IsWhereEnginesMoveManyRows) {
  for (const bool asked : {true, false})
    run_ranks({GetParam(), {{"EPCCL_COPY_ENGINE", asked ? "always" : "never"}}, {}},
              [asked](const RankContext& context) {
                Comm comm(context);
                RegisteredMemory registered;
                Layer layer(context, comm, many_rows_for_everyone(GetParam()), nullptr, &registered);
                layer.update();
                EXPECT_EQ(epcclCommMeasureCalls(comm, 1), epcclSuccess) << epcclGetLastError(comm);
                layer.forward(false);
                EXPECT_EQ(times_of(comm).copy > 0, asked);
              });
}

}  // namespace
}  // namespace epccl::tests
