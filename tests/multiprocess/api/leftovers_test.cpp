// What communicators that are gone leave in a process that goes on: nothing that grows.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

long entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

long descriptors() {
  return entries_of("/proc/self/fd");
}

long threads() {
  return entries_of("/proc/self/task");
}

/// Threads end when nobody waits for that.
void expect_soon(const std::function<bool()>& holds, const char* what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(holds()) << what << ": " << threads() << " threads, " << descriptors() << " descriptors";
}

epcclComm_t made(int ranks, const epcclUniqueId& id, int rank, bool blocking) {
  epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  epcclComm_t comm = nullptr;
  EXPECT_EQ(epcclCommInitRankConfig(&comm, ranks, id, rank, &config),
            blocking ? epcclSuccess : epcclInProgress);
  return comm;
}

// Far from the timeout, for which an id is kept that a rank may yet come to.
TEST(Leftovers, OfIdsWhoseRanksWereAllAbortedAreGone) {
  run_ranks({{1}, {{"EPCCL_TIMEOUT", "90"}}, {}}, [](const RankContext&) {
    constexpr int ids = 10;
    const long before = descriptors(), threads_before = threads();
    for (int i = 0; i < ids; ++i) {
      epcclUniqueId id;
      ASSERT_EQ(epcclGetUniqueId(&id), epcclSuccess);
      // The third never comes in, so none of these gets further.
      const epcclComm_t first = made(3, id, 0, false), second = made(3, id, 1, false);
      EXPECT_EQ(epcclCommAbort(first), epcclSuccess);
      EXPECT_EQ(epcclCommAbort(second), epcclSuccess);
      EXPECT_EQ(epcclCommAbort(made(3, id, 2, false)), epcclSuccess);
    }
    // The last that ended is noticed with the next communicator.
    expect_soon(
        [&] {
          epcclUniqueId id;
          EXPECT_EQ(epcclGetUniqueId(&id), epcclSuccess);
          EXPECT_EQ(epcclCommDestroy(made(1, id, 0, true)), epcclSuccess);
          return descriptors() <= before + 6 && threads() <= threads_before + 2;
        },
        "after aborts");
  });
}

TEST(Leftovers, OfIdsThatWereMadeAheadGoWithTheirCommunicators) {
  run_ranks({{1}, {}, {}}, [](const RankContext&) {
    const long before = descriptors();
    std::vector<epcclUniqueId> ids(20);
    for (epcclUniqueId& id : ids) ASSERT_EQ(epcclGetUniqueId(&id), epcclSuccess);
    for (const epcclUniqueId& id : ids) EXPECT_EQ(epcclCommDestroy(made(1, id, 0, true)), epcclSuccess);
    expect_soon([&] { return descriptors() <= before + 12; }, "after 20 communicators");
  });
}

TEST(Leftovers, OfALargeGroupGoWithItsCommunicators) {
  run_ranks({{1}, {}, {}}, [](const RankContext&) {
    const long before = threads();
    std::vector<epcclComm_t> comms(30);
    ASSERT_EQ(epcclCommInitAll(comms.data(), static_cast<int>(comms.size()), nullptr), epcclSuccess);
    EXPECT_GT(threads(), before + 20) << "which join at the same time";
    for (const epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
    expect_soon([&] { return threads() <= before + 2; }, "after a group of 30");
  });
}

}  // namespace
}  // namespace epccl::tests
