// Wrong arguments: a code, a text that names the argument and its value, and nothing else happens.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

#define EXPECT_REFUSED(call, code, words)                                               \
  do {                                                                                  \
    EXPECT_EQ(call, code);                                                              \
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), words), nullptr)                  \
        << "\"" << epcclGetLastError(nullptr) << "\" does not say \"" << words << "\""; \
  } while (0)

// One rank is enough to be wrong.
void with_comm(const std::function<void(epcclComm_t)>& body) {
  run_ranks({{1}, {}, {}}, [&](const RankContext& context) {
    Comm comm(context);
    body(comm);
    // Nothing of it harmed the communicator.
    int in = 7, out = 0;
    EXPECT_EQ(epcclAlltoall(&in, &out, 1, epcclInt32, comm, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
    EXPECT_EQ(out, 7);
  });
}

TEST(Misuse, OfCommunicators) {
  with_comm([](epcclComm_t comm) {
    int value = 0;
    float in = 0, out = 0;
    EXPECT_REFUSED(epcclAlltoall(&in, &out, 1, epcclFloat32, nullptr, nullptr), epcclInvalidArgument,
                   "communicator is NULL");
    auto* wrong = reinterpret_cast<epcclComm_t>(&value);
    EXPECT_REFUSED(epcclAlltoall(&in, &out, 1, epcclFloat32, wrong, nullptr), epcclInvalidArgument,
                   "not a communicator");
    EXPECT_REFUSED(epcclCommCount(wrong, &value), epcclInvalidArgument, "not a communicator");
    EXPECT_REFUSED(epcclCommCount(comm, nullptr), epcclInvalidArgument, "count is NULL");
    EXPECT_REFUSED(epcclCommUserRank(comm, nullptr), epcclInvalidArgument, "rank is NULL");
    EXPECT_REFUSED(epcclCommGetAsyncError(comm, nullptr), epcclInvalidArgument, "asyncError is NULL");
    EXPECT_REFUSED(epcclCommDestroy(nullptr), epcclInvalidArgument, "communicator is NULL");
    EXPECT_REFUSED(epcclCommAbort(wrong), epcclInvalidArgument, "not a communicator");
  });
}

TEST(Misuse, OfInitialisation) {
  run_ranks({{1}, {{"EPCCL_TIMEOUT", "2"}}, {}}, [](const RankContext& context) {
    epcclComm_t comm = nullptr;
    EXPECT_REFUSED(epcclGetUniqueId(nullptr), epcclInvalidArgument, "uniqueId is NULL");
    EXPECT_REFUSED(epcclCommInitRank(nullptr, 1, context.id, 0), epcclInvalidArgument, "comm is NULL");
    EXPECT_REFUSED(epcclCommInitRank(&comm, 0, context.id, 0), epcclInvalidArgument, "nranks 0");
    EXPECT_REFUSED(epcclCommInitRank(&comm, 2, context.id, 2), epcclInvalidArgument, "rank 2 is not in 0..1");
    EXPECT_REFUSED(epcclCommInitRank(&comm, 2, context.id, -1), epcclInvalidArgument, "rank -1");
    epcclUniqueId rubbish{};
    EXPECT_NE(epcclCommInitRank(&comm, 1, rubbish, 0), epcclSuccess);
    epcclConfig_t config{};
    EXPECT_REFUSED(epcclCommInitRankConfig(&comm, 1, context.id, 0, &config), epcclInvalidArgument,
                   "config.size is 0");
    epcclConfig_t magic = EPCCL_CONFIG_INITIALIZER;
    magic.magic = 1;
    EXPECT_REFUSED(epcclCommInitRankConfig(&comm, 1, context.id, 0, &magic), epcclInvalidArgument,
                   "config.magic");
    epcclConfig_t algorithm = EPCCL_CONFIG_INITIALIZER;
    algorithm.algorithm = "fastest";
    EXPECT_REFUSED(epcclCommInitRankConfig(&comm, 1, context.id, 0, &algorithm), epcclInvalidArgument,
                   "\"fastest\"");
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(Misuse, OfAlltoall) {
  with_comm([](epcclComm_t comm) {
    std::vector<float> data(64);
    const auto wrong_type = static_cast<epcclDataType_t>(99);
    EXPECT_REFUSED(epcclAlltoall(nullptr, data.data(), 1, epcclFloat32, comm, nullptr), epcclInvalidArgument,
                   "sendbuff is NULL");
    EXPECT_REFUSED(epcclAlltoall(data.data(), nullptr, 1, epcclFloat32, comm, nullptr), epcclInvalidArgument,
                   "recvbuff is NULL");
    EXPECT_REFUSED(epcclAlltoall(data.data(), data.data() + 32, SIZE_MAX / 2, epcclFloat32, comm, nullptr),
                   epcclInvalidArgument, "overflows");
    EXPECT_REFUSED(epcclAlltoall(data.data(), data.data() + 32, 1, wrong_type, comm, nullptr),
                   epcclInvalidArgument, "datatype 99");
    EXPECT_REFUSED(epcclAlltoall(data.data(), data.data() + 32, 1, epcclFloat32, comm, &comm),
                   epcclInvalidArgument, "not a stream");
  });
}

TEST(Misuse, OfAlltoallv) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<float> in(64), out(64);
    const size_t counts[] = {4, 4}, displs[] = {0, 4}, overlapping[] = {0, 3}, huge[] = {SIZE_MAX, 1};
    EXPECT_REFUSED(
        epcclAlltoallv(in.data(), nullptr, displs, out.data(), counts, displs, epcclFloat32, comm, nullptr),
        epcclInvalidArgument, "sendcounts is NULL");
    EXPECT_REFUSED(
        epcclAlltoallv(in.data(), counts, displs, out.data(), counts, nullptr, epcclFloat32, comm, nullptr),
        epcclInvalidArgument, "rdispls is NULL");
    EXPECT_REFUSED(epcclAlltoallv(in.data(), counts, displs, out.data(), counts, overlapping, epcclFloat32,
                                  comm, nullptr),
                   epcclInvalidArgument, "overlap");
    EXPECT_REFUSED(
        epcclAlltoallv(in.data(), huge, displs, out.data(), counts, displs, epcclFloat32, comm, nullptr),
        epcclInvalidArgument, "sendcounts[0] is 18446744073709551615: x 4 bytes overflows");
    EXPECT_REFUSED(
        epcclAlltoallv(in.data(), counts, displs, out.data(), counts, huge, epcclFloat32, comm, nullptr),
        epcclInvalidArgument, "rdispls[0] is 18446744073709551615: x 4 bytes overflows");
    // As a sum that wraps these would lie in the buffer.
    const size_t wrapping[] = {SIZE_MAX - 7, 1}, behind[] = {16, 0};
    EXPECT_REFUSED(
        epcclAlltoallv(in.data(), wrapping, behind, out.data(), counts, displs, epcclInt8, comm, nullptr),
        epcclInvalidArgument, "sendcounts[0] is 18446744073709551608: x 1 bytes overflows");
    EXPECT_EQ(
        epcclAlltoallv(in.data(), counts, displs, out.data(), counts, displs, epcclFloat32, comm, nullptr),
        epcclSuccess);
  });
}

// No buffer is longer than the address space; of some calls one has a block of each rank.
TEST(Misuse, OfCountsThatNoBufferHas) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<char> in(64), out(64);
    const char* from = in.data();
    char* to = out.data();
    const auto is_refused = [](size_t most, const auto& call) {
      for (const size_t count : {most + 1, size_t{1} << 60, SIZE_MAX / 2})
        EXPECT_REFUSED(call(count), epcclInvalidArgument,
                       ("count " + std::to_string(count) + " x 1 bytes").c_str());
      EXPECT_NE(
          std::strstr(epcclGetLastError(nullptr), "overflows the address space (140737488355328 bytes)"),
          nullptr);
    };
    const auto is_refused_but_nothing = [&](size_t most, const auto& call) {
      is_refused(most, call);
      EXPECT_EQ(call(0), epcclSuccess) << epcclGetLastError(nullptr);
    };
    constexpr size_t whole = size_t{1} << 47, block = whole / 2;
    constexpr epcclDataType_t type = epcclInt8;
    is_refused_but_nothing(
        whole, [&](size_t n) { return epcclAllReduce(from, to, n, type, epcclSum, comm, nullptr); });
    is_refused_but_nothing(
        whole, [&](size_t n) { return epcclReduce(from, to, n, type, epcclSum, 0, comm, nullptr); });
    is_refused_but_nothing(whole,
                           [&](size_t n) { return epcclBroadcast(from, to, n, type, 0, comm, nullptr); });
    is_refused_but_nothing(
        block, [&](size_t n) { return epcclReduceScatter(from, to, n, type, epcclSum, comm, nullptr); });
    is_refused_but_nothing(block, [&](size_t n) { return epcclAllGather(from, to, n, type, comm, nullptr); });
    is_refused_but_nothing(block, [&](size_t n) { return epcclGather(from, to, n, type, 0, comm, nullptr); });
    is_refused_but_nothing(block,
                           [&](size_t n) { return epcclScatter(from, to, n, type, 0, comm, nullptr); });
    is_refused_but_nothing(block, [&](size_t n) { return epcclAlltoall(from, to, n, type, comm, nullptr); });
    is_refused(whole, [&](size_t n) { return epcclSend(from, n, type, 1 - context.rank, comm, nullptr); });
    is_refused(whole, [&](size_t n) { return epcclRecv(to, n, type, 1 - context.rank, comm, nullptr); });
  });
}

