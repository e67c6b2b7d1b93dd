// Layouts of static mode that kernels make from tables in GPU memory: the host never sees a table, and everything that comes out has
// the bits that the host's own static mode gives. On the double of the driver the kernels' code runs on the host.
#include <gmock/gmock.h>

#include <thread>

#include "device/kernels/launch.hpp"
#include "dispatch_tokens.hpp"
#include "gpu_copies.hpp"
#include "static_handle.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;

class DeviceLayout : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::kernels::bytes_of(device::kernels::Image::layout).empty())
      GTEST_SKIP() << "built without CUDA kernels";
  }
};

/// By ranks of each node.
class DeviceLayoutOfShapes : public DeviceLayout, public ::testing::WithParamInterface<std::vector<int>> {};

TEST_P(DeviceLayoutOfShapes, GivesTheBitsOfTheHosts) {
  const uint64_t seed = seed_of_this_test();
  run_ranks({GetParam(), {}, {}}, [seed](const RankContext& context) {
    const Comm comm(context);  // which does not know the GPU, so that `never` is the host
    GpuRank gpu;
    std::mt19937_64 random(seed);
    for (int i = 0; i < 3; ++i) {
      Problem problem = random_problem_of_fixed_size(GetParam(), random);
      problem.is_static = true;
      StaticHandle by_kernels(context, comm, gpu, problem), by_host(context, comm, gpu, problem);
      for (int step = 0; step < 2; ++step) {
        SCOPED_TRACE(problem.text());
        const Outcome expected = by_host.run(problem, "never", step == 0);
        const Outcome made = by_kernels.run(problem, "auto", step == 1);
        EXPECT_EQ(made.counters, expected.counters);
        EXPECT_EQ(made.offsets, expected.offsets);
        EXPECT_EQ(made.lost, expected.lost);
        EXPECT_EQ(made.sources, expected.sources);
        EXPECT_EQ(made.total, expected.total);
        EXPECT_EQ(made.dropped, expected.dropped);
        EXPECT_EQ(made.topk, expected.topk);
        EXPECT_EQ(made.weights, expected.weights);
        EXPECT_EQ(made.home, expected.home);
        EXPECT_TRUE(made == expected) << "rows differ";
        reroute(problem, random);
      }
      if (::testing::Test::HasFailure()) return;
    }
  });
}

