// Communicators made, divided and revoked, as NCCL programs do it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace nccl_programs {
namespace {

class Lifecycle : public testing::TestWithParam<Job> {};

TEST_P(Lifecycle, SplitByParity) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    ncclComm_t half = nullptr;
    // The key turns the order round.
    NCCL_OK(ncclCommSplit(comm, context.rank % 2, -context.rank, &half, nullptr));
    std::vector<int> expected;
    for (int rank = context.ranks - 1; rank >= 0; --rank)
      if (rank % 2 == context.rank % 2) expected.push_back(rank);
    EXPECT_EQ(tell_all(half, context.rank), expected);
    NCCL_OK(ncclCommDestroy(half));
    EXPECT_EQ(tell_all(comm, context.rank).size(), static_cast<size_t>(context.ranks));
  });
}

TEST_P(Lifecycle, SplitLeavesOutWhoHasNoColor) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    ncclComm_t rest = comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    NCCL_OK(ncclCommSplit(comm, context.rank == 0 ? NCCL_SPLIT_NOCOLOR : 3, 0, &rest, &config));
    EXPECT_EQ(rest == nullptr, context.rank == 0);
    if (rest == nullptr) return;
    EXPECT_EQ(tell_all(rest, context.rank).size(), static_cast<size_t>(context.ranks - 1));
    NCCL_OK(ncclCommDestroy(rest));
  });
}

TEST_P(Lifecycle, ShrinkWithoutTheLastRank) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    int excluded = context.ranks - 1;
    if (context.rank == excluded) {
      // It stays in the parent until the others are through with that.
      EXPECT_EQ(tell_all(comm, context.rank).size(), static_cast<size_t>(context.ranks));
      return;
    }
    ncclComm_t rest = nullptr;
    NCCL_OK(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    EXPECT_EQ(tell_all(rest, context.rank).size(), static_cast<size_t>(context.ranks - 1));
    NCCL_OK(ncclCommDestroy(rest));
    EXPECT_EQ(tell_all(comm, context.rank).size(), static_cast<size_t>(context.ranks));
  });
}

TEST_P(Lifecycle, ScalableInitTakesSeveralIds) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    std::array<ncclUniqueId, 2> ids{};
    std::vector<std::array<ncclUniqueId, 2>> all(static_cast<size_t>(context.ranks));
    if (context.rank == 0)
      for (auto& id : ids) NCCL_OK(ncclGetUniqueId(&id));
    for (auto& to : all) to = ids;
    std::vector<std::array<ncclUniqueId, 2>> received(all.size());
    NCCL_OK(ncclAlltoAll(all.data(), received.data(), sizeof ids, ncclUint8, comm, nullptr));
    ids = received[0];
    ncclComm_t other = nullptr;
    NCCL_OK(ncclCommInitRankScalable(&other, context.ranks, context.rank, 2, ids.data(), nullptr));
    EXPECT_EQ(tell_all(other, context.rank).size(), static_cast<size_t>(context.ranks));
    NCCL_OK(ncclCommDestroy(other));
  });
}

TEST_P(Lifecycle, RevokeThenShrink) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    NCCL_OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    int in = 1, out = 0;
    EXPECT_NE(ncclAlltoAll(&in, &out, 0, ncclInt32, comm, nullptr), ncclSuccess);
    int excluded = context.ranks - 1;
    if (context.rank == excluded) return;
    ncclComm_t rest = nullptr;
    NCCL_OK(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    EXPECT_EQ(tell_all(rest, context.rank).size(), static_cast<size_t>(context.ranks - 1));
    NCCL_OK(ncclCommDestroy(rest));
  });
}

ncclComm_t join_with(const RankContext& context, ncclConfig_t* config) {
  ncclComm_t comm = nullptr;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm, context.ranks, context.id, context.rank, config);
  EXPECT_EQ(begun, config->blocking == 0 ? ncclInProgress : ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(settled(comm), ncclSuccess) << ncclGetLastError(comm);
  return comm;
}