TEST(Misuse, OfBlocksThatNoBufferHas) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<char> in(64), out(64);
    constexpr size_t whole = size_t{1} << 47;
    const size_t counts[] = {4, 4}, displs[] = {0, 4}, none[] = {0, 0};
    const size_t huge[] = {4, size_t{1} << 60}, far[] = {0, whole - 3};
    const auto exchange = [&](const size_t* sent, const size_t* from, const size_t* received,
                              const size_t* to) {
      return epcclAlltoallv(in.data(), sent, from, out.data(), received, to, epcclInt8, comm, nullptr);
    };
    EXPECT_REFUSED(exchange(huge, displs, counts, displs), epcclInvalidArgument,
                   "sendcounts[1] 1152921504606846976 at sdispls 4: x 1 bytes overflows the address space");
    EXPECT_REFUSED(exchange(counts, displs, huge, displs), epcclInvalidArgument,
                   "recvcounts[1] 1152921504606846976 at rdispls 4: x 1 bytes overflows the address space");
    EXPECT_REFUSED(exchange(counts, far, counts, displs), epcclInvalidArgument,
                   "sendcounts[1] 4 at sdispls 140737488355325: x 1 bytes overflows the address space");
    EXPECT_REFUSED(exchange(counts, displs, counts, far), epcclInvalidArgument,
                   "recvcounts[1] 4 at rdispls 140737488355325: x 1 bytes overflows the address space");
    EXPECT_EQ(exchange(none, huge, none, far), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(exchange(counts, displs, counts, displs), epcclSuccess) << epcclGetLastError(nullptr);
  });
}

