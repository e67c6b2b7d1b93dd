// Ranks whose calls do not match: an error of NCCL's on each of them, which names what differs and whose it is. Nobody waits until its
// time is up, which is half an hour here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace nccl_programs {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

/// What one rank says in a collective.
struct Said {
  size_t count = 4;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

constexpr size_t large_count = 300'000;

/// Room for whatever any rank says.
struct Room {
  explicit Room(int ranks) : in(sizeof(double) * large_count * static_cast<size_t>(ranks)), out(in.size()) {}
  std::vector<char> in, out;
};

/// A collective, as errors call it.
struct Collective {
  const char* name;
  ncclResult_t (*call)(Room& room, const Said& said, ncclComm_t comm);
};

constexpr Collective broadcast_{"broadcast", [](Room& room, const Said& said, ncclComm_t comm) {
                                  return ncclBroadcast(room.in.data(), room.out.data(), said.count, said.type,
                                                       said.root, comm, nullptr);
                                }};
constexpr Collective gather_{"gather", [](Room& room, const Said& said, ncclComm_t comm) {
                               return ncclGather(room.in.data(), room.out.data(), said.count, said.type,
                                                 said.root, comm, nullptr);
                             }};
constexpr Collective scatter_{"scatter", [](Room& room, const Said& said, ncclComm_t comm) {
                                return ncclScatter(room.in.data(), room.out.data(), said.count, said.type,
                                                   said.root, comm, nullptr);
                              }};
constexpr Collective reduce_{"reduce", [](Room& room, const Said& said, ncclComm_t comm) {
                               return ncclReduce(room.in.data(), room.out.data(), said.count, said.type,
                                                 said.op, said.root, comm, nullptr);
                             }};
constexpr Collective allreduce_{"allreduce", [](Room& room, const Said& said, ncclComm_t comm) {
                                  return ncclAllReduce(room.in.data(), room.out.data(), said.count, said.type,
                                                       said.op, comm, nullptr);
                                }};
constexpr Collective reduce_scatter_{"reduce_scatter", [](Room& room, const Said& said, ncclComm_t comm) {
                                       return ncclReduceScatter(room.in.data(), room.out.data(), said.count,
                                                                said.type, said.op, comm, nullptr);
                                     }};
constexpr Collective allgather_{"allgather", [](Room& room, const Said& said, ncclComm_t comm) {
                                  return ncclAllGather(room.in.data(), room.out.data(), said.count, said.type,
                                                       comm, nullptr);
                                }};
constexpr Collective alltoall_{"alltoall", [](Room& room, const Said& said, ncclComm_t comm) {
                                 return ncclAlltoAll(room.in.data(), room.out.data(), said.count, said.type,
                                                     comm, nullptr);
                               }};

/// Of calls of which a rank has made another one.
void expect_mismatch(ncclComm_t comm, ncclResult_t result, const std::vector<std::string>& words) {
  // Who compared the calls has misused them; who heard of it has lost a rank.
  EXPECT_THAT(result, AnyOf(ncclInvalidUsage, ncclRemoteError));
  const std::string text = ncclGetLastError(comm);
  for (const std::string& word : words)
    EXPECT_THAT(text, AnyOf(HasSubstr(" " + word), HasSubstr("\"" + word)));
  EXPECT_THAT(text, Not(HasSubstr("timeout")));
  EXPECT_EQ(awaited_failure(comm), result);
}

/// What a rank calls, and how an error tells that.
struct Made {
  Collective collective;
  Said said;
  std::string text;
};

/// Rank 1 calls something else than the others do. Some collectives are over on some ranks without the others (a root that sends): the next
/// one tells them.
void expect_mismatch_of(const RankContext& context, ncclComm_t parent, Room& room, const Made& of_rank_1,
                        const Made& of_others) {
  SCOPED_TRACE(of_rank_1.text + " on rank 1, " + of_others.text + " on the others");
  ncclComm_t comm = nullptr;
  NCCL_OK(ncclCommSplit(parent, 0, context.rank, &comm, nullptr));
  const Made& mine = context.rank == 1 ? of_rank_1 : of_others;
  ncclResult_t result = mine.collective.call(room, mine.said, comm);
  if (result == ncclSuccess) result = allgather_.call(room, {}, comm);
  expect_mismatch(comm, result, {"rank 1", of_rank_1.text, of_others.text});
  NCCL_OK(ncclCommDestroy(comm));
  context.meet();
}

// Rank 1 has another rank in its node.
class Mismatch : public testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, Mismatch,
                         testing::Values(Job{As::threads, 3}, Job{As::processes, 3},
                                         Job{As::processes, 4, 2}),
                         testing::PrintToStringParamName());

