// Groups whose calls are EPCCL's and the real NCCL's: how they fail, and how communicators end in them.
#include <array>
#include <string>
#include <vector>

#include "cuda_rank.hpp"

namespace nccl_programs {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

ncclResult_t passed_on(const DeviceMemory& memory, ncclComm_t comm) {
  return ncclAllReduce(memory.get(), memory.get(), 1, ncclInt32, ncclSum, comm, cuda_stream());
}

// NVIDIA's library may wait in the one abort for what runs on the other communicator.
TEST(MixedGroups, EndTheirCommunicatorsInOneGroupThere) {
  run_ranks(with_gpus(1), [](const RankContext&) {
    for (const bool abort : {true, false}) {
      std::array<ncclComm_t, 2> comms{};
      NCCL_OK(ncclCommInitAll(comms.data(), 2, nullptr));
      asked_of_real();
      NCCL_OK(ncclGroupStart());
      for (ncclComm_t comm : comms) NCCL_OK(abort ? ncclCommAbort(comm) : ncclCommDestroy(comm));
      NCCL_OK(ncclGroupEnd());
      const auto ended = StartsWith(abort ? "CommAbort " : "CommDestroy ");
      EXPECT_THAT(asked_of_real(), ElementsAre("GroupStart", ended, ended, "GroupEnd"));
    }
  });
}

TEST(MixedGroups, EndTheirCommunicatorsAlsoWhereACallIsWrong) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    Comm comm(context);
    ncclComm_t other = nullptr;
    NCCL_OK(ncclCommSplit(comm, 0, 0, &other, nullptr));
    const std::string real = made_in(asked_of_real());
    const DeviceMemory memory(64);
    int number = 0;
    NCCL_OK(ncclGroupStart());
    NCCL_OK(passed_on(memory, comm));
    NCCL_OK(ncclCommAbort(other));
    NCCL_FAILS(ncclSend(&number, 1, ncclInt32, 9, comm, nullptr), ncclInvalidArgument, "peer 9");
    NCCL_FAILS(ncclGroupEnd(), ncclInvalidArgument, "peer 9");
    EXPECT_THAT(asked_of_real(), ElementsAre("GroupStart", StartsWith("AllReduce"), StartsWith("Send 0"),
                                             "GroupEnd", "GroupStart", "CommAbort " + real, "GroupEnd"));
  });
}

// Each library's group has to be told that a call of the other's was wrong. What is said of it is not that.
TEST(MixedGroups, TellWhichCallWasWrong) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    Comm comm(context);
    const DeviceMemory memory(64);
    int number = 0;
    NCCL_OK(ncclGroupStart());
    NCCL_OK(passed_on(memory, comm));
    NCCL_FAILS(ncclSend(&number, 1, ncclInt32, 9, comm, nullptr), ncclInvalidArgument, "peer 9");
    NCCL_FAILS(ncclGroupEnd(), ncclInvalidArgument, "a call of this group was refused: peer 9");
    NCCL_OK(ncclGroupStart());
    setenv("FAKE_NCCL_FAILS", "ncclAllReduce", 1);
    NCCL_FAILS(passed_on(memory, comm), ncclSystemError, "the double's last error");
    EXPECT_EQ(ncclSend(&number, 1, ncclInt32, 9, comm, nullptr), ncclInvalidArgument);
    NCCL_FAILS(ncclGroupEnd(), ncclSystemError, "a call of this group was refused: the double's last error");
  });
}

TEST(MixedGroups, FailThoughTheRealOneGoesOnInTheBackground) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    ncclConfig_t config = nonblocking_config();
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, context.id, 0, &config), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    const DeviceMemory memory(64);
    std::array<int, 2> in{}, out{};
    NCCL_OK(ncclGroupStart());
    NCCL_OK(passed_on(memory, comm));
    NCCL_OK(ncclSend(in.data(), 2, ncclInt32, 0, comm, nullptr));
    NCCL_OK(ncclRecv(out.data(), 1, ncclInt32, 0, comm, nullptr));
    NCCL_FAILS(ncclGroupEnd(), ncclInvalidUsage, "rank 0");
    NCCL_OK(ncclCommAbort(comm));
  });
}