TEST(Misuse, OfSendRecvAndGroups) {
  with_comm([](epcclComm_t comm) {
    int value = 0;
    EXPECT_REFUSED(epcclSend(&value, 1, epcclInt32, 1, comm, nullptr), epcclInvalidArgument,
                   "peer 1 is not in 0..0");
    EXPECT_REFUSED(epcclRecv(nullptr, 1, epcclInt32, 0, comm, nullptr), epcclInvalidArgument,
                   "recvbuff is NULL");
    EXPECT_REFUSED(epcclGroupEnd(), epcclInvalidUsage, "without epcclGroupStart");
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_REFUSED(epcclSend(&value, 1, epcclInt32, 5, comm, nullptr), epcclInvalidArgument, "peer 5");
    EXPECT_REFUSED(epcclGroupEnd(), epcclInvalidArgument, "a call of this group was refused");
    // Of several that is the first.
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclSend(nullptr, 1, epcclInt32, 0, comm, nullptr), epcclInvalidArgument);
    EXPECT_EQ(epcclSend(&value, 1, epcclInt32, 7, comm, nullptr), epcclInvalidArgument);
    EXPECT_REFUSED(epcclGroupEnd(), epcclInvalidArgument, "sendbuff is NULL");
  });
}

TEST(Misuse, AThreadThatEndsWithItsGroupOpenHasItsCallsDroppedAndSaysSo) {
  const std::string log = testing::TempDir() + "unended_group." + std::to_string(getpid());
  run_ranks({{1}, {{"EPCCL_DEBUG", "WARN"}, {"EPCCL_DEBUG_FILE", log}}, {}}, [&](const RankContext& context) {
    Comm comm(context);
    int value = 0;
    epcclUniqueId id;
    ASSERT_EQ(epcclGetUniqueId(&id), epcclSuccess);
    epcclComm_t unmade = nullptr;
    std::thread([&] {
      epcclComm_t mine = nullptr;  // gone with the thread's stack when its group is dropped
      EXPECT_EQ(epcclGroupStart(), epcclSuccess);
      EXPECT_EQ(epcclRecv(&value, 1, epcclInt32, 0, comm, nullptr), epcclSuccess);
      EXPECT_EQ(epcclRecv(&value, 1, epcclInt32, 0, comm, nullptr), epcclSuccess);
      EXPECT_EQ(epcclCommInitRank(&mine, 2, id, 0), epcclSuccess);
      unmade = mine;
    }).join();
    std::ifstream file(log);
    const std::string said{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(said.find("3 calls were never issued: 2 of rank 0 of comm"), std::string::npos) << said;
    EXPECT_NE(said.find("1 that make or end communicators"), std::string::npos) << said;
    EXPECT_EQ(said.find(" WARN "), said.rfind(" WARN ")) << said;
    epcclResult_t state = epcclInProgress;
    EXPECT_EQ(epcclCommGetAsyncError(unmade, &state), epcclSuccess);
    EXPECT_EQ(state, epcclInvalidUsage);
    EXPECT_NE(std::strstr(epcclGetLastError(unmade), "a thread ended with its group open"), nullptr)
        << epcclGetLastError(unmade);
    EXPECT_EQ(epcclCommDestroy(unmade), epcclSuccess);
    // The communicator of the calls is as it was.
    int in = 7;
    EXPECT_EQ(epcclAlltoall(&in, &value, 1, epcclInt32, comm, nullptr), epcclSuccess);
    EXPECT_EQ(value, 7);
  });
  std::filesystem::remove(log);
}

TEST(Misuse, ACommunicatorWithCallsInTheOpenGroupIsNotDestroyed) {
  with_comm([](epcclComm_t comm) {
    int in = 3, out = 0;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclSend(&in, 1, epcclInt32, 0, comm, nullptr), epcclSuccess);
    EXPECT_EQ(epcclRecv(&out, 1, epcclInt32, 0, comm, nullptr), epcclSuccess);
    EXPECT_REFUSED(epcclCommDestroy(comm), epcclInvalidUsage, "has 2 calls in this thread's open group");
    EXPECT_EQ(epcclGroupEnd(), epcclSuccess);
    EXPECT_EQ(out, 3);
  });
}

