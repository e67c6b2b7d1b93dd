#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cstring>
#include <vector>

#include "exchange.hpp"
#include "ranks.hpp"
#include "refused_calls.hpp"

namespace epccl::tests {
namespace {

class Split : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Split,
                         testing::Values(std::vector{2}, std::vector{5}, std::vector{2, 2},
                                         std::vector{4, 4}));

TEST_P(Split, GathersRanksOfAColorOrderedByKeyThenRank) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    // Two colours, ranks in reverse.
    const int color = context.rank % 2;
    const int size = (context.ranks + 1 - color) / 2;
    epcclComm_t half = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, color, -context.rank, &half, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
    expect_works(half, size - 1 - context.rank / 2, size);
    // Equal keys: the old order.
    epcclComm_t again = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, 7, 0, &again, nullptr), epcclSuccess) << epcclGetLastError(comm);
    expect_works(again, context.rank, context.ranks);
    expect_works(comm, context.rank, context.ranks);
    EXPECT_EQ(epcclCommDestroy(again), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(half), epcclSuccess);
  });
}

TEST_P(Split, LeavesOutRanksWithoutColor) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    const bool out = context.rank == 0;
    auto* part = reinterpret_cast<epcclComm_t>(1);
    ASSERT_EQ(epcclCommSplit(comm, out ? EPCCL_SPLIT_NOCOLOR : 3, 0, &part, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
    if (out) {
      EXPECT_EQ(part, nullptr);
    } else {
      expect_works(part, context.rank - 1, context.ranks - 1);
    }
    expect_works(comm, context.rank, context.ranks);
    if (!out) {
      EXPECT_EQ(epcclCommDestroy(part), epcclSuccess);
    }
  });
}

// As containers and kernels with Yama do, whatever EPCCL_CMA says.
TEST_P(Split, WorksWhereRanksMayNotReachEachOthersMemory) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    refuse_calls({SYS_process_vm_readv, SYS_process_vm_writev});
    const Comm comm(context);
    epcclComm_t half = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, context.rank % 2, 0, &half, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
    expect_works(half, context.rank / 2, (context.ranks + 1 - context.rank % 2) / 2);
    expect_works(comm, context.rank, context.ranks);
    EXPECT_EQ(epcclCommDestroy(half), epcclSuccess);
  });
}

// A child lives on without its parent, and can be split itself.
TEST(SplitChild, OutlivesItsParent) {
  run_ranks({{4}, {}, {}}, [](const RankContext& context) {
    epcclComm_t child = nullptr, grandchild = nullptr;
    {
      const Comm comm(context);
      ASSERT_EQ(epcclCommSplit(comm, 0, -context.rank, &child, nullptr), epcclSuccess);
    }
    expect_works(child, 3 - context.rank, 4);
    ASSERT_EQ(epcclCommSplit(child, context.rank / 2, context.rank, &grandchild, nullptr), epcclSuccess)
        << epcclGetLastError(child);
    EXPECT_EQ(epcclCommDestroy(child), epcclSuccess);
    expect_works(grandchild, context.rank % 2, 2);
    EXPECT_EQ(epcclCommDestroy(grandchild), epcclSuccess);
  });
}

TEST(SplitMany, TimesTheSameRanksMeetAnew) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    std::vector<epcclComm_t> children(6);
    for (epcclComm_t& child : children)
      ASSERT_EQ(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclSuccess) << epcclGetLastError(comm);
    for (epcclComm_t child : children) expect_works(child, context.rank, 3);
    for (epcclComm_t child : children) EXPECT_EQ(epcclCommDestroy(child), epcclSuccess);
  });
}

TEST(SplitConfig, IsTheParentsUnlessOneIsGiven) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context, "flat");
    epcclComm_t child = nullptr;
    epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
    config.algorithm = "nonsense";
    EXPECT_EQ(epcclCommSplit(comm, 0, 0, &child, &config), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "nonsense"), nullptr) << epcclGetLastError(nullptr);
    EXPECT_EQ(child, nullptr);
    // The parent was not harmed.
    expect_works(comm, context.rank, 2);
  });
}

TEST(SplitConfig, HasTheTimeoutThatTheParentWasGiven) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "600"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    ASSERT_EQ(epcclCommSetTimeout(comm, 4), epcclSuccess);
    epcclComm_t child = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclSuccess) << epcclGetLastError(comm);
    int value = 0;
    if (context.rank == 0) {
      EXPECT_EQ(epcclRecv(&value, 1, epcclInt32, 1, child, nullptr), epcclRemoteError);
      EXPECT_THAT(epcclGetLastError(child), testing::ContainsRegex("waited ([4-9]|[1-9][0-9])\\.[0-9] s"));
    }
    context.meet();
    EXPECT_EQ(epcclCommDestroy(child), epcclSuccess);
  });
}

TEST(SplitDisagreement, WithAnotherCallIsNamed) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    if (context.rank == 0) {
      epcclComm_t child = nullptr;
      EXPECT_NE(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclSuccess);
      EXPECT_EQ(child, nullptr);
    } else {
      Exchange exchange(1, 2, 100);
      EXPECT_NE(exchange.start(comm), epcclSuccess);
    }
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "split"), nullptr) << epcclGetLastError(comm);
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "alltoall"), nullptr) << epcclGetLastError(comm);
    EXPECT_EQ(std::strstr(epcclGetLastError(comm), "timeout"), nullptr) << epcclGetLastError(comm);
  });
}

TEST(SplitMisuse, IsRefused) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    epcclComm_t child = nullptr;
    EXPECT_EQ(epcclCommSplit(comm, 0, 0, nullptr, nullptr), epcclInvalidArgument);
    EXPECT_EQ(epcclCommSplit(nullptr, 0, 0, &child, nullptr), epcclInvalidArgument);
    EXPECT_EQ(epcclCommSplit(comm, -2, 0, &child, nullptr), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "color -2"), nullptr) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclCommFinalize(comm), epcclSuccess);
    EXPECT_EQ(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclInvalidUsage);
  });
}

}  // namespace
}  // namespace epccl::tests