TEST(MixedGroups, FinalizeAtTheirEndAndOnlyIfNoCallWasWrong) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    Comm comm(context);
    const std::string real = made_in(asked_of_real());
    int number = 0;
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommFinalize(comm));
    EXPECT_EQ(ncclSend(&number, 1, ncclInt32, 9, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_THAT(asked_of_real(), IsEmpty());
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommFinalize(comm));
    EXPECT_THAT(asked_of_real(), IsEmpty());
    NCCL_OK(ncclGroupEnd());
    EXPECT_THAT(asked_of_real(), ElementsAre("GroupStart", "CommFinalize " + real, "GroupEnd"));
  });
}

// Whatever call it is: the group then does nothing, in either library.
TEST(MixedGroups, DoNothingIfAnEndOrAnInitAllWasWrong) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    Comm comm(context);
    auto* const stray = reinterpret_cast<ncclComm_t>(0x77);
    const DeviceMemory memory(64);
    const auto wrong = [&](int which) {
      return which == 0   ? ncclCommFinalize(stray)
             : which == 1 ? ncclCommAbort(stray)
                          : ncclCommInitAll(nullptr, 1, nullptr);
    };
    for (int which = 0; which < 3; ++which) {
      asked_of_real();
      NCCL_OK(ncclGroupStart());
      NCCL_OK(passed_on(memory, comm));
      EXPECT_EQ(wrong(which), ncclInvalidArgument);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
      EXPECT_THAT(asked_of_real(), Contains(StartsWith("Send 0"))) << which;
    }
  });
}

TEST(MixedGroups, MakeTheCommunicatorsOfAnInitAllAtTheirEnd) {
  run_ranks(with_gpus(1), [](const RankContext&) {
    std::array<ncclComm_t, 2> comms{};
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommInitAll(comms.data(), 2, nullptr));
    NCCL_OK(ncclGroupEnd());
    const DeviceMemory memory(64);
    for (ncclComm_t comm : comms) {
      NCCL_OK(passed_on(memory, comm));
      NCCL_OK(ncclCommDestroy(comm));
    }
  });
}