// The parent of a split or shrink, and one that is to be finalized, have calls in it, too.
TEST(Misuse, ACommunicatorThatTheOpenGroupSplitsIsNotDestroyed) {
  with_comm([](epcclComm_t comm) {
    epcclComm_t child = nullptr;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    ASSERT_EQ(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclSuccess);
    EXPECT_REFUSED(epcclCommDestroy(comm), epcclInvalidUsage, "has 1 calls in this thread's open group");
    EXPECT_EQ(epcclGroupEnd(), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(child), epcclSuccess);
    int in = 1, out = 0;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    ASSERT_EQ(epcclAlltoall(&in, &out, 1, epcclInt32, comm, nullptr), epcclSuccess);
    EXPECT_REFUSED(epcclCommFinalize(comm), epcclInvalidUsage, "has 1 calls in this thread's open group");
    EXPECT_REFUSED(epcclGroupEnd(), epcclInvalidUsage, "a call of this group was refused");
    EXPECT_EQ(out, 0);
  });
}

TEST(Misuse, ASplitIsTakenOutOfTheOpenGroupWithItsParent) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    epcclComm_t child = comm;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    ASSERT_EQ(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclSuccess);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
    EXPECT_REFUSED(epcclGroupEnd(), epcclInvalidUsage, "a communicator was aborted");
    EXPECT_EQ(child, nullptr);
  });
}

TEST(Misuse, AMessageToItselfOutsideAGroupLeavesTheCommunicatorWell) {
  with_comm([](epcclComm_t comm) {
    int in = 3, out = 0, rank = -1;
    ASSERT_EQ(epcclCommUserRank(comm, &rank), epcclSuccess);
    EXPECT_REFUSED(epcclSend(&in, 1, epcclInt32, rank, comm, nullptr), epcclInvalidUsage,
                   "a message to itself that is not in a group");
    EXPECT_EQ(epcclAlltoall(&in, &out, 1, epcclInt32, comm, nullptr), epcclSuccess);
  });
}

