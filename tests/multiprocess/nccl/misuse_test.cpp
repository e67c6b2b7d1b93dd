// What NCCL programs are told when a call is wrong: NCCL's codes, and texts that name argument and value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace nccl_programs {
namespace {

/// A communicator of one rank.
class Misuse : public testing::Test {
 protected:
  void SetUp() override {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_EQ(ncclCommInitRank(&comm_, 1, id, 0), ncclSuccess) << ncclGetLastError(nullptr);
  }
  void TearDown() override {
    if (comm_ != nullptr) NCCL_OK(ncclCommDestroy(comm_));
  }

  ncclComm_t comm_ = nullptr;
  std::array<int, 4> in_{1, 2, 3, 4}, out_{};
};

TEST(Program, ReadsTheVersionItWasBuiltFor) {
  int version = 0;
  NCCL_OK(ncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  NCCL_FAILS(ncclGetVersion(nullptr), ncclInvalidArgument, "version is NULL");
  NCCL_FAILS(ncclGetUniqueId(nullptr), ncclInvalidArgument, "uniqueId is NULL");
  EXPECT_STREQ(ncclGetErrorString(ncclInvalidArgument),
               "invalid argument (run with NCCL_DEBUG=WARN for details)");
}

TEST(Program, HasAsManyIdsAsItAsksFor) {
  std::array<ncclUniqueId, 3> ids{};
  for (ncclUniqueId& id : ids) NCCL_OK(ncclGetUniqueId(&id));
  std::array<ncclComm_t, 3> comms{};
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t other = 0; other < i; ++other) EXPECT_NE(std::memcmp(&ids[i], &ids[other], sizeof ids[i]), 0);
    NCCL_OK(ncclCommInitRank(&comms[i], 1, ids[i], 0));
  }
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
}

TEST(Program, JoinsWithWrongArguments) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  NCCL_OK(ncclGetUniqueId(&id));
  NCCL_FAILS(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument, "comm is NULL");
  NCCL_FAILS(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "nranks 0");
  NCCL_FAILS(ncclCommInitRank(&comm, 2, id, 5), ncclInvalidArgument, "rank 5 is not in 0..1");
  ncclUniqueId zeros;
  std::memset(&zeros, 0, sizeof zeros);
  NCCL_FAILS(ncclCommInitRank(&comm, 1, zeros, 0), ncclInvalidArgument, "not a unique id");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 17;
  NCCL_FAILS(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "config.magic is 0x11");
  config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 7;
  NCCL_FAILS(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "config.blocking is 7");
  EXPECT_EQ(comm, nullptr);
}

// The ids are at the end of their page: who reads one more is killed.
TEST(Program, JoinsWithWrongNumbersOfIds) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(pages) + page, page, PROT_NONE), 0);
  auto* const ids = reinterpret_cast<ncclUniqueId*>(static_cast<char*>(pages) + page) - 2;
  for (int i = 0; i < 2; ++i) NCCL_OK(ncclGetUniqueId(ids + i));
  ncclComm_t comm = nullptr;
  for (const int count : {3, 1 << 30, 0, -1})
    NCCL_FAILS(ncclCommInitRankScalable(&comm, 2, 0, count, ids, nullptr), ncclInvalidArgument,
               "nId " + std::to_string(count) + " is not in 1..nranks (2)");
  NCCL_FAILS(ncclCommInitRankScalable(&comm, 0, 0, 1, ids, nullptr), ncclInvalidArgument,
             "nId 1 is not in 1..nranks (0)");
  NCCL_FAILS(ncclCommInitRankScalable(&comm, 2, 0, 2, nullptr, nullptr), ncclInvalidArgument,
             "commIds is NULL");
  EXPECT_EQ(comm, nullptr);
  munmap(pages, 2 * page);
}

TEST(Program, JoinsWithTheConfigOfAnOlderHeader) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  NCCL_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, cgaClusterSize);
  config.version = NCCL_VERSION(2, 14, 3);
  config.splitShare = 1234;  // behind the end of that header's struct
  NCCL_OK(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  NCCL_OK(ncclCommDestroy(comm));
}

