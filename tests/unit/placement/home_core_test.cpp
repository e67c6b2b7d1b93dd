// Ranks that outnumber the cores of their machine share them evenly, neighbours together.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <vector>

#include "runtime/executor/placement.hpp"

namespace {

/// So many calls from now on succeed, then one is refused; negative: none is.
int calls_until_refusal = -1;

}  // namespace

// Comes before libc's.
extern "C" int sched_setaffinity(pid_t thread, size_t bytes, const cpu_set_t* set) noexcept {
  if (calls_until_refusal >= 0 && calls_until_refusal-- == 0) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(syscall(SYS_sched_setaffinity, thread, bytes, set));
}

namespace epccl::runtime {
namespace {

std::vector<int> cores_of_this_thread() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores;
}

/// Runs on `core` alone while it lives.
class On {
 public:
  explicit On(int core) {
    EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  On(const On&) = delete;
  On& operator=(const On&) = delete;
  ~On() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_{};
};

TEST(HomeCore, EachCoreHasAsManyRanksAsAnother) {
  const std::vector<int> cores = cores_of_this_thread();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  for (const size_t share : {size_t{2}, size_t{3}, size_t{8}}) {
    std::map<int, size_t> ranks;
    for (size_t position = 0; position < share * cores.size(); ++position)
      ++ranks[home_core(position, share * cores.size(), share)];
    EXPECT_EQ(ranks.size(), cores.size());
    for (const auto& [core, count] : ranks) EXPECT_EQ(count, share) << "core " << core;
  }
}

TEST(HomeCore, NeighboursShareOne) {
  const std::vector<int> cores = cores_of_this_thread();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  const size_t ranks = 4 * cores.size();
  for (size_t position = 0; position < ranks; ++position)
    EXPECT_EQ(home_core(position, ranks, 0), cores[position / 4]) << "position " << position;
}

TEST(HomeCore, NodesBeginWithDifferentOnes) {
  const std::vector<int> cores = cores_of_this_thread();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  for (size_t node = 0; node < 2 * cores.size(); ++node)
    EXPECT_EQ(home_core(0, 2 * cores.size(), node), cores[node % cores.size()]) << "node " << node;
}

TEST(HomeCore, WhereThereIsNoChoiceThereIsNone) {
  const On one(cores_of_this_thread().front());
  EXPECT_EQ(home_core(1, 8, 0), -1);
}

TEST(HomeCore, AThreadThatGoesThereIsFreeToMoveOn) {
  const std::vector<int> before = cores_of_this_thread();
  for (const int core : before) {
    go_to_core(core);
    EXPECT_EQ(cores_of_this_thread(), before);
  }
  go_to_core(-1);
  EXPECT_EQ(cores_of_this_thread(), before);
}

// As where the control group was given other cores meanwhile.
TEST(HomeCore, AThreadThatCannotHaveItsCoresBackIsNotLeftOnOne) {
  const std::vector<int> before = cores_of_this_thread();
  if (before.size() < 2) GTEST_SKIP() << "one core";
  { const On first(before.front()); }
  const int other = sched_getcpu() == before[1] ? before[0] : before[1];
  calls_until_refusal = 1;
  go_to_core(other);
  EXPECT_LT(calls_until_refusal, 0) << "nothing was refused";
  calls_until_refusal = -1;
  EXPECT_GT(cores_of_this_thread().size(), 1u);
}

}  // namespace
}  // namespace epccl::runtime