TEST(Misuse, AGroupWhoseMessagesToItselfHaveNoReceiveLeavesTheCommunicatorWell) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    const int rank = context.rank;
    epcclStream_t made = nullptr;
    ASSERT_EQ(epcclStreamCreate(&made), epcclSuccess);
    for (epcclStream_t stream : {epcclStream_t{nullptr}, made}) {
      int in = 3, out = 0;
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      EXPECT_EQ(epcclSend(&in, 1, epcclInt32, rank, comm, stream), epcclSuccess);
      EXPECT_EQ(epcclSend(&in, 1, epcclInt32, 1 - rank, comm, stream), epcclSuccess);
      EXPECT_EQ(epcclRecv(&out, 1, epcclInt32, 1 - rank, comm, stream), epcclSuccess);
      EXPECT_REFUSED(epcclGroupEnd(), epcclInvalidUsage,
                     "sends 1 messages to itself and receives 0 in one group");
      int16_t half = 0;
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      EXPECT_EQ(epcclSend(&in, 1, epcclInt32, rank, comm, stream), epcclSuccess);
      EXPECT_EQ(epcclRecv(&half, 1, epcclFloat16, rank, comm, stream), epcclSuccess);
      EXPECT_REFUSED(epcclGroupEnd(), epcclInvalidUsage, "to itself: send of 1 int32 to rank");
      int both[2] = {rank, rank}, got[2] = {-1, -1};
      EXPECT_EQ(epcclAlltoall(both, got, 1, epcclInt32, comm, nullptr), epcclSuccess);
      EXPECT_EQ(got[1 - rank], 1 - rank);
    }
    EXPECT_EQ(epcclStreamDestroy(made), epcclSuccess);
  });
}

TEST(Misuse, ACommunicatorThatIsAbortedTakesItsCallsOutOfTheOpenGroup) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    int in = 3, out = 0;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclSend(&in, 1, epcclInt32, 0, comm, nullptr), epcclSuccess);
    EXPECT_EQ(epcclRecv(&out, 1, epcclInt32, 0, comm, nullptr), epcclSuccess);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
    EXPECT_REFUSED(epcclGroupEnd(), epcclInvalidUsage, "was aborted that has 2 calls in this group");
    EXPECT_EQ(out, 0);
  });
}

// What the headers say of functions that move no data.
TEST(Misuse, OfWhatMovesNoData) {
  with_comm([](epcclComm_t comm) {
    epcclComm_t other = comm;
    const int no_device = -1;
    EXPECT_REFUSED(epcclCommInitAll(&other, 1, &no_device), epcclInvalidArgument, "devlist[0] is -1");
    EXPECT_EQ(other, nullptr);
    EXPECT_REFUSED(epcclCommInitAll(&other, 0, nullptr), epcclInvalidArgument, "ndev 0");
    EXPECT_REFUSED(epcclCommSplit(comm, EPCCL_SPLIT_NOCOLOR - 1, 0, &other, nullptr), epcclInvalidArgument,
                   "color -2");
    int self = 0;
    EXPECT_REFUSED(epcclCommShrink(comm, &self, 1, &other, nullptr, EPCCL_SHRINK_DEFAULT),
                   epcclInvalidArgument, "which is this one");
    EXPECT_REFUSED(epcclCommRevoke(comm, 3), epcclInvalidArgument, "revokeFlags 3");
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_REFUSED(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclInvalidUsage, "part of a group");
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess);
    epcclRedOp_t op = epcclSum;
    EXPECT_REFUSED(epcclRedOpDestroy(epcclSum, comm), epcclInvalidArgument, "op 0 (sum)");
    EXPECT_REFUSED(epcclRedOpCreatePreMulSum(&op, nullptr, epcclFloat32, epcclScalarHostImmediate, comm),
                   epcclInvalidArgument, "scalar is NULL");
    EXPECT_EQ(epcclStreamQuery(nullptr), epcclSuccess);
  });
}

TEST(Misuse, OfWhatWasMadeForAnotherCommunicator) {
  with_comm([](epcclComm_t parent) {
    epcclComm_t child = nullptr;
    ASSERT_EQ(epcclCommSplit(parent, 0, 0, &child, nullptr), epcclSuccess);
    epcclRedOp_t doubled = epcclSum;
    float two = 2, in = 1, out = 0;
    void* handle = nullptr;
    ASSERT_EQ(epcclRedOpCreatePreMulSum(&doubled, &two, epcclFloat32, epcclScalarHostImmediate, parent),
              epcclSuccess);
    ASSERT_EQ(epcclCommRegister(parent, &in, sizeof in, &handle), epcclSuccess);
    EXPECT_REFUSED(epcclAllReduce(&in, &out, 1, epcclFloat32, doubled, child, nullptr), epcclInvalidArgument,
                   "was made for another communicator");
    EXPECT_REFUSED(epcclRedOpDestroy(doubled, child), epcclInvalidArgument,
                   "was made for another communicator");
    EXPECT_EQ(epcclCommDeregister(child, handle), epcclInvalidArgument);
    // Nothing has happened to them.
    EXPECT_EQ(epcclAllReduce(&in, &out, 1, epcclFloat32, doubled, parent, nullptr), epcclSuccess);
    EXPECT_EQ(out, 2);
    EXPECT_EQ(epcclRedOpDestroy(doubled, parent), epcclSuccess);
    EXPECT_EQ(epcclCommDeregister(parent, handle), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(child), epcclSuccess);
  });
}