TEST_P(DeviceLayoutOfShapes, ServesTheHostTooAndIsReplacedByTheHosts) {
  const uint64_t seed = seed_of_this_test();
  run_ranks({GetParam(), {}, {}}, [seed](const RankContext& context) {
    const Comm comm(context);  // which does not know the GPU, so that `never` is the host
    GpuRank gpu;
    std::mt19937_64 random(seed);
    Problem problem = random_problem_of_fixed_size(GetParam(), random);
    problem.is_static = true;
    SCOPED_TRACE(problem.text());
    GpuCopies copies(gpu);
    Layer layer(context, comm, problem, gpu.as_epccl(), &copies);
    for (const char* engine : {"never", "auto"}) {
      // Kernels make the layout, or the host does; who moves the rows after that may be the other.
      const bool host_first = std::string(engine) == "auto";
      ASSERT_EQ(epcclCommSetCopyEngine(comm, host_first ? "never" : "auto"), epcclSuccess);
      layer.update();
      ASSERT_EQ(epcclCommSetCopyEngine(comm, engine), epcclSuccess);
      layer.forward(problem.by_expert());
      layer.check_stats();
      reroute(problem, random);
      layer.take(problem);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeviceLayoutOfShapes,
                         ::testing::Values(std::vector<int>{3}, std::vector<int>{1, 1},
                                           std::vector<int>{2, 2}, std::vector<int>{1, 2, 1}));

class WrongTables : public DeviceLayoutOfShapes {};

TEST_P(WrongTables, AreNamedOnEveryRankAndTheHandleGoesOn) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    Problem problem;
    problem.layout = EPCCL_EP_LAYOUT_RANK_MAJOR;
    problem.experts = 4;
    problem.k = 2;
    problem.max_tokens = 40;
    problem.hidden = 4;
    problem.owner = {0, 1, 2, 2};
    StaticHandle handle(context, comm, gpu, problem);
    std::vector<int64_t> table(82, 3);
    const GpuArray<int64_t> good(gpu, table);
    table[77] = 4;
    table[79] = -3;
    const GpuArray<int64_t> bad(gpu, table);
    const auto expect_wrong = [&](const GpuArray<int64_t>& given, size_t tokens, size_t k,
                                  const std::string& what) {
      EXPECT_EQ(handle.update(given, tokens, k), epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_EQ(epcclEpComplete(handle.handle()), epcclInvalidArgument);
      EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr(what));
    };
    expect_wrong(context.rank == 1 ? bad : good, 40, 2,
                 "rank 1: topk_idx[38][1] is expert 4, but there are 4 experts");
    expect_wrong(good, context.rank == 2 ? 41 : 40, 2,
                 "rank 2 has 41 tokens: the group's max_send_tokens_per_rank is 40");
    expect_wrong(good, 40, context.rank == 0 ? 1 : 2,
                 "rank 0 has a top-1 table: the handle's static_topk is 2");
    EXPECT_EQ(handle.update(good, 40, 2), epcclSuccess);
    EXPECT_EQ(epcclEpComplete(handle.handle()), epcclSuccess) << epcclGetLastError(nullptr);
    gpu.wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, WrongTables, ::testing::Values(std::vector<int>{3}, std::vector<int>{1, 2}));

class CallsThatWait : public DeviceLayoutOfShapes {};

// The double lets nobody allocate while a stream waits for a call.
TEST_P(CallsThatWait, AllocateNothingMeanwhile) {
  run_ranks({GetParam(),
             {{"FAKE_CUDA_CONTEXT_LOCK", "1"}, {"FAKE_CUDA_ALONE_ALLOCATIONS", "1"}, {"EPCCL_TIMEOUT", "10"}},
             {}},
            [](const RankContext& context) {
              const Comm comm(context);  // which does not know the GPU, so that `never` is the host
              GpuRank gpu;
              Problem problem;
              problem.layout = EPCCL_EP_LAYOUT_RANK_MAJOR;
              problem.experts = 2;
              problem.hidden = 4;
              problem.max_tokens = 4000;  // tables that fit into nothing that was used before
              problem.owner = {0, 1};
              StaticHandle handle(context, comm, gpu, problem);
              const GpuArray<int64_t> bad(gpu, std::vector<int64_t>{5}), good(gpu, std::vector<int64_t>{1});
              EXPECT_EQ(handle.update(context.rank == 1 ? bad : good, 1, 1), epcclSuccess);
              EXPECT_EQ(epcclEpComplete(handle.handle()), epcclInvalidArgument);
              EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("rank 1: topk_idx[0][0] is expert 5"));
              // The host reads the tables of a layout that kernels have made.
              EXPECT_EQ(handle.update(good, 1, 1), epcclSuccess);
              gpu.wait();
              ASSERT_EQ(epcclCommSetCopyEngine(comm, "never"), epcclSuccess);
              const GpuArray<float> token(gpu, 4), rows(gpu, 8000 * 4);
              Tensor in(epcclFloat32, token.data(), {1, 4}), out(epcclFloat32, rows.data(), {8000, 4});
              EXPECT_EQ(dispatch_tokens(handle.handle(), in, out, false, gpu.as_epccl()), epcclSuccess);
              EXPECT_EQ(epcclEpComplete(handle.handle()), epcclSuccess) << epcclGetLastError(nullptr);
            });
}

INSTANTIATE_TEST_SUITE_P(Shapes, CallsThatWait,
                         ::testing::Values(std::vector<int>{2}, std::vector<int>{1, 1}));

// It has no address and no stream that would tell on which GPU the others are.
TEST_F(DeviceLayout, ARankWithoutTokensDoesAsTheOthers) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    Problem problem;
    problem.layout = EPCCL_EP_LAYOUT_RANK_MAJOR;
    problem.experts = problem.k = 2;
    problem.max_tokens = 3;
    problem.hidden = 4;
    problem.owner = {0, 1};
    StaticHandle handle(context, comm, gpu, problem);
    const GpuArray<int64_t> table(gpu, std::vector<int64_t>{0, 1, 1, -1, 1, 0});
    const auto expect_complete = [&](epcclResult_t result) {
      EXPECT_EQ(result, epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_EQ(epcclEpComplete(handle.handle()), epcclSuccess) << epcclGetLastError(nullptr);
    };
    expect_complete(handle.update(table, 3, 2));
    Tensor none(epcclInt64, nullptr, {0, 2});
    expect_complete(context.rank == 1 ? epcclEpUpdateHandle(handle.handle(), none, nullptr, nullptr)
                                      : handle.update(table, 3, 2));
    gpu.wait();
    epcclEpStats_t stats = EPCCL_EP_STATS_INIT;
    EXPECT_EQ(epcclEpGetStats(handle.handle(), &stats), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(stats.tokens_local, context.rank == 0 ? 2U : 0U);
    EXPECT_EQ(stats.tokens_node, context.rank == 0 ? 3U : 0U);
    // Counters are the host's on either kind of update.
    std::vector<int32_t> rows(1, -1);
    Tensor total(epcclInt32, rows.data(), {1});
    epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
    info.recv_total_counter = total;
    expect_complete(context.rank == 1 ? epcclEpUpdateHandle(handle.handle(), none, &info, nullptr)
                                      : handle.update(table, 3, 2));
    EXPECT_EQ(rows[0], context.rank == 1 ? 6 : -1);
    // A thread that has made nothing current names the stream.
    if (context.rank == 0) {
      expect_complete(handle.update(table, 3, 2));
    } else {
      std::thread other(
          [&] { expect_complete(epcclEpUpdateHandle(handle.handle(), none, nullptr, gpu.as_epccl())); });
      other.join();
    }
    gpu.wait();
  });
}

