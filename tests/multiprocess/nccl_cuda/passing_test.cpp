// With CUDA pointers a call goes to the real NCCL, with host pointers it does not.
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "cuda_rank.hpp"

namespace nccl_programs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Passing, EveryRankHasARealCommunicatorOfOneIdBesideItsOwn) {
  run_ranks(with_gpus(3), [](const RankContext& context) {
    cuCtxSetCurrent(reinterpret_cast<void*>(0xd00 + context.rank));
    ncclComm_t comm = nullptr;
    NCCL_OK(ncclCommInitRank(&comm, 3, context.id, context.rank));
    const auto asked = asked_of_real();
    const std::string made = made_in(asked), rank = std::to_string(context.rank);
    std::vector<std::string> names;
    for (const std::string& line : asked) names.push_back(line.substr(0, line.find(' ')));
    if (context.rank == 0)
      EXPECT_THAT(names, ElementsAre("GetUniqueId", "CommInitRankConfig", "(made)"));
    else
      EXPECT_THAT(names, ElementsAre("CommInitRankConfig", "(made)"));
    EXPECT_THAT(asked[asked.size() - 2], HasSubstr(" 3 id-of-the-double " + rank + " "));
    EXPECT_EQ(asked.back(), "(made) " + made + " 0xd0" + rank);  // the caller's device
    EXPECT_NE(made, text_of(comm));
    NCCL_OK(ncclCommDestroy(comm));
    EXPECT_THAT(asked_of_real(), ElementsAre("CommDestroy " + made));
  });
}

TEST(Passing, EveryDataCallArrivesWithItsArguments) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    const std::string real = made_in(asked_of_real());
    const DeviceMemory in(1 << 16), out(1 << 16);
    void *const i = in.get(), *const o = out.get();
    cudaStream_t const stream = cuda_stream();
    NCCL_OK(ncclAllReduce(i, o, 10, ncclFloat32, ncclMax, comm, stream));
    NCCL_OK(ncclReduceScatter(i, o, 11, ncclFloat64, ncclAvg, comm, stream));
    NCCL_OK(ncclReduce(i, o, 12, ncclInt8, ncclProd, 1, comm, stream));
    NCCL_OK(ncclBroadcast(i, o, 13, ncclInt32, 1, comm, stream));
    NCCL_OK(ncclBcast(i, 14, ncclInt64, 1, comm, stream));
    NCCL_OK(ncclAllGather(i, o, 15, ncclBfloat16, comm, stream));
    NCCL_OK(ncclAlltoAll(i, o, 16, ncclFloat16, comm, stream));
    NCCL_OK(ncclGather(i, o, 17, ncclUint8, 1, comm, stream));
    NCCL_OK(ncclScatter(i, o, 18, ncclUint32, 1, comm, stream));
    NCCL_OK(ncclSend(i, 19, ncclFloat8e4m3, 1, comm, stream));
    NCCL_OK(ncclRecv(o, 20, ncclFloat8e5m2, 1, comm, stream));
    const std::string both = " " + text_of(i) + " " + text_of(o) + " ", tail = " " + real + " 0xabc0";
    EXPECT_THAT(
        asked_of_real(),
        ElementsAre("AllReduce" + both + "10 7 2" + tail, "ReduceScatter" + both + "11 8 4" + tail,
                    "Reduce" + both + "12 0 1 1" + tail, "Broadcast" + both + "13 2 1" + tail,
                    "Bcast " + text_of(i) + " 14 4 1" + tail,
                    "Broadcast " + text_of(i) + " " + text_of(i) + " 14 4 1" + tail,
                    "AllGather" + both + "15 9" + tail, "AlltoAll" + both + "16 6" + tail,
                    "Gather" + both + "17 1 1" + tail, "Scatter" + both + "18 3 1" + tail,
                    "Send " + text_of(i) + " 19 10 1" + tail, "Recv " + text_of(o) + " 20 11 1" + tail));
  });
}