/// Ends it; whether it is nonblocking, which shows in that.
bool ends_in_background(ncclComm_t comm) {
  const ncclResult_t finalized = ncclCommFinalize(comm);
  EXPECT_TRUE(finalized == ncclSuccess || finalized == ncclInProgress) << ncclGetLastError(comm);
  EXPECT_EQ(settled(comm), ncclSuccess) << ncclGetLastError(comm);
  NCCL_OK(ncclCommDestroy(comm));
  return finalized == ncclInProgress;
}

// How a split or shrink returns is its parent's affair; what it makes is as the given config says, or without one as the parent.
TEST_P(Lifecycle, SplitsAndShrinksOfSharingParentsTakeConfigs) {
  ncclConfig_t shares = NCCL_CONFIG_INITIALIZER;
  shares.splitShare = shares.shrinkShare = 1;
  ncclConfig_t in_background = shares;
  in_background.blocking = 0;
  for (ncclConfig_t* of_parent : {&shares, &in_background})
    run_ranks(GetParam(), [&](const RankContext& context) {
      ncclComm_t parent = join_with(context, of_parent);
      const ncclResult_t due = of_parent == &shares ? ncclSuccess : ncclInProgress;
      int excluded = 0;
      for (ncclConfig_t* given : {static_cast<ncclConfig_t*>(nullptr), &shares, &in_background}) {
        const bool is_nonblocking = (given != nullptr ? given : of_parent) == &in_background;
        ncclComm_t all = nullptr, rest = nullptr;
        EXPECT_EQ(ncclCommSplit(parent, 0, 0, &all, given), due);
        EXPECT_EQ(settled(parent), ncclSuccess) << ncclGetLastError(parent);
        EXPECT_EQ(tell_all(all, 1).size(), static_cast<size_t>(context.ranks));
        EXPECT_EQ(ends_in_background(all), is_nonblocking);
        if (context.rank == excluded) continue;
        EXPECT_EQ(ncclCommShrink(parent, &excluded, 1, &rest, given, NCCL_SHRINK_DEFAULT), due);
        EXPECT_EQ(settled(parent), ncclSuccess) << ncclGetLastError(parent);
        EXPECT_EQ(tell_all(rest, 1).size(), static_cast<size_t>(context.ranks - 1));
        EXPECT_EQ(ends_in_background(rest), is_nonblocking);
      }
      context.meet();
      NCCL_OK(ncclCommDestroy(parent));
    });
}

