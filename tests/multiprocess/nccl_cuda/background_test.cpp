// Nonblocking communicators: what the real NCCL does in its background, and what becomes of it when the program gives up.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "cuda_rank.hpp"

namespace nccl_programs {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

ncclComm_t nonblocking(const RankContext& context) {
  ncclConfig_t config = nonblocking_config();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, context.ranks, context.id, context.rank, &config), ncclInProgress);
  EXPECT_EQ(settled(comm), ncclSuccess);
  return comm;
}

/// Calls with CUDA memory on it reach this communicator of the double.
void expect_real(ncclComm_t comm, const std::string& real) {
  const DeviceMemory memory(64);
  asked_of_real();
  NCCL_OK(ncclAllGather(memory.get(), memory.get(), 1, ncclInt8, comm, nullptr));
  EXPECT_THAT(asked_of_real(), ElementsAre(EndsWith(" " + real + " 0")));
}

/// Nothing that the double is asked for in the background ends by itself from now on.
void hold_the_double() {
  setenv("FAKE_NCCL_POLLS", "never", 1);
}

/// A split that the real NCCL has begun, and goes on with for ever. Returns the name of its real parent.
std::string begin_an_endless_split(const RankContext& context, ncclComm_t& comm, ncclComm_t& part) {
  comm = nonblocking(context);
  std::string real = made_in(asked_of_real());
  hold_the_double();
  EXPECT_EQ(ncclCommSplit(comm, 0, 0, &part, nullptr), ncclInProgress);
  asked_of_real_until("CommSplit");
  return real;
}

/// NVIDIA's library writes the new handle as it ends the parent; nobody else has that.
void expect_parent_and_child_were_aborted(const std::string& real) {
  const auto asked = asked_of_real();
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[0], "CommAbort " + real);
  EXPECT_EQ(asked[2], "CommAbort " + made_in(asked));
}

// The group's end will tell more.
void expect_begun(ncclResult_t result) {
  EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
}

// Afterwards the ranks may end what the others were waiting for. (Who is through may be so quick to abort that it fails for another.) A
// split of `comm` is nothing to calls with host memory.
void meet(ncclComm_t comm) {
  std::array<int, 8> in{}, out{};
  const ncclResult_t met = ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, nullptr);
  EXPECT_TRUE(met == ncclSuccess || met == ncclRemoteError) << ncclGetLastError(comm);
}

ncclUniqueId another_id(const RankContext& context, ncclComm_t comm) {
  ncclUniqueId id{};
  if (context.rank == 0) NCCL_OK(ncclGetUniqueId(&id));
  NCCL_OK(ncclBroadcast(&id, &id, sizeof id, ncclUint8, 0, comm, nullptr));
  return id;
}

// As NCCL's manual has it: the parent is asked, and then the new communicator can be used.
TEST(Background, ASplitIsThereWhenItsParentIsThrough) {
  run_ranks(with_gpus(3), [](const RankContext& context) {
    ncclComm_t comm = nonblocking(context), part = nullptr;
    asked_of_real();
    EXPECT_EQ(ncclCommSplit(comm, context.rank == 2 ? NCCL_SPLIT_NOCOLOR : 1, 0, &part, nullptr),
              ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    const std::string real = made_in(asked_of_real());
    if (context.rank == 2) {
      EXPECT_EQ(part, nullptr);
      EXPECT_EQ(real, "0");  // it was waited for until NVIDIA's library had said so
    } else {
      expect_real(part, real);
      NCCL_OK(ncclCommDestroy(part));
    }
    NCCL_OK(ncclCommDestroy(comm));
  });
}

TEST(Background, AShrinkIsThereWhenItsParentIsThrough) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    ncclComm_t comm = nonblocking(context), rest = nullptr;
    asked_of_real();
    if (context.rank == 0) {
      int excluded = 1;
      EXPECT_EQ(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ncclInProgress);
      EXPECT_EQ(settled(comm), ncclSuccess);
      expect_real(rest, made_in(asked_of_real()));
      NCCL_OK(ncclCommDestroy(rest));
    }
    meet(comm);
    NCCL_OK(ncclCommAbort(comm));
  });
}

