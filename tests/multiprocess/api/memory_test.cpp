#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "exchange.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

TEST(Memory, IsPageAlignedZeroedAndFreedOnce) {
  void* pointer = nullptr;
  ASSERT_EQ(epcclMemAlloc(&pointer, 10'000), epcclSuccess);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 4096, 0U);
  for (size_t i = 0; i < 10'000; ++i) ASSERT_EQ(static_cast<char*>(pointer)[i], 0);
  EXPECT_EQ(epcclMemFree(pointer), epcclSuccess);
  EXPECT_EQ(epcclMemFree(pointer), epcclInvalidArgument);
  EXPECT_EQ(epcclMemFree(nullptr), epcclSuccess);
  EXPECT_EQ(epcclMemAlloc(nullptr, 1), epcclInvalidArgument);
}

TEST(Memory, OfADeviceThatIsNoneIsRefused) {
  void* pointer = &pointer;
  EXPECT_EQ(epcclMemAllocOn(&pointer, 1, EPCCL_NO_GPU - 1), epcclInvalidArgument);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(epcclMemAllocOn(nullptr, 1, EPCCL_NO_GPU), epcclInvalidArgument);
  EXPECT_EQ(epcclMemAllocOn(&pointer, 0, EPCCL_NO_GPU), epcclSuccess);
  EXPECT_EQ(pointer, nullptr);
}

// An address range that is freed and allocated again is another window: peers must not read the old one.
TEST(Memory, ReallocatedAtTheSameAddressIsNotTakenForTheOld) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    constexpr size_t count = 20'000;
    for (int round = 0; round < 10; ++round) {
      void *in = nullptr, *out = nullptr;
      ASSERT_EQ(epcclMemAlloc(&in, 2 * count), epcclSuccess);
      ASSERT_EQ(epcclMemAlloc(&out, 2 * count), epcclSuccess);
      std::memset(in, 10 * round + context.rank + 1, 2 * count);
      ASSERT_EQ(epcclAlltoall(in, out, count, epcclUint8, comm, nullptr), epcclSuccess)
          << epcclGetLastError(comm);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(static_cast<uint8_t*>(out)[i], 10 * round + 1);
        ASSERT_EQ(static_cast<uint8_t*>(out)[count + i], 10 * round + 2);
      }
      ASSERT_EQ(epcclMemFree(in), epcclSuccess);
      ASSERT_EQ(epcclMemFree(out), epcclSuccess);
    }
  });
}

// Calls of one size go one way and the other at first (src/runtime/executor/staging_choice.hpp), and some ranks one, some the other, where
// they do not offer as much as each other.
class UnregisteredMemory : public testing::TestWithParam<const char*> {};

TEST_P(UnregisteredMemory, IsReadWhicheverWay) {
  run_ranks({{3}, {{"EPCCL_STAGING", GetParam()}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    constexpr size_t count = 48 << 10;
    std::vector<float> mine(count), all(3 * count), sum(count);
    for (int call = 0; call < 40; ++call) {
      Exchange exchange(context.rank, 3, 4 * count, call);
      ASSERT_EQ(exchange.start(comm), epcclSuccess) << epcclGetLastError(comm);
      ASSERT_EQ(exchange.wrong(), 0U) << "call " << call;
      const auto value = [&](int rank) { return static_cast<float>(100 * call + rank); };
      std::ranges::fill(mine, value(context.rank));
      ASSERT_EQ(epcclAllReduce(mine.data(), sum.data(), count, epcclFloat32, epcclSum, comm, nullptr),
                epcclSuccess);
      EXPECT_EQ(std::ranges::count(sum, value(0) + value(1) + value(2)), count) << "call " << call;
      ASSERT_EQ(epcclAllGather(mine.data(), all.data(), count, epcclFloat32, comm, nullptr), epcclSuccess);
      for (int rank = 0; rank < 3; ++rank)
        EXPECT_EQ(std::count(all.begin() + rank * count, all.begin() + (rank + 1) * count, value(rank)),
                  count);
      const int root = call % 3;
      ASSERT_EQ(epcclBroadcast(mine.data(), mine.data(), count, epcclFloat32, root, comm, nullptr),
                epcclSuccess);
      EXPECT_EQ(std::ranges::count(mine, value(root)), count);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Staging, UnregisteredMemory, testing::Values("auto", "always", "never"),
                         [](const auto& info) { return std::string(info.param); });

/// Files of /dev/shm that have a name there, of those that this process has mapped or open.
std::vector<std::string> own_files_in_dev_shm() {
  std::vector<std::string> files;
  const auto add = [&](const std::string& path) {
    if (path.starts_with("/dev/shm/") && !path.ends_with(" (deleted)")) files.push_back(path);
  };
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (const auto path = line.find('/'); path != std::string::npos) add(line.substr(path));
  std::error_code gone;  // the folder's own descriptor
  for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd"))
    add(std::filesystem::read_symlink(descriptor, gone).string());
  return files;
}

// A rank that is killed leaves nothing there, then. (Others use the folder, too: nothing is said of all that is in it.)
TEST(Memory, HasNoNameInDevShm) {
  run_ranks({{2}, {}, {}}, [&](const RankContext& context) {
    const Comm comm(context);
    void* memory = nullptr;
    ASSERT_EQ(epcclMemAlloc(&memory, 100'000), epcclSuccess);
    const auto* sent = static_cast<char*>(memory) + 50'000;
    ASSERT_EQ(epcclAllGather(sent, memory, 1000, epcclUint8, comm, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
    EXPECT_EQ(own_files_in_dev_shm(), std::vector<std::string>{});
    EXPECT_EQ(epcclMemFree(memory), epcclSuccess);
  });
}

TEST(Registration, HandsOutHandlesThatMustBeGivenBackOnce) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<char> buffer(100);
    void* handle = nullptr;
    ASSERT_EQ(epcclCommRegister(comm, buffer.data(), buffer.size(), &handle), epcclSuccess);
    EXPECT_EQ(epcclCommDeregister(comm, handle), epcclSuccess);
    EXPECT_EQ(epcclCommDeregister(comm, handle), epcclInvalidArgument);
    EXPECT_EQ(epcclCommRegister(comm, nullptr, 100, &handle), epcclInvalidArgument);
    EXPECT_EQ(epcclCommRegister(comm, buffer.data(), 100, nullptr), epcclInvalidArgument);
  });
}

// The NCCL binding asks whose one is.
TEST(Registration, IsKnownToItsCommunicatorAlone) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    epcclComm_t other = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, 0, 0, &other, nullptr), epcclSuccess) << epcclGetLastError(comm);
    std::vector<char> buffer(100);
    void* handle = nullptr;
    epcclWindow_t window = nullptr;
    ASSERT_EQ(epcclCommRegister(comm, buffer.data(), buffer.size(), &handle), epcclSuccess);
    ASSERT_EQ(epcclCommWindowRegister(comm, buffer.data(), buffer.size(), &window, EPCCL_WIN_DEFAULT),
              epcclSuccess);
    for (const void* made : {static_cast<const void*>(handle), static_cast<const void*>(window)}) {
      EXPECT_EQ(epcclIsRegistration(comm, made), 1);
      EXPECT_EQ(epcclIsRegistration(other, made), 0);
    }
    EXPECT_EQ(epcclCommDeregister(comm, handle), epcclSuccess);
    EXPECT_EQ(epcclIsRegistration(comm, handle), 0);
    EXPECT_EQ(epcclCommWindowDeregister(comm, window), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(other), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
