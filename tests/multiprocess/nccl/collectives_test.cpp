// Collectives that only move data: every datatype, in place and not, against what each byte must be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "numbers.hpp"
#include "ranks.hpp"

namespace nccl_programs {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr unsigned char poison = 0;

/// Never `poison`, and another for another source, block and place.
Bytes block(int source, int number, size_t bytes) {
  Bytes values(bytes);
  for (size_t i = 0; i < bytes; ++i)
    values[i] = static_cast<unsigned char>(
        1 + (static_cast<size_t>(source) * 131 + static_cast<size_t>(number) * 31 + i * 7 + i / 255) % 255);
  return values;
}

void append(Bytes& to, const Bytes& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// One call: its datatype, and the bytes of its count.
struct Case {
  ncclDataType_t type;
  size_t count, bytes;
  ncclComm_t comm;
};

void all_gather(const RankContext& context, const Case& each) {
  const Bytes in = block(context.rank, 0, each.bytes);
  Bytes expected, out(each.bytes * static_cast<size_t>(context.ranks), poison);
  for (int rank = 0; rank < context.ranks; ++rank) append(expected, block(rank, 0, each.bytes));
  NCCL_OK(ncclAllGather(in.data(), out.data(), each.count, each.type, each.comm, nullptr));
  EXPECT_EQ(out, expected);
  Bytes both(out.size(), poison);
  unsigned char* const mine = both.data() + each.bytes * static_cast<size_t>(context.rank);
  std::copy(in.begin(), in.end(), mine);
  NCCL_OK(ncclAllGather(mine, both.data(), each.count, each.type, each.comm, nullptr));
  EXPECT_EQ(both, expected) << "in place";
}

void broadcast(const RankContext& context, const Case& each) {
  const int root = context.ranks / 2;
  const Bytes expected = block(root, 0, each.bytes);
  const Bytes in = context.rank == root ? expected : Bytes();
  Bytes out(each.bytes, poison);
  NCCL_OK(ncclBroadcast(in.data(), out.data(), each.count, each.type, root, each.comm, nullptr));
  EXPECT_EQ(out, expected);
  Bytes both = context.rank == root ? expected : Bytes(each.bytes, poison);
  NCCL_OK(ncclBroadcast(both.data(), both.data(), each.count, each.type, root, each.comm, nullptr));
  EXPECT_EQ(both, expected) << "in place";
  both = context.rank == root ? expected : Bytes(each.bytes, poison);
  NCCL_OK(ncclBcast(both.data(), each.count, each.type, root, each.comm, nullptr));
  EXPECT_EQ(both, expected) << "ncclBcast";
}

void gather(const RankContext& context, const Case& each) {
  const int root = context.ranks - 1;
  const bool is_root = context.rank == root;
  const Bytes in = block(context.rank, 0, each.bytes);
  Bytes expected, out(is_root ? each.bytes * static_cast<size_t>(context.ranks) : 0, poison);
  for (int rank = 0; is_root && rank < context.ranks; ++rank) append(expected, block(rank, 0, each.bytes));
  NCCL_OK(
      ncclGather(in.data(), is_root ? out.data() : nullptr, each.count, each.type, root, each.comm, nullptr));
  EXPECT_EQ(out, expected);
  Bytes both(out.size(), poison);
  const unsigned char* mine = in.data();
  if (is_root) {
    unsigned char* const own = both.data() + each.bytes * static_cast<size_t>(root);
    std::copy(in.begin(), in.end(), own);
    mine = own;
  }
  NCCL_OK(ncclGather(mine, is_root ? both.data() : nullptr, each.count, each.type, root, each.comm, nullptr));
  EXPECT_EQ(both, expected) << "in place";
}

void scatter(const RankContext& context, const Case& each) {
  const bool is_root = context.rank == 0;
  const Bytes expected = block(0, context.rank, each.bytes);
  Bytes in, out(each.bytes, poison);
  for (int rank = 0; is_root && rank < context.ranks; ++rank) append(in, block(0, rank, each.bytes));
  NCCL_OK(
      ncclScatter(is_root ? in.data() : nullptr, out.data(), each.count, each.type, 0, each.comm, nullptr));
  EXPECT_EQ(out, expected);
  Bytes own(each.bytes, poison);
  unsigned char* const place = is_root ? in.data() : own.data();
  NCCL_OK(ncclScatter(is_root ? in.data() : nullptr, place, each.count, each.type, 0, each.comm, nullptr));
  EXPECT_EQ(Bytes(place, place + each.bytes), expected) << "in place";
}

void alltoall(const RankContext& context, const Case& each) {
  Bytes in, expected, out(each.bytes * static_cast<size_t>(context.ranks), poison);
  for (int peer = 0; peer < context.ranks; ++peer) {
    append(in, block(context.rank, peer, each.bytes));
    append(expected, block(peer, context.rank, each.bytes));
  }
  NCCL_OK(ncclAlltoAll(in.data(), out.data(), each.count, each.type, each.comm, nullptr));
  EXPECT_EQ(out, expected);
}

class Collectives : public testing::TestWithParam<Job> {};

void run_all(const Job& job, void (*collective)(const RankContext&, const Case&)) {
  run_ranks(job, [collective](const RankContext& context) {
    Comm comm(context);
    for (const ncclDataType_t type : all_types)
      for (const size_t count : {size_t{0}, size_t{1}, size_t{333}}) {
        SCOPED_TRACE(testing::Message() << count << " of datatype " << type);
        collective(context, {type, count, count * bytes_of(type), comm});
      }
    collective(context, {ncclFloat32, 60'001, 60'001 * sizeof(float), comm});
  });
}

TEST_P(Collectives, AllGather) {
  run_all(GetParam(), all_gather);
}
TEST_P(Collectives, BroadcastAndBcast) {
  run_all(GetParam(), broadcast);
}
TEST_P(Collectives, Gather) {
  run_all(GetParam(), gather);
}
TEST_P(Collectives, Scatter) {
  run_all(GetParam(), scatter);
}
TEST_P(Collectives, AlltoAll) {
  run_all(GetParam(), alltoall);
}

// What a program with one thread for all its devices does.
TEST(OneThread, SeveralCollectivesOfAllRanksInOneGroup) {
  constexpr int ranks = 4;
  std::vector<ncclComm_t> comms(ranks);
  NCCL_OK(ncclCommInitAll(comms.data(), ranks, nullptr));
  std::vector<float> in(ranks), sum(ranks), root(ranks);
  std::vector<std::vector<float>> all(ranks, std::vector<float>(ranks));
  NCCL_OK(ncclGroupStart());
  for (size_t rank = 0; rank < ranks; ++rank) {
    in[rank] = static_cast<float>(rank + 1);
    NCCL_OK(ncclAllReduce(&in[rank], &sum[rank], 1, ncclFloat32, ncclSum, comms[rank], nullptr));
    NCCL_OK(ncclBroadcast(&in[rank], &root[rank], 1, ncclFloat32, 2, comms[rank], nullptr));
    NCCL_OK(ncclAllGather(&in[rank], all[rank].data(), 1, ncclFloat32, comms[rank], nullptr));
  }
  NCCL_OK(ncclGroupEnd());
  EXPECT_THAT(sum, testing::Each(10.0F));
  EXPECT_THAT(root, testing::Each(3.0F));
  EXPECT_THAT(all, testing::Each(testing::ElementsAre(1, 2, 3, 4)));
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
}

INSTANTIATE_TEST_SUITE_P(Jobs, Collectives,
                         testing::Values(Job{As::threads, 2}, Job{As::processes, 5}, Job{As::processes, 8, 4},
                                         Job{As::threads, 16}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace nccl_programs