// For libraries that stand beside this one.
TEST(Misuse, OfEndingBesideAnotherLibrary) {
  with_comm([](epcclComm_t comm) {
    EXPECT_REFUSED(epcclCommAbortBeside(comm, nullptr), epcclInvalidArgument, "remains");
    int self = 0;
    epcclComm_t rest = comm;
    const auto never = [](epcclComm_t) { ADD_FAILURE() << "nothing was ended"; };
    EXPECT_REFUSED(epcclCommShrinkBeside(comm, &self, 1, &rest, nullptr, EPCCL_SHRINK_ABORT, never),
                   epcclInvalidArgument, "which is this one");
    EXPECT_EQ(rest, nullptr);
    int in = 7, out = 0;
    EXPECT_EQ(epcclAlltoall(&in, &out, 1, epcclInt32, comm, nullptr), epcclSuccess);
    EXPECT_EQ(out, 7);
    EXPECT_EQ(epcclRemainsFree(nullptr), epcclSuccess);
    auto remains = reinterpret_cast<epcclRemains_t>(&self);
    EXPECT_REFUSED(epcclCommAbortBeside(nullptr, &remains), epcclInvalidArgument, "NULL");
    EXPECT_EQ(remains, nullptr);
  });
}

TEST(Misuse, OfMemory) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    int value = 0;
    void* memory = &value;
    EXPECT_EQ(epcclMemAlloc(&memory, 0), epcclSuccess);
    EXPECT_EQ(memory, nullptr);
    EXPECT_REFUSED(epcclMemFree(&value), epcclInvalidArgument, "not returned by epcclMemAlloc");
    void *first = &value, *second = nullptr;
    EXPECT_REFUSED(epcclCommRegister(comm, nullptr, 8, &first), epcclInvalidArgument, "buff is NULL");
    EXPECT_EQ(first, nullptr);
    first = &value;
    EXPECT_REFUSED(epcclCommRegister(nullptr, &value, sizeof value, &first), epcclInvalidArgument, "NULL");
    EXPECT_EQ(first, nullptr);
    auto window = reinterpret_cast<epcclWindow_t>(&value);
    EXPECT_REFUSED(epcclCommWindowRegister(comm, &value, sizeof value, &window, 77), epcclInvalidArgument,
                   "winFlags 77");
    EXPECT_EQ(window, nullptr);
    ASSERT_EQ(epcclCommRegister(comm, &value, sizeof value, &first), epcclSuccess);
    ASSERT_EQ(epcclCommRegister(comm, &value, sizeof value, &second), epcclSuccess);
    EXPECT_NE(first, second);
    EXPECT_EQ(epcclCommDeregister(comm, first), epcclSuccess);
    EXPECT_REFUSED(epcclCommDeregister(comm, first), epcclInvalidArgument, "not a registration");
    ASSERT_EQ(epcclCommFinalize(comm), epcclSuccess);
    EXPECT_EQ(epcclCommDeregister(comm, second), epcclSuccess);
    EXPECT_REFUSED(epcclCommFinalize(comm), epcclInvalidArgument, "finalized");
    EXPECT_EQ(epcclCommDevice(comm, &value), epcclSuccess);
  });
}

TEST(Misuse, AfterFinalize) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    int in[2] = {}, out[2] = {}, count = 0;
    EXPECT_EQ(epcclCommFinalize(comm), epcclSuccess);
    EXPECT_REFUSED(epcclAlltoall(in, out, 1, epcclInt32, comm, nullptr), epcclInvalidUsage, "finalized");
    EXPECT_EQ(epcclCommCount(comm, &count), epcclSuccess);
    EXPECT_EQ(count, 2);
  });
}

}  // namespace
}  // namespace epccl::tests