TEST(Passing, HostMemoryStaysHere) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    asked_of_real();
    const std::array<int, 2> in{10 + context.rank, 20 + context.rank};
    std::array<int, 2> out{};
    NCCL_OK(ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, nullptr));
    EXPECT_EQ(out, (std::array<int, 2>{10 * (context.rank + 1), 10 * (context.rank + 1) + 1}));
    EXPECT_THAT(asked_of_real(), IsEmpty());
  });
}

TEST(Passing, PinnedMemoryGoesWithCudaS) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    asked_of_real();
    const DeviceMemory in(64), out(64, true);
    NCCL_OK(ncclAlltoAll(in.get(), out.get(), 1, ncclInt32, comm, cuda_stream()));
    EXPECT_EQ(asked_of_real().size(), 1U);
  });
}

TEST(Passing, OneCallWithBothKindsOfMemoryIsRefused) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    asked_of_real();
    const DeviceMemory in(64);
    int out = 0;
    NCCL_FAILS(ncclAllReduce(in.get(), &out, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidArgument,
               "ncclAllReduce: sendbuff " + text_of(in.get()) + " is CUDA memory, recvbuff " + text_of(&out) +
                   " is not");
    EXPECT_THAT(asked_of_real(), IsEmpty());
  });
}

// Where nothing moves, NULL on one rank may meet CUDA memory on another.
TEST(Passing, NothingToMoveGoesTheSameWayOnEveryRank) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    const std::string real = made_in(asked_of_real());
    NCCL_OK(ncclSend(nullptr, 0, ncclInt8, 1, comm, cuda_stream()));
    EXPECT_THAT(asked_of_real(), ElementsAre("Send 0 0 0 1 " + real + " 0xabc0"));
  });
}

// NCCL drops such collectives, whatever their pointers are.
TEST(Passing, EmptyCollectivesTakeAnyPointers) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    asked_of_real();
    const DeviceMemory memory(64);
    int ordinary = 0;
    void *const mine = context.rank == 0 ? memory.get() : nullptr, *const mixed = &ordinary;
    NCCL_OK(ncclAlltoAll(mine, mixed, 0, ncclInt32, comm, cuda_stream()));
    NCCL_OK(ncclAlltoAll(mine, mixed, 0, ncclInt32, comm, nullptr));
    NCCL_OK(ncclAllReduce(mixed, mine, 0, ncclInt32, ncclSum, comm, cuda_stream()));
    NCCL_OK(ncclAllGather(mixed, mixed, 0, ncclInt32, comm, cuda_stream()));
    EXPECT_EQ(asked_of_real().size(), 4U);
  });
}

// What this rank does not touch may be anything.
TEST(Passing, OnlyTheRootSBuffersCount) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    asked_of_real();
    const DeviceMemory mine(64);
    int ordinary = 0;
    const bool root = context.rank == 0;
    NCCL_OK(
        ncclReduce(mine.get(), root ? mine.get() : &ordinary, 1, ncclInt32, ncclSum, 0, comm, cuda_stream()));
    NCCL_OK(ncclGather(mine.get(), root ? mine.get() : &ordinary, 1, ncclInt32, 0, comm, cuda_stream()));
    NCCL_OK(ncclBroadcast(root ? mine.get() : &ordinary, mine.get(), 1, ncclInt32, 0, comm, cuda_stream()));
    NCCL_OK(ncclScatter(root ? mine.get() : &ordinary, mine.get(), 1, ncclInt32, 0, comm, cuda_stream()));
    EXPECT_EQ(asked_of_real().size(), 4U);
  });
}