TEST(Background, SeveralSplitsOfAGroup) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    ncclComm_t comm = nonblocking(context);
    std::array<ncclComm_t, 2> parts{};
    asked_of_real();
    NCCL_OK(ncclGroupStart());
    for (ncclComm_t& part : parts) expect_begun(ncclCommSplit(comm, 0, context.rank, &part, nullptr));
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    const auto asked = asked_of_real();
    for (ncclComm_t part : parts) {
      const DeviceMemory memory(64);
      NCCL_OK(ncclAllGather(memory.get(), memory.get(), 1, ncclInt8, part, nullptr));
      NCCL_OK(ncclCommDestroy(part));
    }
    NCCL_OK(ncclCommDestroy(comm));
  });
}

TEST(Background, TheParentIsInProgressAndRefusesCallsWhileTheRealOneIsSplit) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    ncclComm_t comm = nonblocking(context), part = nullptr, other = nullptr;
    const DeviceMemory memory(64);
    hold_the_double();
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &part, nullptr), ncclInProgress);
    asked_of_real_until("CommSplit");
    meet(comm);
    ncclResult_t state = ncclSuccess;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInProgress);
    NCCL_FAILS(ncclAllGather(memory.get(), memory.get(), 1, ncclInt8, comm, nullptr), ncclInvalidArgument,
               "ncclAllGather: a split or shrink of the communicator is in progress");
    NCCL_FAILS(ncclCommSplit(comm, 0, 0, &other, nullptr), ncclInvalidArgument, "in progress");
    NCCL_FAILS(ncclCommFinalize(comm), ncclInvalidArgument, "in progress");
    NCCL_FAILS(ncclCommDestroy(comm), ncclInvalidArgument, "in progress");
    meet(comm);
    NCCL_OK(ncclCommAbort(comm));
    // The split's other rank may have aborted its parent before.
    EXPECT_NE(settled(part), ncclInProgress);
    NCCL_OK(ncclCommAbort(part));
  });
}

TEST(Background, AnAbortOfTheParentEndsWhatTheRealOneMakesOfIt) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    ncclComm_t comm = nullptr, part = nullptr;
    const std::string real = begin_an_endless_split(context, comm, part);
    NCCL_OK(ncclCommAbort(comm));
    expect_parent_and_child_were_aborted(real);
    // The new communicator has no real one, and all its ranks know.
    EXPECT_EQ(settled(part), ncclSuccess);
    meet(part);
    const DeviceMemory memory(64);
    NCCL_FAILS(ncclAllGather(memory.get(), memory.get(), 1, ncclInt8, part, nullptr), ncclInvalidUsage,
               "it was aborted while the real NCCL made it");
    NCCL_OK(ncclCommDestroy(part));
  });
}

TEST(Background, AnAbortOfTheNewCommunicatorLeavesWhatTheRealOneMakesToTheParent) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    ncclComm_t comm = nullptr, part = nullptr;
    const std::string real = begin_an_endless_split(context, comm, part);
    meet(comm);
    NCCL_OK(ncclCommAbort(part));
    ncclResult_t state = ncclSuccess;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInProgress);
    NCCL_FAILS(ncclCommDestroy(comm), ncclInvalidArgument, "in progress");
    meet(comm);
    NCCL_OK(ncclCommAbort(comm));
    expect_parent_and_child_were_aborted(real);
  });
}

TEST(Background, ACommunicatorThatTheRealOneHasBegunIsAbortedThere) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const Comm comm(context);
    const ncclUniqueId id = another_id(context, comm);
    ncclConfig_t config = nonblocking_config();
    ncclComm_t unmade = nullptr;
    asked_of_real();
    hold_the_double();
    EXPECT_EQ(ncclCommInitRankConfig(&unmade, 2, id, context.rank, &config), ncclInProgress);
    const std::string begun = made_in(asked_of_real_until("(made)"));
    meet(comm);
    NCCL_OK(ncclCommAbort(unmade));
    EXPECT_THAT(asked_of_real(), ElementsAre("CommAbort " + begun));
  });
}