TEST_F(Misuse, ACallNamesArgumentAndValue) {
  NCCL_FAILS(ncclAlltoAll(in_.data(), nullptr, 4, ncclInt, comm_, nullptr), ncclInvalidArgument,
             "recvbuff is NULL");
  NCCL_FAILS(ncclAlltoAll(in_.data(), out_.data(), 4, static_cast<ncclDataType_t>(99), comm_, nullptr),
             ncclInvalidArgument, "datatype 99");
  NCCL_FAILS(ncclSend(in_.data(), 4, ncclInt, 3, comm_, nullptr), ncclInvalidArgument, "peer 3");
  NCCL_FAILS(ncclAlltoAll(in_.data(), out_.data(), SIZE_MAX / 2, ncclInt, comm_, nullptr),
             ncclInvalidArgument, "overflows");
}

TEST_F(Misuse, TextsHaveNcclSNames) {
  int excluded = 0;
  ncclComm_t rest = nullptr;
  NCCL_FAILS(ncclCommShrink(comm_, &excluded, 1, &rest, nullptr, 77), ncclInvalidArgument,
             "shrinkFlags 77 is neither NCCL_SHRINK_DEFAULT nor NCCL_SHRINK_ABORT");
  NCCL_FAILS(ncclCommSplit(comm_, -7, 0, &rest, nullptr), ncclInvalidArgument, "nor NCCL_SPLIT_NOCOLOR (-1)");
  NCCL_OK(ncclGroupStart());
  NCCL_FAILS(ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT), ncclInvalidUsage,
             "ncclCommRevoke cannot be part of a group");
  NCCL_OK(ncclGroupEnd());
  ncclWindow_t window = nullptr;
  NCCL_FAILS(ncclCommWindowRegister(comm_, in_.data(), sizeof in_, &window, 7), ncclInvalidArgument,
             "winFlags 7 is neither NCCL_WIN_DEFAULT nor NCCL_WIN_COLL_SYMMETRIC");
  NCCL_FAILS(ncclMemFree(in_.data()), ncclInvalidArgument, "was not returned by ncclMemAlloc");
}

TEST(Program, IsToldByNcclSNameWhereSettingsOfRanksDiffer) {
  run_ranks({As::threads, 2}, [](const RankContext& context) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = context.rank == 1 ? NCCL_CTA_POLICY_ZERO : NCCL_CTA_POLICY_DEFAULT;
    ncclComm_t comm = nullptr;
    NCCL_FAILS(ncclCommInitRankConfig(&comm, 2, context.id, context.rank, &config), ncclInvalidUsage,
               "settings differ (environment, file or ncclConfig_t): EPCCL_COPY_ENGINE is auto on rank 0, "
               "always on rank 1");
  });
}

TEST_F(Misuse, AStreamThatIsNotOneIsNamed) {
  auto* const stray = reinterpret_cast<cudaStream_t>(0x5678);
  NCCL_FAILS(ncclAlltoAll(in_.data(), out_.data(), 4, ncclInt, comm_, stray), ncclInvalidArgument,
             "0x5678 is not a stream");
}

TEST_F(Misuse, CudaSHandlesForTheDefaultStreamAreTheDefaultStream) {
  for (const auto stream : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
    out_ = {};
    NCCL_OK(ncclAlltoAll(in_.data(), out_.data(), 4, ncclInt, comm_, stream));
    EXPECT_EQ(out_, in_);
  }
}

TEST_F(Misuse, AGroupOfWhichACallIsWrongDoesNothing) {
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclSend(in_.data(), 4, ncclInt, 0, comm_, nullptr));
  NCCL_OK(ncclRecv(out_.data(), 4, ncclInt, 0, comm_, nullptr));
  NCCL_FAILS(ncclSend(in_.data(), 4, ncclInt, 9, comm_, nullptr), ncclInvalidArgument, "peer 9");
  NCCL_FAILS(ncclGroupEnd(), ncclInvalidArgument, "peer 9");
  EXPECT_EQ(out_, (std::array<int, 4>{}));
  NCCL_FAILS(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
}

TEST_F(Misuse, ACommunicatorWithCallsInTheOpenGroupIsNotDestroyed) {
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclSend(in_.data(), 4, ncclInt, 0, comm_, nullptr));
  NCCL_OK(ncclRecv(out_.data(), 4, ncclInt, 0, comm_, nullptr));
  NCCL_FAILS(ncclCommDestroy(comm_), ncclInvalidUsage, "has 2 calls in this thread's open group");
  NCCL_OK(ncclGroupEnd());
  EXPECT_EQ(out_, in_);
}

