// What ncclGroupSimulateEnd tells of a group, which it does not run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace nccl_programs {
namespace {

/// What a rank brings to collectives of `count` elements with each rank, and to messages, and what it finds.
struct Buffers {
  Buffers(int rank, int ranks, size_t count) : in(count * static_cast<size_t>(ranks), rank) {
    out.assign(in.size(), -1);
  }
  std::vector<int> in, out;
};

bool is_untouched(const Buffers& buffers) {
  return std::ranges::all_of(buffers.out, [](int number) { return number == -1; });
}

/// The calls of a group, of blocks of `count` elements.
using Calls = void (*)(Buffers& buffers, size_t count, const RankContext& context, ncclComm_t comm);

void exchange_with_all(Buffers& buffers, size_t count, const RankContext&, ncclComm_t comm) {
  NCCL_OK(ncclAlltoAll(buffers.in.data(), buffers.out.data(), count, ncclInt32, comm, nullptr));
}
void add_up_of_all(Buffers& buffers, size_t count, const RankContext&, ncclComm_t comm) {
  NCCL_OK(ncclAllReduce(buffers.in.data(), buffers.out.data(), count, ncclInt32, ncclSum, comm, nullptr));
}
void gather_from_all(Buffers& buffers, size_t count, const RankContext&, ncclComm_t comm) {
  NCCL_OK(ncclAllGather(buffers.in.data(), buffers.out.data(), count, ncclInt32, comm, nullptr));
}
void send_to_all(Buffers& buffers, size_t count, const RankContext& context, ncclComm_t comm) {
  for (int peer = 0; peer < context.ranks; ++peer) {
    const size_t at = count * static_cast<size_t>(peer);
    NCCL_OK(ncclSend(buffers.in.data() + at, count, ncclInt32, peer, comm, nullptr));
    NCCL_OK(ncclRecv(buffers.out.data() + at, count, ncclInt32, peer, comm, nullptr));
  }
}

constexpr std::pair<const char*, Calls> groups[] = {{"alltoall", exchange_with_all},
                                                    {"allreduce", add_up_of_all},
                                                    {"allgather", gather_from_all},
                                                    {"sends and receives", send_to_all}};
constexpr size_t counts[] = {1, 4096, 65'536, 262'144};

class GroupTimes : public testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, GroupTimes,
                         testing::Values(Job{As::threads, 4}, Job{As::processes, 5},
                                         Job{As::processes, 8, 4}),
                         testing::PrintToStringParamName());

/// By one rank alone: what ran would wait for the others.
void expect_times_alone(const RankContext& context, ncclComm_t comm) {
  for (const auto& [name, calls] : groups) {
    float less = 0;
    for (const size_t count : counts) {
      SCOPED_TRACE(testing::Message() << name << " of " << count);
      Buffers buffers(context.rank, context.ranks, count);
      ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
      NCCL_OK(ncclGroupStart());
      calls(buffers, count, context, comm);
      NCCL_OK(ncclGroupSimulateEnd(&info));
      EXPECT_GT(info.estimatedTime, less);
      less = info.estimatedTime;
      EXPECT_TRUE(is_untouched(buffers));
    }
  }
}

TEST_P(GroupTimes, GrowWithTheBytesOfWhatIsNotRun) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    if (context.rank == 1) expect_times_alone(context, comm);
    context.meet();  // no other rank has made a call before
    Buffers each(context.rank, context.ranks, 1), sum = each;
    NCCL_OK(ncclGroupStart());
    exchange_with_all(each, 1, context, comm);
    add_up_of_all(sum, 1, context, comm);
    NCCL_OK(ncclGroupEnd());
    for (int rank = 0; rank < context.ranks; ++rank) EXPECT_EQ(each.out[static_cast<size_t>(rank)], rank);
    EXPECT_EQ(sum.out[0], context.ranks * (context.ranks - 1) / 2);
  });
}

// Messages that were issued in the group are not matched by later ones.
TEST_P(GroupTimes, OfMessagesLeaveThoseThatFollowAlone) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    Buffers never(100 + context.rank, context.ranks, 10), real(context.rank, context.ranks, 10);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    NCCL_OK(ncclGroupStart());
    send_to_all(never, 10, context, comm);
    NCCL_OK(ncclGroupSimulateEnd(&info));
    NCCL_OK(ncclGroupStart());
    send_to_all(real, 10, context, comm);
    NCCL_OK(ncclGroupEnd());
    for (size_t i = 0; i < real.out.size(); ++i) EXPECT_EQ(real.out[i], static_cast<int>(i / 10));
    EXPECT_TRUE(is_untouched(never));
  });
}

}  // namespace
}  // namespace nccl_programs