TEST(Passing, AGroupIsOpenedThereWithItsFirstCall) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    const std::string real = made_in(asked_of_real());
    const DeviceMemory memory(64);
    const int peer = 1 - context.rank, sent = 7 + context.rank;
    int received = 0;
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(&sent, 1, ncclInt32, peer, comm, nullptr));
    NCCL_OK(ncclRecv(&received, 1, ncclInt32, peer, comm, nullptr));
    NCCL_OK(ncclGroupStart());
    EXPECT_THAT(asked_of_real(), IsEmpty());
    NCCL_OK(ncclSend(memory.get(), 1, ncclInt32, peer, comm, cuda_stream()));
    NCCL_OK(ncclGroupEnd());
    NCCL_OK(ncclRecv(memory.get(), 1, ncclInt32, peer, comm, cuda_stream()));
    NCCL_OK(ncclGroupEnd());
    const std::string tail =
        " " + text_of(memory.get()) + " 1 2 " + std::to_string(peer) + " " + real + " 0xabc0";
    EXPECT_THAT(asked_of_real(), ElementsAre("GroupStart", "Send" + tail, "Recv" + tail, "GroupEnd"));
    EXPECT_EQ(received, 7 + peer);
  });
}

TEST(Passing, AGroupOfWhichACallIsWrongIsSpoiledInBoth) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    asked_of_real();
    const DeviceMemory memory(64);
    int received = 0;
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(memory.get(), 1, ncclInt32, 0, comm, cuda_stream()));
    NCCL_OK(ncclRecv(&received, 1, ncclInt32, 0, comm, nullptr));
    NCCL_FAILS(ncclAlltoAll(memory.get(), &received, 1, ncclInt32, comm, nullptr), ncclInvalidArgument,
               "both must be of one kind");
    NCCL_FAILS(ncclGroupEnd(), ncclInvalidArgument, "a call of this group was refused: ncclAlltoAll");
    // NCCL drops a group that holds a call on no communicator.
    EXPECT_THAT(asked_of_real(),
                ElementsAre("GroupStart", HasSubstr("Send 0x"), "Send 0 0 0 0 0 0", "GroupEnd"));
  });
}

TEST(Passing, AThreadThatEndsWithItsGroupOpenSaysHowManyCallsWereDropped) {
  const std::string log = testing::TempDir() + "unended_passing_group." + std::to_string(getpid()) + ".";
  Job job = with_gpus(2);
  job.environment.emplace_back("EPCCL_DEBUG", "WARN");
  job.environment.emplace_back("EPCCL_DEBUG_FILE", log + "%p");
  run_ranks(job, [&](const RankContext& context) {
    Comm comm(context);
    const DeviceMemory memory(64);
    std::thread([&] {
      const int peer = 1 - context.rank;
      NCCL_OK(ncclGroupStart());
      NCCL_OK(ncclSend(memory.get(), 1, ncclInt32, peer, comm, cuda_stream()));
      NCCL_OK(ncclRecv(memory.get(), 1, ncclInt32, peer, comm, cuda_stream()));
    }).join();
    const std::string own_log = log + std::to_string(getpid());
    std::ifstream file(own_log);
    const std::string said{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(said, HasSubstr("2 calls that were passed on to the real NCCL were never issued"));
    std::filesystem::remove(own_log);
  });
}

TEST(Passing, AFailureThereIsToldInItsOwnWords) {
  Job job = with_gpus(2);
  job.environment.emplace_back("FAKE_NCCL_FAILS", "ncclAllReduce");
  run_ranks(job, [](const RankContext& context) {
    Comm comm(context);
    const DeviceMemory memory(64);
    NCCL_FAILS(ncclAllReduce(memory.get(), memory.get(), 1, ncclInt32, ncclSum, comm, nullptr),
               ncclSystemError, "the double's last error");
  });
}

TEST(Passing, MemoryRegistrationsAndWindows) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    const std::string real = made_in(asked_of_real());
    void *memory = nullptr, *handle = nullptr, *host_handle = nullptr;
    ncclWindow_t window = nullptr;
    NCCL_OK(ncclMemAlloc(&memory, 4096));
    const std::string text = text_of(memory);
    NCCL_OK(ncclCommRegister(comm, memory, 4096, &handle));
    NCCL_OK(ncclCommDeregister(comm, handle));
    NCCL_OK(ncclCommWindowRegister(comm, memory, 4096, &window, 1));
    NCCL_OK(ncclCommWindowDeregister(comm, window));
    NCCL_OK(ncclMemFree(memory));
    const auto asked = asked_of_real();
    ASSERT_EQ(asked.size(), 6U);
    EXPECT_THAT(asked[0], testing::StartsWith("MemAlloc "));
    EXPECT_THAT(asked[1], testing::StartsWith("CommRegister " + real + " " + text + " 4096 "));
    EXPECT_EQ(asked[2], "CommDeregister " + real + " " + text);
    EXPECT_THAT(asked[3], testing::StartsWith("CommWindowRegister " + real + " " + text + " 4096 "));
    EXPECT_EQ(asked[4], "CommWindowDeregister " + real + " " + text);
    EXPECT_EQ(asked[5], "MemFree " + text);
    int ordinary = 0;
    NCCL_OK(ncclCommRegister(comm, &ordinary, sizeof ordinary, &host_handle));
    NCCL_OK(ncclCommDeregister(comm, host_handle));
    EXPECT_THAT(asked_of_real(), IsEmpty());
  });
}