constexpr Collective with_root[] = {broadcast_, gather_, scatter_, reduce_},
                     without_root[] = {allreduce_, reduce_scatter_, allgather_, alltoall_},
                     with_operation[] = {reduce_, allreduce_, reduce_scatter_},
                     every_one[] = {broadcast_, gather_,         scatter_,   reduce_,
                                    allreduce_, reduce_scatter_, allgather_, alltoall_};

/// In each of `collectives`, with what rank 1 and the others say, and how errors tell that.
void expect_mismatches(const Job& job, std::span<const Collective> collectives, const Said& of_rank_1,
                       const char* text_of_rank_1, const Said& of_others, const char* text_of_others) {
  run_ranks(job, [&](const RankContext& context) {
    Comm comm(context);
    Room room(context.ranks);
    for (const Collective& each : collectives)
      expect_mismatch_of(context, comm, room, {each, of_rank_1, std::string(each.name) + text_of_rank_1},
                         {each, of_others, std::string(each.name) + text_of_others});
  });
}

/// Where rank 1 calls the one after that of the others.
void expect_mismatches_of_collectives(const Job& job, std::span<const Collective> collectives) {
  run_ranks(job, [&](const RankContext& context) {
    Comm comm(context);
    Room room(context.ranks);
    const auto made = [&](size_t i) {
      const Collective& its = collectives[i % collectives.size()];
      return Made{its, {}, std::string(its.name) + " count 4 float32"};
    };
    for (size_t i = 0; i < collectives.size(); ++i)
      expect_mismatch_of(context, comm, room, made(i + 1), made(i));
  });
}

TEST_P(Mismatch, OfTheCountIsToldOnEveryRank) {
  expect_mismatches(GetParam(), every_one, {.count = 8}, " count 8 float32", {}, " count 4 float32");
  expect_mismatches(GetParam(), every_one, {.count = large_count}, " count 300000 float32", {},
                    " count 4 float32");
}

// As many bytes, and others.
TEST_P(Mismatch, OfTheDatatypeIsToldOnEveryRank) {
  expect_mismatches(GetParam(), every_one, {.type = ncclInt32}, " count 4 int32", {}, " count 4 float32");
  expect_mismatches(GetParam(), every_one, {.type = ncclFloat64}, " count 4 float64", {}, " count 4 float32");
}

TEST_P(Mismatch, OfTheReductionIsToldOnEveryRank) {
  expect_mismatches(GetParam(), with_operation, {.op = ncclMax}, " count 4 float32 max", {},
                    " count 4 float32 sum");
}

TEST_P(Mismatch, OfTheRootIsToldOnEveryRank) {
  for (const Collective& each : with_root) {
    const bool reduces = std::string(each.name) == "reduce";
    expect_mismatches(GetParam(), {&each, 1}, {.root = 1},
                      reduces ? " count 4 float32 sum root 1" : " count 4 float32 root 1", {},
                      reduces ? " count 4 float32 sum root 0" : " count 4 float32 root 0");
  }
}

TEST_P(Mismatch, OfTheCollectiveIsToldOnEveryRank) {
  expect_mismatches_of_collectives(GetParam(), every_one);
}

