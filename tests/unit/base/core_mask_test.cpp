// The cores of machines that have more than a cpu_set_t. The kernel's part is played by the functions below, which come before libc's.
#include "base/core_mask.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace {

/// A machine of so many cores, of which the threads may use the last and each that is a multiple of 1000; 0: this one.
int cores_of_machine = 0;

}  // namespace

extern "C" int sched_getaffinity(pid_t thread, size_t bytes, cpu_set_t* set) noexcept {
  if (cores_of_machine == 0) {
    const long written = syscall(SYS_sched_getaffinity, thread, bytes, set);
    if (written > 0 && static_cast<size_t>(written) < bytes)
      std::memset(reinterpret_cast<char*>(set) + written, 0, bytes - static_cast<size_t>(written));
    return written < 0 ? -1 : 0;
  }
  if (bytes * 8 < static_cast<size_t>(cores_of_machine)) {
    errno = EINVAL;
    return -1;
  }
  CPU_ZERO_S(bytes, set);
  for (int core = 0; core < cores_of_machine; ++core)
    if (core % 1000 == 0 || core + 1 == cores_of_machine) CPU_SET_S(static_cast<size_t>(core), bytes, set);
  return 0;
}

namespace epccl {
namespace {

TEST(CoreMask, KnowsTheCoresOfThisThread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) GTEST_SKIP() << "a machine of more than a cpu_set_t";
  const std::vector<int> cores = allowed_cores();
  EXPECT_EQ(cores.size(), static_cast<size_t>(CPU_COUNT(&set)));
  for (const int core : cores) EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(core), &set)) << core;
}

TEST(CoreMask, KnowsThoseOfALargeMachine) {
  for (const int machine : {1024, 1025, 2049, 4096, 65536}) {
    cores_of_machine = machine;
    std::vector<int> expected;
    for (int core = 0; core < machine - 1; core += 1000) expected.push_back(core);
    expected.push_back(machine - 1);
    EXPECT_EQ(allowed_cores(), expected) << machine;
    EXPECT_TRUE(CoreMask::of_this_thread().has(machine - 1));
    EXPECT_FALSE(CoreMask::of_this_thread().has(machine));
  }
  cores_of_machine = 0;
}

TEST(CoreMask, HasTheCoresItIsMadeOf) {
  const CoreMask mask(std::array{5000, 3, 1024});
  EXPECT_EQ(mask.cores(), (std::vector<int>{3, 1024, 5000}));
  EXPECT_FALSE(mask.has(4));
  EXPECT_FALSE(mask.has(60000));
}

TEST(CoreMask, IsWhereTheThreadRuns) {
  const CoreMask before = CoreMask::of_this_thread();
  const int first = before.cores().front();
  EXPECT_TRUE(CoreMask(std::array{first}).apply());
  EXPECT_EQ(allowed_cores(), std::vector<int>{first});
  EXPECT_TRUE(CoreMask::all().apply());
  EXPECT_TRUE(before.apply());
  EXPECT_EQ(allowed_cores(), before.cores());
  EXPECT_FALSE(CoreMask(std::array{60000}).apply()) << "no machine has that";
}

}  // namespace
}  // namespace epccl