TEST(Passing, TheInterfaceForDeviceCode) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    const std::string real = made_in(asked_of_real());
    auto* const requirements = reinterpret_cast<const ncclDevCommRequirements_t*>(0x10);
    auto* const out = reinterpret_cast<ncclDevComm_t*>(0x20);
    NCCL_OK(ncclDevCommCreate(comm, requirements, out));
    NCCL_OK(ncclDevCommDestroy(comm, out));
    EXPECT_THAT(asked_of_real(),
                ElementsAre("DevCommCreate " + real + " 0x10 0x20", "DevCommDestroy " + real + " 0x20"));
    const ncclTeam_t inner = ncclTeamLsa(comm), rail = ncclTeamRail(comm);
    EXPECT_EQ(inner.nRanks, 2);
    EXPECT_EQ(inner.rank, context.rank);
    EXPECT_EQ(rail.nRanks, 1);
    EXPECT_EQ(rail.stride, 2);
    EXPECT_EQ(ncclTeamRankToLsa(comm, ncclTeamWorld(comm), 1), 1);
  });
}

// One thread that drives two ranks with a GPU each.
TEST(Passing, OneThreadMakesSeveralCommunicatorsInAGroup) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    std::array<ncclComm_t, 2> comms{};
    NCCL_OK(ncclGroupStart());
    for (int rank = 0; rank < 2; ++rank) {
      cuCtxSetCurrent(reinterpret_cast<void*>(0xc0 + rank));
      NCCL_OK(ncclCommInitRank(&comms[static_cast<size_t>(rank)], 2, context.id, rank));
    }
    NCCL_OK(ncclGroupEnd());
    const auto asked = asked_of_real();
    EXPECT_EQ(std::ranges::count_if(asked, [](const auto& line) { return line.starts_with("(made)"); }), 2);
    EXPECT_THAT(asked, testing::Contains(testing::EndsWith(" 0xc0")));
    EXPECT_THAT(asked, testing::Contains(testing::EndsWith(" 0xc1")));
    void* context_after = nullptr;
    cuCtxGetCurrent(&context_after);
    EXPECT_EQ(context_after, reinterpret_cast<void*>(0xc1));
    for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
  });
}

// cudaGetDevice says 0 where no context is current: not the device of another communicator of the group.
TEST(Passing, ACommunicatorMadeWithoutAContextHasNoOthers) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    std::array<ncclComm_t, 2> comms{};
    NCCL_OK(ncclGroupStart());
    cuCtxSetCurrent(nullptr);
    NCCL_OK(ncclCommInitRank(&comms[0], 2, context.id, 0));
    cuCtxSetCurrent(reinterpret_cast<void*>(0xc1));
    NCCL_OK(ncclCommInitRank(&comms[1], 2, context.id, 1));
    NCCL_OK(ncclGroupEnd());
    const auto asked = asked_of_real();
    EXPECT_THAT(asked,
                testing::Contains(testing::AllOf(testing::StartsWith("(made)"), testing::EndsWith(" 0"))));
    EXPECT_THAT(asked,
                testing::Contains(testing::AllOf(testing::StartsWith("(made)"), testing::EndsWith(" 0xc1"))));
    for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
  });
}