TEST_F(Misuse, ACommunicatorThatIsAbortedTakesItsCallsOutOfTheOpenGroup) {
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclSend(in_.data(), 4, ncclInt, 0, comm_, nullptr));
  NCCL_OK(ncclRecv(out_.data(), 4, ncclInt, 0, comm_, nullptr));
  NCCL_OK(ncclCommAbort(std::exchange(comm_, nullptr)));
  NCCL_FAILS(ncclGroupEnd(), ncclInvalidUsage, "was aborted that has 2 calls in this group");
  EXPECT_EQ(out_, (std::array<int, 4>{}));
}

TEST_F(Misuse, AThreadThatEndsWithItsGroupOpenHasItsCallsDropped) {
  ncclComm_t unmade = nullptr;
  std::thread([&] {
    ncclUniqueId id;
    NCCL_OK(ncclGetUniqueId(&id));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclRecv(out_.data(), 4, ncclInt, 0, comm_, nullptr));
    NCCL_OK(ncclCommInitRank(&unmade, 2, id, 0));
  }).join();
  ncclResult_t state = ncclInProgress;
  NCCL_OK(ncclCommGetAsyncError(unmade, &state));
  EXPECT_EQ(state, ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(unmade), testing::HasSubstr("a thread ended with its group open"));
  NCCL_OK(ncclCommDestroy(unmade));
  // The communicator of the other call is as it was.
  NCCL_OK(ncclAlltoAll(in_.data(), out_.data(), 4, ncclInt, comm_, nullptr));
  EXPECT_EQ(out_, in_);
}

// Whoever watches over a job asks from a thread of its own.
TEST(LastError, OfAnotherThreadIsToldToAThreadWithoutOne) {
  int number = 0;
  std::thread([&] {
    NCCL_FAILS(ncclCommCount(nullptr, &number), ncclInvalidArgument, "communicator is NULL");
  }).join();
  std::thread([] {
    EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("communicator is NULL"));
    NCCL_FAILS(ncclGetVersion(nullptr), ncclInvalidArgument, "version is NULL");
    std::thread([] { EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("version is NULL")); }).join();
  }).join();
}

TEST_F(Misuse, CallsOnFreedAndAbortedCommunicatorsAreRefused) {
  ncclComm_t const comm = std::exchange(comm_, nullptr);
  int number = 0;
  NCCL_OK(ncclCommDestroy(comm));
  NCCL_FAILS(ncclCommDestroy(comm), ncclInvalidArgument, "was destroyed");
  NCCL_FAILS(ncclCommAbort(comm), ncclInvalidArgument, "was destroyed");
  NCCL_FAILS(ncclCommCount(comm, &number), ncclInvalidArgument, "was destroyed");
  NCCL_FAILS(ncclCommUserRank(nullptr, &number), ncclInvalidArgument, "the communicator is NULL");
  NCCL_FAILS(ncclAlltoAll(in_.data(), out_.data(), 1, ncclInt, comm, nullptr), ncclInvalidArgument,
             "was destroyed");
  ncclResult_t state = ncclSuccess;
  NCCL_FAILS(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument, "was destroyed");
}

TEST_F(Misuse, EndingNothingIsNoMistake) {
  NCCL_OK(ncclCommFinalize(nullptr));
  NCCL_OK(ncclCommDestroy(nullptr));
  NCCL_OK(ncclCommAbort(nullptr));
  NCCL_OK(ncclCommRevoke(nullptr, 77));
  NCCL_OK(ncclCommDeregister(comm_, nullptr));
  NCCL_OK(ncclCommWindowDeregister(comm_, nullptr));
  NCCL_OK(ncclCommWindowDeregister(nullptr, nullptr));
  NCCL_FAILS(ncclCommDeregister(nullptr, nullptr), ncclInvalidArgument, "the communicator is NULL");
}