// Each rank in a node of its own. A root that has sent goes on, to calls that are not compared with the one in which its peer still waits: that
// is an error when the time is up.
TEST(MismatchBetweenNodes, OfWhatAllRanksWaitInIsToldOnEveryRank) {
  const Job job{As::processes, 2, 1};
  expect_mismatches(job, without_root, {.count = 8}, " count 8 float32", {}, " count 4 float32");
  expect_mismatches(job, without_root, {.count = large_count}, " count 300000 float32", {},
                    " count 4 float32");
  expect_mismatches(job, without_root, {.type = ncclFloat64}, " count 4 float64", {}, " count 4 float32");
  expect_mismatches(job, without_root, {.type = ncclInt32}, " count 4 int32", {}, " count 4 float32");
  expect_mismatches(job, std::span(without_root).first(2), {.op = ncclMax}, " count 4 float32 max", {},
                    " count 4 float32 sum");
  expect_mismatches_of_collectives(job, without_root);
}

class MismatchOfMessages : public testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, MismatchOfMessages,
                         testing::Values(Job{As::threads, 2}, Job{As::processes, 2}, Job{As::processes, 2, 1},
                                         Job{As::processes, 4, 2}),
                         testing::PrintToStringParamName());

/// A message, and what its receiver expects.
struct Message {
  int from, to;
  size_t sent, expected;
};

/// Whether there is less or more of it than expected: what is behind the receiver's buffer stays as it was.
void expect_mismatch_of_length(const RankContext& context, ncclComm_t parent, const Message& message) {
  const std::string recv =
      "recv of " + std::to_string(message.expected) + " int32 from rank " + std::to_string(message.from);
  SCOPED_TRACE(recv + ": " + std::to_string(message.sent) + " sent");
  const bool receives = context.rank == message.to;
  ncclComm_t comm = nullptr;
  NCCL_OK(ncclCommSplit(parent, 0, context.rank, &comm, nullptr));
  std::vector<int> buffer(std::max(message.sent, message.expected), context.rank);
  ncclResult_t result = ncclSuccess;
  if (context.rank == message.from)
    result = ncclSend(buffer.data(), message.sent, ncclInt32, message.to, comm, nullptr);
  if (receives) result = ncclRecv(buffer.data(), message.expected, ncclInt32, message.from, comm, nullptr);
  // A sender may be through already, and others have no part in it.
  if (result == ncclSuccess) result = awaited_failure(comm);
  EXPECT_EQ(result, receives ? ncclInvalidUsage : ncclRemoteError);
  const auto bytes = [](size_t count) { return " " + std::to_string(sizeof(int) * count); };
  EXPECT_THAT(ncclGetLastError(comm),
              AllOf(HasSubstr(recv), HasSubstr(bytes(message.sent)), HasSubstr(bytes(message.expected)),
                    HasSubstr("rank " + std::to_string(receives ? message.from : message.to)),
                    Not(HasSubstr("timeout"))));
  const std::span behind = std::span(buffer).subspan(message.expected);
  EXPECT_TRUE(std::ranges::all_of(behind, [&](int number) { return number == context.rank; }));
  NCCL_OK(ncclCommDestroy(comm));
  context.meet();
}

// Between the first and the last rank, and in the last one's node.
TEST_P(MismatchOfMessages, InTheirLengthsIsToldOnEveryRank) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    const int last = context.ranks - 1;
    for (const auto& [from, to] : {std::pair(0, last), std::pair(last, last - 1)})
      for (const auto& [sent, expected] : {std::pair<size_t, size_t>(4, 8),
                                           {8, 4},
                                           {1, 0},
                                           {0, 1},
                                           {4, large_count},
                                           {large_count, 4},
                                           {large_count, large_count - 1}})
        expect_mismatch_of_length(context, comm, {from, to, sent, expected});
  });
}

}  // namespace
}  // namespace nccl_programs