TEST(Passing, SplitAndShrinkFollowTheRealOnes) {
  run_ranks(with_gpus(3), [](const RankContext& context) {
    Comm comm(context);
    const std::string real = made_in(asked_of_real());
    // Rank 2 is in none, but NCCL's split is everybody's call.
    ncclComm_t part = nullptr;
    NCCL_OK(ncclCommSplit(comm, context.rank == 2 ? NCCL_SPLIT_NOCOLOR : 7, context.rank, &part, nullptr));
    auto asked = asked_of_real();
    ASSERT_FALSE(asked.empty());
    const std::string color = context.rank == 2 ? "-1" : "7";
    EXPECT_THAT(asked[0], testing::StartsWith("CommSplit " + real + " " + color + " " +
                                              std::to_string(context.rank) + " "));
    EXPECT_EQ(part == nullptr, context.rank == 2);
    if (context.rank == 2) return;
    const std::string its = made_in(asked);
    const DeviceMemory memory(64);
    NCCL_OK(ncclAllGather(memory.get(), memory.get(), 1, ncclInt8, part, nullptr));
    EXPECT_THAT(asked_of_real(), ElementsAre(testing::EndsWith(" " + its + " 0")));
    int excluded = 1;
    ncclComm_t alone = nullptr;
    if (context.rank == 0) {
      NCCL_OK(ncclCommShrink(part, &excluded, 1, &alone, nullptr, NCCL_SHRINK_DEFAULT));
      asked = asked_of_real();
      EXPECT_THAT(asked[0], testing::StartsWith("CommShrink " + its + " "));
      NCCL_OK(ncclCommDestroy(alone));
      EXPECT_THAT(asked_of_real(), ElementsAre("CommDestroy " + made_in(asked)));
    }
    // An abort before rank 0 has shrunk the communicator, or rank 1 has heard that all have made it, would fail that.
    context.meeting->come(2);
    NCCL_OK(ncclCommAbort(part));
    EXPECT_THAT(asked_of_real(), ElementsAre("CommAbort " + its));
  });
}

TEST(Passing, AnInitAllIsOneThere) {
  run_ranks(with_gpus(1), [](const RankContext&) {
    std::array<ncclComm_t, 3> comms{};
    const std::array<int, 3> devices{0, 2, 1};
    NCCL_OK(ncclCommInitAll(comms.data(), 3, devices.data()));
    EXPECT_THAT(asked_of_real(), ElementsAre(testing::EndsWith(" 3 " + text_of(devices.data()))));
    int device = -1;
    NCCL_OK(ncclCommCuDevice(comms[1], &device));
    EXPECT_EQ(device, 5);  // as the double says
    for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
  });
}

TEST(Passing, ANonblockingCommunicatorIsMadeInTheBackground) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    ncclConfig_t config = initial_config();
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, context.id, context.rank, &config), ncclInProgress);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) NCCL_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    const std::string real = made_in(asked_of_real());
    const DeviceMemory memory(64);
    NCCL_OK(ncclAllGather(memory.get(), memory.get(), 1, ncclInt8, comm, nullptr));
    EXPECT_THAT(asked_of_real(), testing::Contains(testing::EndsWith(" " + real + " 0")));
    const std::array<int, 2> in{};
    std::array<int, 2> out{};
    // Afterwards all are ready; who is through may be so quick to revoke that it fails for another.
    (void)ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, nullptr);
    const ncclResult_t revoked = ncclCommRevoke(comm, 0);
    EXPECT_TRUE(revoked == ncclInProgress || revoked == ncclSuccess) << revoked;
    NCCL_OK(ncclCommAbort(comm));
    EXPECT_THAT(asked_of_real(), testing::Contains("CommRevoke " + real + " 0"));
  });
}

