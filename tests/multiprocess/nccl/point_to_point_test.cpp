// Sends and receives in groups as NCCL programs write them, and the all-to-all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "../api/group_patterns.hpp"  // draws numbers, knows nothing of EPCCL
#include "ranks.hpp"

namespace nccl_programs {
namespace {

uint64_t value(int source, int destination, size_t index, int round) {
  return (static_cast<uint64_t>(source) << 48) | (static_cast<uint64_t>(destination) << 32) |
         (static_cast<uint64_t>(round) << 24) | (index + 1);
}

std::vector<uint64_t> message(int source, int destination, size_t count, int round) {
  std::vector<uint64_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value(source, destination, i, round);
  return values;
}

class PointToPoint : public testing::TestWithParam<Job> {};

TEST_P(PointToPoint, AlltoAllMovesEveryBlock) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{20000}}) {
      std::vector<uint64_t> in, out(count * static_cast<size_t>(context.ranks)), expected;
      for (int peer = 0; peer < context.ranks; ++peer) {
        const auto sent = message(context.rank, peer, count, 1), due = message(peer, context.rank, count, 1);
        in.insert(in.end(), sent.begin(), sent.end());
        expected.insert(expected.end(), due.begin(), due.end());
      }
      NCCL_OK(ncclAlltoAll(in.data(), out.data(), count, ncclUint64, comm, nullptr));
      EXPECT_EQ(out, expected) << count;
    }
  });
}

// As PyTorch issues alltoallv; some versions leave zero sizes out, so a rank may see fewer calls than its peer could make.
TEST_P(PointToPoint, AGroupOfSendsAndReceivesIsAnAlltoallv) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    for (int round = 0; round < 4; ++round) {
      std::mt19937 random(static_cast<unsigned>(round));  // the same counts on every rank
      std::vector<std::vector<uint64_t>> in, out;
      std::vector<size_t> counts;
      for (int i = 0; i < context.ranks * context.ranks; ++i)
        counts.push_back(random() % 3 == 0 ? 0 : random() % 3000);
      const auto count_of = [&](int source, int destination) {
        return counts[static_cast<size_t>(source * context.ranks + destination)];
      };
      for (int peer = 0; peer < context.ranks; ++peer) {
        in.push_back(message(context.rank, peer, count_of(context.rank, peer), round));
        out.emplace_back(count_of(peer, context.rank));
      }
      NCCL_OK(ncclGroupStart());
      for (int peer = 0; peer < context.ranks; ++peer) {
        const auto at = static_cast<size_t>(peer);
        if (round % 2 == 0 || !in[at].empty())
          NCCL_OK(ncclSend(in[at].data(), in[at].size(), ncclUint64, peer, comm, nullptr));
        if (round % 2 == 0 || !out[at].empty())
          NCCL_OK(ncclRecv(out[at].data(), out[at].size(), ncclUint64, peer, comm, nullptr));
      }
      NCCL_OK(ncclGroupEnd());
      for (int peer = 0; peer < context.ranks; ++peer)
        EXPECT_EQ(out[static_cast<size_t>(peer)],
                  message(peer, context.rank, count_of(peer, context.rank), round));
    }
  });
}

TEST_P(PointToPoint, ARingAStarAndSelfSendsInNestedGroups) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    const int ranks = context.ranks, rank = context.rank;
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    const auto onward = message(rank, next, 100, 1), own = message(rank, rank, 7, 2),
               up = message(rank, 0, 50, 3), up_again = message(rank, 0, 60, 4);
    std::vector<uint64_t> from_previous(100), from_self(7);
    std::vector<std::vector<uint64_t>> first(static_cast<size_t>(ranks)), second(static_cast<size_t>(ranks));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(onward.data(), 100, ncclUint64, next, comm, nullptr));
    NCCL_OK(ncclRecv(from_previous.data(), 100, ncclUint64, previous, comm, nullptr));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(own.data(), 7, ncclUint64, rank, comm, nullptr));
    NCCL_OK(ncclRecv(from_self.data(), 7, ncclUint64, rank, comm, nullptr));
    NCCL_OK(ncclGroupEnd());
    NCCL_OK(ncclGroupEnd());
    EXPECT_EQ(from_previous, message(previous, rank, 100, 1));
    EXPECT_EQ(from_self, own);

    // Two messages from each to the same rank, matched in order.
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(up.data(), 50, ncclUint64, 0, comm, nullptr));
    NCCL_OK(ncclSend(up_again.data(), 60, ncclUint64, 0, comm, nullptr));
    for (int peer = 0; rank == 0 && peer < ranks; ++peer) {
      const auto at = static_cast<size_t>(peer);
      first[at].resize(50);
      second[at].resize(60);
      NCCL_OK(ncclRecv(first[at].data(), 50, ncclUint64, peer, comm, nullptr));
      NCCL_OK(ncclRecv(second[at].data(), 60, ncclUint64, peer, comm, nullptr));
    }
    NCCL_OK(ncclGroupEnd());
    for (int peer = 0; rank == 0 && peer < ranks; ++peer) {
      EXPECT_EQ(first[static_cast<size_t>(peer)], message(peer, 0, 50, 3));
      EXPECT_EQ(second[static_cast<size_t>(peer)], message(peer, 0, 60, 4));
    }
  });
}