TEST_P(Lifecycle, WhatIsMadeOfASharingParentOutlivesIt) {
  run_ranks(GetParam(), [](const RankContext& context) {
    ncclConfig_t shares = NCCL_CONFIG_INITIALIZER;
    shares.splitShare = shares.shrinkShare = 1;
    ncclComm_t parent = join_with(context, &shares), all = nullptr, rest = nullptr;
    int excluded = 0;
    NCCL_OK(ncclCommSplit(parent, 0, 0, &all, nullptr));
    if (context.rank != excluded)
      NCCL_OK(ncclCommShrink(parent, &excluded, 1, &rest, &shares, NCCL_SHRINK_DEFAULT));
    context.meet();
    NCCL_OK(ncclCommDestroy(parent));
    context.meet();
    EXPECT_EQ(tell_all(all, 1).size(), static_cast<size_t>(context.ranks));
    if (rest != nullptr) {
      EXPECT_EQ(tell_all(rest, 1).size(), static_cast<size_t>(context.ranks - 1));
      NCCL_OK(ncclCommDestroy(rest));
    }
    NCCL_OK(ncclCommDestroy(all));
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, Lifecycle,
                         testing::Values(Job{As::threads, 3}, Job{As::processes, 4},
                                         Job{As::processes, 6, 3}),
                         testing::PrintToStringParamName());

// The process of the tests must not have read NCCL_DEBUG before: it is read once.
TEST(CommName, OfASplitOrShrinkIsItsConfigSOrElseItsParents) {
  Job job{As::processes, 3};
  job.environment = {{"NCCL_DEBUG", "INFO"}};
  run_ranks(job, [](const RankContext& context) {
    testing::internal::CaptureStderr();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = "whole";
    Comm comm(context, &config);
    config.commName = "part";
    ncclComm_t part = nullptr, rest = nullptr, unnamed = nullptr;
    NCCL_OK(ncclCommSplit(comm, context.rank == 0 ? 0 : 1, 0, &part, &config));
    NCCL_OK(ncclCommDestroy(part));
    int excluded = 0;
    if (context.rank != excluded) {
      config.commName = "rest";
      NCCL_OK(ncclCommShrink(comm, &excluded, 1, &rest, &config, NCCL_SHRINK_DEFAULT));
      NCCL_OK(ncclCommShrink(comm, &excluded, 1, &unnamed, nullptr, NCCL_SHRINK_DEFAULT));
      NCCL_OK(ncclCommDestroy(rest));
      NCCL_OK(ncclCommDestroy(unnamed));
    }
    const std::string said = testing::internal::GetCapturedStderr();
    context.meet();
    if (context.rank == excluded) return;
    const std::string place = ": rank " + std::to_string(context.rank - 1) + " of 2 on ";
    for (const char* name : {"part", "rest", "whole"})
      EXPECT_THAT(said, testing::HasSubstr("comm " + (name + place)));
  });
}

Job waiting_for(int ranks, const char* nccl_timeout, const char* timeout) {
  Job job{As::processes, ranks};
  if (nccl_timeout != nullptr) job.environment.emplace_back("EPCCL_NCCL_TIMEOUT", nccl_timeout);
  if (timeout != nullptr) job.environment.emplace_back("EPCCL_TIMEOUT", timeout);
  return job;
}

/// Joins as the first of two ranks of which the other never comes.
void expect_to_give_up(ncclConfig_t* config, const char* text) {
  ncclUniqueId id{};
  NCCL_OK(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_NE(ncclCommInitRankConfig(&comm, 2, id, 0, config), ncclSuccess);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr(text));
}

TEST(LateRanks, AreWaitedForAsLongAsNcclProgramsAreToldTo) {
  for (const char* of_any_program : {static_cast<const char*>(nullptr), "1000"})
    run_ranks(waiting_for(1, "0.25", of_any_program), [](const RankContext&) {
      expect_to_give_up(nullptr, "0.25 s");
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      expect_to_give_up(&config, "0.25 s");
    });
}

TEST(LateRanks, AreWaitedForAsLongAsOfAnyProgramWhereThatAloneIsSet) {
  run_ranks(waiting_for(1, nullptr, "0.25"),
            [](const RankContext&) { expect_to_give_up(nullptr, "0.25 s"); });
}

// Long enough for the ranks to come together.
TEST(LateRanks, OfASplitAreWaitedForAsLong) {
  run_ranks(waiting_for(2, "12", nullptr), [](const RankContext& context) {
    Comm comm(context);
    ncclComm_t part = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    NCCL_OK(ncclCommSplit(comm, 0, 0, &part, &config));
    int number = 1;
    if (context.rank == 0) {
      EXPECT_EQ(ncclAllReduce(&number, &number, 1, ncclInt32, ncclSum, part, nullptr), ncclRemoteError);
      // It is noticed when the thread is next awake: how much later is the machine's affair. Of the defaults one is 30 s.
      EXPECT_THAT(ncclGetLastError(nullptr), testing::ContainsRegex("waited (1[2-9]|2[0-9])\\.[0-9] s"));
    }
    context.meet();
    NCCL_OK(ncclCommAbort(part));
  });
}

// One thread is all ranks: groups let it.
TEST(OneThread, InitAllAndAGroupOverAllRanks) {
  constexpr int ranks = 5;
  std::array<ncclComm_t, ranks> comms{};
  const std::array<int, ranks> devices{4, 3, 2, 1, 0};
  NCCL_OK(ncclCommInitAll(comms.data(), ranks, devices.data()));
  std::vector<std::vector<int>> in(ranks), out(ranks);
  NCCL_OK(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    int number = -1;
    NCCL_OK(ncclCommCuDevice(comms[at], &number));
    EXPECT_EQ(number, devices[at]);
    NCCL_OK(ncclCommUserRank(comms[at], &number));
    EXPECT_EQ(number, rank);
    in[at].assign(ranks, rank);
    out[at].assign(ranks, -1);
    NCCL_OK(ncclAlltoAll(in[at].data(), out[at].data(), 1, ncclInt32, comms[at], nullptr));
  }
  NCCL_OK(ncclGroupEnd());
  for (const auto& got : out) EXPECT_EQ(got, (std::vector<int>{0, 1, 2, 3, 4}));
  NCCL_OK(ncclGroupStart());
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommFinalize(comm));
  NCCL_OK(ncclGroupEnd());
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
}

// NCCL refuses a GPU that comes twice. Here it is a number, and ranks of host memory share the host.
TEST(OneThread, InitAllTakesADeviceTwice) {
  constexpr std::array devices{3, 0, 3};
  std::array<ncclComm_t, devices.size()> comms{};
  NCCL_OK(ncclCommInitAll(comms.data(), static_cast<int>(devices.size()), devices.data()));
  std::array<int, devices.size()> sums{1, 2, 4};
  NCCL_OK(ncclGroupStart());
  for (size_t rank = 0; rank < comms.size(); ++rank)
    NCCL_OK(ncclAllReduce(&sums[rank], &sums[rank], 1, ncclInt32, ncclSum, comms[rank], nullptr));
  NCCL_OK(ncclGroupEnd());
  EXPECT_THAT(sums, testing::Each(7));
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    int device = -1;
    NCCL_OK(ncclCommCuDevice(comms[rank], &device));
    EXPECT_EQ(device, devices[rank]);
    NCCL_OK(ncclCommDestroy(comms[rank]));
  }
}