// A rank that never comes must not keep another from giving up.
TEST(Passing, ANonblockingCommunicatorInTheMakingCanBeAborted) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    ncclConfig_t config = initial_config();
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, context.id, 0, &config), ncclInProgress);
    const DeviceMemory memory(64);
    NCCL_FAILS(ncclAllGather(memory.get(), memory.get(), 1, ncclInt8, comm, nullptr), ncclInvalidArgument,
               "still being made");
    NCCL_OK(ncclCommAbort(comm));
  });
}

// Rank 1 never splits, and the time-out is that of a test that hangs.
TEST(Passing, ASplitsNewCommunicatorIsAbortedWithoutWaitingForTheParent) {
  auto job = with_gpus(2);
  job.environment.emplace_back("EPCCL_TIMEOUT", "1000");
  run_ranks(job, [](const RankContext& context) {
    ncclConfig_t config = initial_config();
    config.blocking = 0;
    ncclComm_t comm = nullptr, part = nullptr;
    ncclResult_t state = ncclCommInitRankConfig(&comm, 2, context.id, context.rank, &config);
    while (state == ncclInProgress) NCCL_OK(ncclCommGetAsyncError(comm, &state));
    const std::array<int, 2> in{};
    std::array<int, 2> out{};
    // Afterwards both are ready; rank 0 may be so quick that it fails for rank 1.
    const ncclResult_t ready = ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, nullptr);
    EXPECT_TRUE(ready == ncclSuccess || context.rank == 1) << ready;
    if (context.rank == 1) {
      while (state == ncclSuccess) NCCL_OK(ncclCommGetAsyncError(comm, &state));
    } else {
      EXPECT_EQ(ncclCommSplit(comm, 0, 0, &part, nullptr), ncclInProgress);
      NCCL_OK(ncclCommAbort(part));
      EXPECT_THAT(asked_of_real(), testing::Not(testing::Contains(testing::HasSubstr("Split"))));
    }
    NCCL_OK(ncclCommAbort(comm));
  });
}

TEST(Passing, FinalizeIsForBoth) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    const std::string real = made_in(asked_of_real());
    NCCL_OK(ncclCommFinalize(comm));
    EXPECT_THAT(asked_of_real(), ElementsAre("CommFinalize " + real));
  });
}

TEST(Passing, ScalableInitIsAnInitOfOneIdThere) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    ncclUniqueId id = context.id;
    ncclComm_t comm = nullptr;
    NCCL_OK(ncclCommInitRankScalable(&comm, 2, context.rank, 1, &id, nullptr));
    EXPECT_THAT(asked_of_real(), testing::Contains(HasSubstr("id-of-the-double")));
    NCCL_OK(ncclCommDestroy(comm));
  });
}

TEST(Passing, TheTimeOfAGroupIsThatOfTheSlower) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    asked_of_real();
    const DeviceMemory memory(64);
    const std::array<int, 2> in{};
    std::array<int, 2> out{7, 7};
    ncclSimInfo_t info{sizeof(ncclSimInfo_t), nccl_sim_info_magic, nccl_version, nccl_undefined_float};
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, nullptr));
    NCCL_OK(ncclAllReduce(memory.get(), memory.get(), 1, ncclFloat32, ncclSum, comm, cuda_stream()));
    NCCL_OK(ncclGroupSimulateEnd(&info));
    EXPECT_EQ(info.estimatedTime, 1e6F);  // the double's
    EXPECT_EQ(out, (std::array<int, 2>{7, 7}));
    EXPECT_THAT(asked_of_real(),
                ElementsAre("GroupStart", HasSubstr("AllReduce"), testing::StartsWith("GroupSimulateEnd ")));
  });
}

extern "C" void ncclResetDebugInitInternal();

TEST(Passing, DebugSettingsAreReadAgainThere) {
  run_ranks(with_gpus(1), [](const RankContext& context) {
    Comm comm(context);
    asked_of_real();
    ncclResetDebugInit();
    ncclResetDebugInitInternal();
    EXPECT_THAT(asked_of_real(), ElementsAre("ResetDebugInit", "ResetDebugInit"));
  });
}

}  // namespace
}  // namespace nccl_programs