TEST_P(PointToPoint, OneGroupOverTwoCommunicators) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    // The second one's id travels over the first.
    RankContext again = context;
    std::vector<ncclUniqueId> ids(static_cast<size_t>(context.ranks));
    if (context.rank == 0) NCCL_OK(ncclGetUniqueId(ids.data()));
    for (auto& id : ids) id = ids[0];
    NCCL_OK(ncclGroupStart());
    for (int peer = 0; context.rank == 0 && peer < context.ranks; ++peer)
      NCCL_OK(ncclSend(&ids[0], sizeof(ncclUniqueId), ncclInt8, peer, comm, nullptr));
    NCCL_OK(ncclRecv(&again.id, sizeof(ncclUniqueId), ncclInt8, 0, comm, nullptr));
    NCCL_OK(ncclGroupEnd());
    Comm other(again);
    const int next = (context.rank + 1) % context.ranks,
              previous = (context.rank + context.ranks - 1) % context.ranks;
    const auto right = message(context.rank, next, 500, 1), left = message(context.rank, previous, 500, 2);
    std::vector<uint64_t> from_left(500), from_right(500);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(right.data(), 500, ncclUint64, next, comm, nullptr));
    NCCL_OK(ncclSend(left.data(), 500, ncclUint64, previous, other, nullptr));
    NCCL_OK(ncclRecv(from_right.data(), 500, ncclUint64, next, other, nullptr));
    NCCL_OK(ncclRecv(from_left.data(), 500, ncclUint64, previous, comm, nullptr));
    NCCL_OK(ncclGroupEnd());
    EXPECT_EQ(from_left, message(previous, context.rank, 500, 1));
    EXPECT_EQ(from_right, message(next, context.rank, 500, 2));
  });
}

uint64_t new_seed() {
  const char* given = std::getenv("EPCCL_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("random seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

/// This rank's half of a pattern that all ranks know.
class Half {
 public:
  Half(int rank, int round) : rank_(rank), round_(round) {}
  void add(int from, int to, size_t count) {
    const int number = (37 * round_ + numbers_++) % 256;  // as many as value() has room for
    if (from == rank_) parts_.push_back({to, true, message(from, to, count, number), {}});
    if (to == rank_)
      parts_.push_back(
          {from, false, std::vector<uint64_t>(count, ~uint64_t{0}), message(from, to, count, number)});
  }
  /// Sends may be of another type than the receives they meet, of the same size.
  void issue(ncclComm_t comm) {
    const ncclDataType_t type = rank_ % 2 == 0 ? ncclUint64 : ncclFloat64;
    for (Part& part : parts_)
      NCCL_OK(part.is_send ? ncclSend(part.data.data(), part.data.size(), type, part.peer, comm, nullptr)
                           : ncclRecv(part.data.data(), part.data.size(), type, part.peer, comm, nullptr));
  }
  void expect_all() const {
    for (const Part& part : parts_) {
      if (part.is_send) continue;
      EXPECT_EQ(part.data, part.expected) << "from rank " << part.peer << " to rank " << rank_;
    }
  }

 private:
  struct Part {
    int peer;
    bool is_send;
    std::vector<uint64_t> data, expected;
  };
  const int rank_, round_;
  int numbers_ = 0;
  std::deque<Part> parts_;
};

/// Draws a pattern, the same on all ranks.
void draw(Half& half, int ranks, std::mt19937_64& random) {
  epccl::tests::draw_pattern(ranks, random, [&](int from, int to) {
    const uint64_t dice = random() % 10;
    half.add(from, to, dice == 0 ? 0 : dice == 1 ? random() % 12'000 : random() % 250);
  });
}

// Alltoallvs, stars, rings, pipelines beside alltoallvs, several messages to one peer: over one communicator, or two in one group.
TEST_P(PointToPoint, RandomPatternsArriveWhole) {
  const uint64_t seed = new_seed();
  run_ranks(GetParam(), [seed](const RankContext& context) {
    std::mt19937_64 random(seed);  // the same on every rank
    Comm comm(context);
    ncclComm_t second = nullptr;
    NCCL_OK(ncclCommSplit(comm, 0, -context.rank, &second, nullptr));  // in the opposite order
    for (int round = 0; round < 12; ++round) {
      const bool is_of_both = random() % 3 == 0;
      Half half(context.rank, round), other(context.ranks - 1 - context.rank, round);
      draw(half, context.ranks, random);
      if (is_of_both) draw(other, context.ranks, random);
      NCCL_OK(ncclGroupStart());
      half.issue(comm);
      other.issue(second);
      NCCL_OK(ncclGroupEnd());
      half.expect_all();
      other.expect_all();
    }
    NCCL_OK(ncclCommDestroy(second));
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, PointToPoint,
                         testing::Values(Job{As::threads, 2}, Job{As::processes, 3}, Job{As::processes, 6, 3},
                                         Job{As::threads, 8}, Job{As::processes, 16, 4}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace nccl_programs