TEST_F(Misuse, QueriesAnswerAndRefuseNull) {
  int number = -1;
  ncclResult_t state = ncclInternalError;
  NCCL_OK(ncclCommCount(comm_, &number));
  EXPECT_EQ(number, 1);
  NCCL_OK(ncclCommUserRank(comm_, &number));
  EXPECT_EQ(number, 0);
  NCCL_OK(ncclCommGetAsyncError(comm_, &state));
  EXPECT_EQ(state, ncclSuccess);
  NCCL_FAILS(ncclCommCount(comm_, nullptr), ncclInvalidArgument, "count is NULL");
  NCCL_FAILS(ncclCommUserRank(comm_, nullptr), ncclInvalidArgument, "rank is NULL");
  NCCL_FAILS(ncclCommGetAsyncError(comm_, nullptr), ncclInvalidArgument, "asyncError is NULL");
}

TEST_F(Misuse, AFinalizedCommunicatorMovesNothing) {
  NCCL_OK(ncclCommFinalize(comm_));
  NCCL_FAILS(ncclAlltoAll(in_.data(), out_.data(), 1, ncclInt, comm_, nullptr), ncclInvalidUsage,
             "finalized");
}

// As NCCL: what has been brought to an end is a wrong argument to what would do so again.
TEST_F(Misuse, AFinalizedCommunicatorIsNeitherFinalizedNorRevokedAgain) {
  NCCL_OK(ncclCommFinalize(comm_));
  NCCL_FAILS(ncclCommFinalize(comm_), ncclInvalidArgument, "has been finalized");
  NCCL_FAILS(ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT), ncclInvalidArgument, "has been finalized");
}

TEST_F(Misuse, ARevokedCommunicatorIsNeitherRevokedNorFinalizedAgain) {
  NCCL_FAILS(ncclCommRevoke(comm_, 1), ncclInvalidArgument, "revokeFlags 1 is not NCCL_REVOKE_DEFAULT");
  NCCL_OK(ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT));
  NCCL_FAILS(ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT), ncclInvalidArgument, "has been revoked");
  NCCL_FAILS(ncclCommFinalize(comm_), ncclInvalidArgument, "has been revoked");
  NCCL_FAILS(ncclAlltoAll(in_.data(), out_.data(), 1, ncclInt, comm_, nullptr), ncclInvalidUsage, "revoked");
}

TEST_F(Misuse, MemoryIsAllocatedRegisteredAndFreed) {
  void *memory = nullptr, *handle = nullptr;
  NCCL_OK(ncclMemAlloc(&memory, 1 << 20));
  std::memset(memory, 1, 1 << 20);
  NCCL_OK(ncclCommRegister(comm_, memory, 1 << 20, &handle));
  NCCL_OK(ncclCommDeregister(comm_, handle));
  NCCL_FAILS(ncclCommDeregister(comm_, handle), ncclInvalidArgument, "is not a registration");
  NCCL_OK(ncclMemFree(memory));
  NCCL_OK(ncclMemFree(nullptr));
  NCCL_FAILS(ncclMemAlloc(nullptr, 1), ncclInvalidArgument, "ptr is NULL");
}

// Which NCCL's library has, and nccl.h does not declare.
extern "C" void ncclResetDebugInitInternal();

// Which nccl.h declares, and advises against.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST_F(Misuse, LogSettingsAreReadAgainAndCallsGoOn) {
  const auto said_by_a_call = [this] {
    out_ = {};
    testing::internal::CaptureStderr();
    NCCL_OK(ncclAlltoAll(in_.data(), out_.data(), 4, ncclInt, comm_, nullptr));
    EXPECT_EQ(out_, in_);
    return testing::internal::GetCapturedStderr();
  };
  for (const auto reset : {ncclResetDebugInit, pncclResetDebugInit, ncclResetDebugInitInternal}) {
    setenv("NCCL_DEBUG", "INFO", 1);
    EXPECT_EQ(said_by_a_call(), "") << "they are read once";
    reset();
    EXPECT_THAT(said_by_a_call(), testing::HasSubstr("INFO COLL alltoall"));
    unsetenv("NCCL_DEBUG");
    reset();
    EXPECT_EQ(said_by_a_call(), "");
  }
}
#pragma GCC diagnostic pop

TEST(Program, ProfilersCallTheStrongNames) {
  int version = 0;
  NCCL_OK(pncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

}  // namespace
}  // namespace nccl_programs