TEST(OneThread, InitRankOfAllRanksInAGroup) {
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  std::array<ncclComm_t, 3> comms{};
  NCCL_OK(ncclGroupStart());
  for (int rank = 0; rank < 3; ++rank)
    NCCL_OK(ncclCommInitRank(&comms[static_cast<size_t>(rank)], 3, id, rank));
  NCCL_OK(ncclGroupEnd());
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
}

TEST(OneThread, WindowsAndTheTimeOfAGroup) {
  ncclComm_t comm = nullptr;
  const int device = 0;
  NCCL_OK(ncclCommInitAll(&comm, 1, &device));
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
  NCCL_OK(ncclMemAlloc(&memory, 1 << 16));
  NCCL_OK(ncclCommWindowRegister(comm, memory, 1 << 16, &window, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT_NE(window, nullptr);
  NCCL_OK(ncclCommWindowDeregister(comm, window));
  EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclInvalidArgument);

  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclAlltoAll(memory, static_cast<char*>(memory) + 4096, 4096, ncclInt8, comm, nullptr));
  NCCL_OK(ncclGroupSimulateEnd(&info));
  EXPECT_GT(info.estimatedTime, 0.0F);
  NCCL_FAILS(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "without ncclGroupStart");
  // The group is closed in any case.
  info.magic = 3;
  NCCL_OK(ncclGroupStart());
  NCCL_FAILS(ncclGroupSimulateEnd(&info), ncclInvalidArgument, "simInfo.magic is 0x3");
  NCCL_FAILS(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  NCCL_OK(ncclMemFree(memory));
  NCCL_OK(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace nccl_programs