/// The test's own memory, on the host.
struct NothingIsNull : OtherMemory {
  void* place(void* data, size_t bytes) override { return bytes == 0 ? nullptr : data; }
  void take_back() override {}
};

// The communicator knows a GPU, but these calls have nothing to do with it.
TEST_F(DeviceLayout, ARankWithoutTokensStaysOnTheHostWhereItsCallsWere) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    Problem problem;
    problem.layout = EPCCL_EP_LAYOUT_EXPERT_MAJOR;
    problem.experts = 2;
    problem.k = 1;
    problem.max_tokens = problem.capacity = 3;
    problem.hidden = 4;
    problem.owner = {0, 1};
    StaticHandle handle(context, comm, gpu, problem);
    const auto expect_complete = [&](epcclResult_t result) {
      EXPECT_EQ(result, epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_EQ(epcclEpComplete(handle.handle()), epcclSuccess) << epcclGetLastError(nullptr);
    };
    std::vector<int64_t> table{0, 1, 1};
    Tensor three(epcclInt64, table.data(), {3, 1}), none(epcclInt64, nullptr, {0, 1});
    expect_complete(epcclEpUpdateHandle(handle.handle(), three, nullptr, nullptr));
    expect_complete(epcclEpUpdateHandle(handle.handle(), context.rank == 1 ? none : three, nullptr, nullptr));
  });
}

TEST_F(DeviceLayout, ARankWithoutRowsStaysOnTheHostWhereItsCallsWere) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    Problem problem;
    problem.ranks_per_node = {2};
    problem.experts = 2;
    problem.max_tokens = 3;
    problem.hidden = 4;
    problem.owner = {0, 1};
    problem.tokens = {3, 3};
    problem.topk = {{0, 1, 1}, {1, 0, 0}};
    problem.weights.assign(2, std::vector<float>(3, 1));
    NothingIsNull memory;
    Layer layer(context, comm, problem, nullptr, &memory);
    layer.update();
    layer.forward(false);
    // Rank 1 sends nothing, and gets nothing.
    problem.tokens = {3, 0};
    problem.topk = {{0, 0, 0}, {}};
    problem.weights[1].clear();
    layer.take(problem);
    layer.update();
    layer.forward(false);
  });
}

}  // namespace
}  // namespace epccl::tests
