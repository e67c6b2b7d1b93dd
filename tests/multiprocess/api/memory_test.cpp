#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

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

TEST(Memory, LeavesNothingInDevShm) {
  const auto entries = [] {
    return std::distance(std::filesystem::directory_iterator("/dev/shm"),
                         std::filesystem::directory_iterator());
  };
  const auto before = entries();
  run_ranks({{2}, {}, {1}}, [&](const RankContext& context) {
    Comm comm(context);
    EXPECT_EQ(entries(), before);
    if (context.rank == 1) _exit(0);
  });
  EXPECT_EQ(entries(), before);
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

}  // namespace
}  // namespace epccl::tests