bool is_nothing_here(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  return ncclCommGetAsyncError(comm, &state) == ncclInvalidArgument &&
         ncclCommAbort(comm) == ncclInvalidArgument && asked_of_real().empty();
}

// They are its parent's, with the threads that make them and what the real one has of them.
TEST(Background, AForkedChildHasNoneOfTheCommunicators) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "AddressSanitizer's allocator stays locked in a child that is forked while a maker allocates";
#endif
  run_ranks(with_gpus(1), [](const RankContext& context) {
    const Comm comm(context);
    const ncclUniqueId id = another_id(context, comm);
    ncclConfig_t config = nonblocking_config();
    ncclComm_t unmade = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&unmade, 2, id, 0, &config), ncclInProgress);
    asked_of_real();
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      exit(is_nothing_here(comm) && is_nothing_here(unmade) ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    NCCL_OK(ncclCommAbort(unmade));
  });
}

std::string begun_at_exit;

// What is registered before the first nonblocking communicator is made runs after what the library does at the end.
TEST(Background, AtTheEndOfTheProgramWhatTheRealOneHasBegunIsAborted) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    const Comm comm(context);  // the double is there
    atexit([] {
      std::thread([] {  // whose objects of the thread live yet
        const auto asked = asked_of_real();
        if (std::ranges::find(asked, "CommAbort " + begun_at_exit) == asked.end()) _exit(3);
      })
          .join();
    });
    const ncclUniqueId id = another_id(context, comm);
    ncclConfig_t config = nonblocking_config();
    ncclComm_t unmade = nullptr;
    asked_of_real();
    hold_the_double();
    EXPECT_EQ(ncclCommInitRankConfig(&unmade, 1, id, 0, &config), ncclInProgress);
    begun_at_exit = made_in(asked_of_real_until("(made)"));
    exit(testing::Test::HasFailure() ? 1 : 0);
  });
}

// A config that leaves `blocking` open means blocking; without a config it is the parent's.
TEST(Background, AChildIsAsItsConfigSaysOrItsParentIs) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    ncclComm_t comm = nonblocking(context), with = nullptr, without = nullptr, grandchild = nullptr;
    ncclConfig_t config = initial_config();
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &with, &config), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(ncclCommSplit(with, 0, 0, &grandchild, nullptr), ncclSuccess);
    NCCL_OK(ncclCommDestroy(grandchild));
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &without, nullptr), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(ncclCommSplit(without, 0, 0, &grandchild, nullptr), ncclInProgress);
    EXPECT_EQ(settled(without), ncclSuccess);
    for (ncclComm_t one : {grandchild, without, with, comm}) NCCL_OK(ncclCommDestroy(one));
  });
}

// The other rank of the second never comes.
TEST(Background, AnAbortOfOneOfAGroupLeavesTheOthers) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    const std::array ids{another_id(context, comm), another_id(context, comm)};
    ncclConfig_t config = nonblocking_config();
    std::array<ncclComm_t, 2> comms{};
    asked_of_real();
    NCCL_OK(ncclGroupStart());
    for (size_t i = 0; i < (context.rank == 0 ? 2U : 1U); ++i)
      expect_begun(ncclCommInitRankConfig(&comms[i], 2, ids[i], context.rank, &config));
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    if (context.rank == 0) NCCL_OK(ncclCommAbort(comms[1]));
    meet(comm);  // rank 1 has its first one as well
    EXPECT_EQ(settled(comms[0]), ncclSuccess);
    expect_real(comms[0], made_in(asked_of_real()));
    NCCL_OK(ncclCommDestroy(comms[0]));
  });
}

}  // namespace
}  // namespace nccl_programs