TEST(MixedGroups, AreClosedThoughTheirTimeCannotBeTold) {
  Job old = with_gpus(1);
  old.environment = {{"EPCCL_NCCL_LIB", FAKE_NCCL_OLD}};
  ncclSimInfo_t good{sizeof(ncclSimInfo_t), nccl_sim_info_magic, nccl_version, nccl_undefined_float},
      bad = good;
  bad.magic = 3;
  const auto simulate = [](const RankContext& context, ncclSimInfo_t info, ncclResult_t code,
                           const char* text) {
    Comm comm(context);
    const DeviceMemory memory(64);
    asked_of_real();
    NCCL_OK(ncclGroupStart());
    NCCL_OK(passed_on(memory, comm));
    NCCL_FAILS(ncclGroupSimulateEnd(&info), code, text);
    NCCL_FAILS(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    // The real library's, too: what comes now is in no group.
    NCCL_OK(passed_on(memory, comm));
    EXPECT_THAT(asked_of_real(), ElementsAre("GroupStart", StartsWith("AllReduce"), StartsWith("Send 0"),
                                             HasSubstr("End"), StartsWith("AllReduce")));
  };
  run_ranks(with_gpus(1), [&](const RankContext& context) {
    simulate(context, bad, ncclInvalidArgument, "simInfo.magic is 0x3");
  });
  run_ranks(old, [&](const RankContext& context) {
    simulate(context, good, ncclInvalidUsage, "does not have it");
  });
}

std::array<ncclUniqueId, 2> two_ids(const RankContext& context, ncclComm_t comm) {
  std::array<ncclUniqueId, 2> ids{};
  if (context.rank == 0)
    for (ncclUniqueId& id : ids) NCCL_OK(ncclGetUniqueId(&id));
  NCCL_OK(ncclBroadcast(ids.data(), ids.data(), sizeof ids, ncclUint8, 0, comm, nullptr));
  return ids;
}

// A rank that makes its communicators one by one waits for each until it is whole.
TEST(MixedGroups, MakeCommunicatorsThatOtherRanksMakeOneByOne) {
  Job job = with_gpus(3);
  job.environment.emplace_back("EPCCL_NCCL_TIMEOUT", "20");
  run_ranks(job, [](const RankContext& context) {
    const Comm comm(context);
    const auto ids = two_ids(context, comm);
    const bool grouped = context.rank == 1;
    std::array<ncclComm_t, 2> comms{}, parts{};
    if (grouped) NCCL_OK(ncclGroupStart());
    for (const size_t i : {1U, 0U}) NCCL_OK(ncclCommInitRank(&comms[i], context.ranks, ids[i], context.rank));
    if (grouped) NCCL_OK(ncclGroupEnd());
    if (grouped) NCCL_OK(ncclGroupStart());
    for (const size_t i : {0U, 1U}) NCCL_OK(ncclCommSplit(comms[i], 0, context.rank, &parts[i], nullptr));
    if (grouped) NCCL_OK(ncclGroupEnd());
    const DeviceMemory memory(64);
    for (ncclComm_t one : {parts[0], parts[1], comms[0], comms[1]}) {
      NCCL_OK(passed_on(memory, one));
      NCCL_OK(ncclCommDestroy(one));
    }
  });
}

// ncclGetLastError() tells of failures; that EPCCL was asked first whose a handle is was none.
// NVIDIA's split waits for all ranks of the parent: for those too that get no communicator.
TEST(MixedGroups, SplitOffRanksThatGetNoCommunicator) {
  run_ranks(with_gpus(1), [](const RankContext&) {
    std::array<ncclComm_t, 2> comms{}, parts{};
    NCCL_OK(ncclCommInitAll(comms.data(), 2, nullptr));
    setenv("FAKE_NCCL_SPLITS_MEET", "1", 1);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommSplit(comms[0], 0, 0, &parts[0], nullptr));
    NCCL_OK(ncclCommSplit(comms[1], NCCL_SPLIT_NOCOLOR, 0, &parts[1], nullptr));
    NCCL_OK(ncclGroupEnd());
    EXPECT_NE(parts[0], nullptr);
    EXPECT_EQ(parts[1], nullptr);
    for (ncclComm_t each : {parts[0], comms[0], comms[1]}) NCCL_OK(ncclCommDestroy(each));
  });
}

// A program that pushes contexts finds the same ones afterwards.
TEST(MixedGroups, LeaveAllContextsWhereTheyWere) {
  run_ranks(with_gpus(1), [](const RankContext&) {
    void *const below = reinterpret_cast<void*>(0xa1), *const top = reinterpret_cast<void*>(0xa2);
    cuCtxSetCurrent(below);
    cuCtxPushCurrent_v2(top);
    std::array<ncclComm_t, 2> comms{};
    NCCL_OK(ncclCommInitAll(comms.data(), 2, nullptr));
    void* context = nullptr;
    EXPECT_EQ(cuCtxPopCurrent_v2(&context), 0);
    EXPECT_EQ(context, top);
    EXPECT_EQ(cuCtxPopCurrent_v2(&context), 0);
    EXPECT_EQ(context, below);
    for (ncclComm_t each : comms) NCCL_OK(ncclCommDestroy(each));
  });
}

TEST(LastError, StaysThroughCallsThatSucceed) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    Comm comm(context);
    int number = 0;
    void *memory = nullptr, *handle = nullptr;
    NCCL_OK(ncclMemAlloc(&memory, 64));
    NCCL_OK(ncclCommRegister(comm, memory, 64, &handle));
    NCCL_FAILS(ncclSend(&number, 1, ncclInt32, 9, comm, nullptr), ncclInvalidArgument, "peer 9");
    NCCL_OK(ncclSend(nullptr, 0, ncclInt8, 0, comm, cuda_stream()));
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("peer 9"));
    NCCL_OK(ncclCommDeregister(comm, handle));
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("peer 9"));
    NCCL_OK(ncclMemFree(memory));
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("peer 9"));
  });
}

}  // namespace
}  // namespace nccl_programs
