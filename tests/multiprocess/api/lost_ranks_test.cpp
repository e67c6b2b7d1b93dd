// epcclCommGetLostRanks(): what a program is told of who is lost, and that shrinking by it goes on.
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"

#include "exchange.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

using Ranks = std::vector<int>;

std::vector<int> lost(epcclComm_t comm) {
  std::vector<int> ranks(100);
  int count = -1;
  EXPECT_EQ(epcclCommGetLostRanks(comm, ranks.data(), static_cast<int>(ranks.size()), &count), epcclSuccess)
      << epcclGetLastError(comm);
  ranks.resize(static_cast<size_t>(std::max(count, 0)));
  return ranks;
}

/// A death is heard of at once; two of them not in one moment.
std::vector<int> await_lost(epcclComm_t comm, const std::vector<int>& expected) {
  std::vector<int> ranks = lost(comm);
  for (int look = 0; look < 500 && ranks != expected; ++look, usleep(10'000)) ranks = lost(comm);
  return ranks;
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

bool has_only_loopback() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return true;
  bool only = true;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const bool is_ip = each->ifa_addr != nullptr &&
                       (each->ifa_addr->sa_family == AF_INET || each->ifa_addr->sa_family == AF_INET6);
    if (is_ip && (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0) only = false;
  }
  freeifaddrs(all);
  return only;
}

void fail_in_a_collective(epcclComm_t comm, const RankContext& context) {
  while (Exchange(context.rank, context.ranks, 10).start(comm) == epcclSuccess) continue;
}

struct Case {
  std::vector<int> ranks_per_node, dead;
};
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.ranks_per_node.size() << " nodes, dead: " << testing::PrintToString(each.dead);
}

class LostRanks : public testing::TestWithParam<Case> {};
// More deaths than the control line tells one by one; and those beside that of rank 0's process, which tells.
INSTANTIATE_TEST_SUITE_P(Deaths, LostRanks,
                         testing::Values(Case{{3}, {1}}, Case{{4}, {1, 3}}, Case{{4}, {0}}, Case{{4}, {0, 2}},
                                         Case{{2, 2}, {1, 2}}, Case{{2, 2}, {0}},
                                         Case{{13}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}));

TEST_P(LostRanks, AreTheDead) {
  const std::vector<int>& dead = GetParam().dead;
  const Meeting survivors;
  run_ranks({GetParam().ranks_per_node, {{"EPCCL_TIMEOUT", "60"}}, dead}, [&](const RankContext& context) {
    const Comm comm(context);
    ASSERT_EQ(Exchange(context.rank, context.ranks, 10).start(comm), epcclSuccess);
    EXPECT_EQ(lost(comm), Ranks());
    context.meet();
    if (contains(dead, context.rank)) kill(getpid(), SIGKILL);
    fail_in_a_collective(comm, context);
    EXPECT_NE(lost(comm), Ranks()) << epcclGetLastError(comm);
    EXPECT_EQ(await_lost(comm, dead), dead);
    survivors.come(context.ranks - static_cast<int>(dead.size()));  // who leaves is lost, too
  });
}

// Neither the one that does not come is in the list, nor those that wait for it: all of them live.
TEST(StuckRanks, AreNotLost) {
  for (const std::vector<int>& shape : {std::vector{3}, std::vector{1, 1, 1}})
    run_ranks({shape, {{"EPCCL_TIMEOUT", "60"}}, {}}, [](const RankContext& context) {
      const Comm comm(context);
      ASSERT_EQ(Exchange(context.rank, context.ranks, 10).start(comm), epcclSuccess);
      ASSERT_EQ(epcclCommSetTimeout(comm, context.rank == 0 ? 3 : 60), epcclSuccess);
      context.meet();
      int got = 0;
      if (context.rank < 2) {
        EXPECT_EQ(epcclRecv(&got, 1, epcclInt, context.rank + 1, comm, nullptr), epcclRemoteError);
        EXPECT_EQ(epcclGetLastErrorReason(comm), epcclReasonTimeout) << epcclGetLastError(comm);
      }
      context.meet();
      EXPECT_EQ(lost(comm), Ranks()) << epcclGetLastError(comm);
      context.meet();
    });
}

// Of the process of the rendezvous, that is stuck: it is lost once it has been ended.
TEST(StuckRanks, AreLostWhenTheyAreEnded) {
  const Meeting survivors;
  const UniqueFd over(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  run_ranks({{3}, {{"EPCCL_TIMEOUT", "4"}}, {0}}, [&](const RankContext& context) {
    const Comm comm(context);
    ASSERT_EQ(Exchange(context.rank, context.ranks, 10).start(comm), epcclSuccess);
    context.meet();
    if (const pid_t self = getpid(); context.rank == 0) {
      if (fork() == 0) {
        for (eventfd_t one = 0, time = 0; time < 2; ++time) eventfd_read(over.get(), &one);
        kill(self, SIGKILL);
        _exit(0);
      }
      kill(self, SIGSTOP);
    }
    EXPECT_EQ(Exchange(context.rank, context.ranks, 10).start(comm), epcclRemoteError);
    EXPECT_EQ(lost(comm), Ranks()) << epcclGetLastError(comm);
    EXPECT_EQ(eventfd_write(over.get(), 1), 0);
    EXPECT_EQ(await_lost(comm, {0}), Ranks{0});
    survivors.come(2);
    int dead = 0;
    epcclComm_t rest = nullptr;
    ASSERT_EQ(epcclCommShrink(comm, &dead, 1, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclSuccess)
        << epcclGetLastError(nullptr);
    expect_works(rest, context.rank - 1, 2);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

/// The process of the rendezvous is dead, so nobody tells of rank 1's death: those that are to meet there find nobody.
void expect_lost_where_nobody_is(const std::vector<std::pair<std::string, std::string>>& settings,
                                 const Ranks& expected) {
  const Meeting failed, came_in_vain;
  run_ranks({{1, 1, 1, 1}, settings, {0, 1}}, [&](const RankContext& context) {
    const Comm comm(context);
    ASSERT_EQ(Exchange(context.rank, 4, 10).start(comm), epcclSuccess);
    context.meet();
    if (context.rank == 0) kill(getpid(), SIGKILL);
    fail_in_a_collective(comm, context);
    failed.come(3);
    if (context.rank == 1) kill(getpid(), SIGKILL);
    int dead = 0;
    epcclComm_t rest = nullptr;
    EXPECT_EQ(epcclCommShrink(comm, &dead, 1, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclRemoteError);
    EXPECT_EQ(lost(comm), expected) << epcclGetLastError(nullptr);
    came_in_vain.come(2);
  });
}

TEST(LostHost, IsOneAtAnAddressThatIsItsOwn) {
  if (has_only_loopback()) GTEST_SKIP() << "this machine has only loopback addresses";
  expect_lost_where_nobody_is({{"EPCCL_TIMEOUT", "60"}}, {0, 1});
}

// That says nothing: rank 1 may be on another machine.
TEST(LostHost, IsNoneAtALoopbackAddress) {
  expect_lost_where_nobody_is({{"EPCCL_TIMEOUT", "60"}, {"EPCCL_SOCKET_IFNAME", "lo"}}, {0});
}

TEST(LostRanksOf, AWholeCommunicatorAreThoseThatHaveLeft) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    ASSERT_EQ(Exchange(context.rank, context.ranks, 10).start(comm), epcclSuccess);
    EXPECT_EQ(lost(comm), Ranks());
    context.meet();
    if (context.rank == 1) {
      EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
      comm.forget();
    }
    context.meet();
    if (context.rank != 1) {
      EXPECT_EQ(lost(comm), Ranks{1});
    }
    context.meet();
  });
}

TEST(LostRanksArguments, AreChecked) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    std::array<int, 2> ranks{};
    int count = 7;
    EXPECT_EQ(epcclCommGetLostRanks(comm, nullptr, 0, &count), epcclSuccess);
    EXPECT_EQ(count, 0);
    EXPECT_EQ(epcclCommGetLostRanks(comm, ranks.data(), 2, nullptr), epcclInvalidArgument);
    EXPECT_EQ(epcclCommGetLostRanks(comm, ranks.data(), -1, &count), epcclInvalidArgument);
    EXPECT_EQ(epcclCommGetLostRanks(comm, nullptr, 1, &count), epcclInvalidArgument);
    EXPECT_EQ(epcclCommGetLostRanks(nullptr, ranks.data(), 2, &count), epcclInvalidArgument);
  });
}

}  // namespace
}  // namespace epccl::tests
