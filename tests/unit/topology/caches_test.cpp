// What the kernel's folders say of caches.
#include "topology/caches.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace epccl::topology {
namespace {

namespace fs = std::filesystem;

class Caches : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "cachesXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  void add(int cpu, int index, const char* level, const char* size, const char* mask) const {
    const fs::path folder = root_ / fmt::format("cpu{}/cache/index{}", cpu, index);
    fs::create_directories(folder);
    std::ofstream(folder / "level") << level << '\n';
    std::ofstream(folder / "size") << size << '\n';
    std::ofstream(folder / "shared_cpu_map") << mask << '\n';
  }
  LastLevelCaches of(const CpuList& cpus) const { return last_level_caches(cpus, root_.string()); }
  uint64_t bytes_of(const CpuList& cpus) const { return of(cpus).total; }

  fs::path root_;
};

constexpr uint64_t mega = 1 << 20;

TEST_F(Caches, OfTheHighestLevelCount) {
  add(0, 0, "1", "48K", "1");
  add(0, 1, "3", "32M", "1");
  add(0, 2, "2", "2048K", "1");
  EXPECT_EQ(bytes_of({0}), 32 * mega);
}

TEST_F(Caches, ThatSeveralCpusShareCountOnce) {
  for (const int cpu : {0, 1, 2, 3}) add(cpu, 0, "3", "32768K", cpu < 2 ? "00000003" : "0000000c");
  EXPECT_EQ(bytes_of({0, 1}), 32 * mega);
  EXPECT_EQ(bytes_of({0, 1, 2, 3}), 64 * mega);
  EXPECT_EQ(of({0, 1, 2, 3}).largest, 32 * mega);
  EXPECT_EQ(of({0, 1, 2}).total, 48 * mega);
}

TEST_F(Caches, ThatOthersShareCountInPart) {
  add(34, 0, "3", "64M", "0000000f,00000000");
  add(35, 0, "3", "64M", "0000000f,00000000");
  EXPECT_EQ(bytes_of({34}), 16 * mega);
  EXPECT_EQ(bytes_of({34, 35}), 32 * mega);
}

TEST_F(Caches, ThatTheKernelDoesNotDescribeAreUnknown) {
  EXPECT_EQ(bytes_of({}), 0U);
  EXPECT_EQ(bytes_of({7}), 0U) << "no such CPU";
  add(0, 0, "3", "a lot", "1");
  add(1, 0, "", "32M", "2");
  add(2, 0, "3", "32M", "");
  add(3, 0, "3", "32M", "no mask");
  EXPECT_EQ(bytes_of({0, 1, 2, 3}), 0U);
}

TEST(AllowedCpus, AreThoseOfThisThread) {
  const CpuList cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_TRUE(std::ranges::is_sorted(cpus));
}

}  // namespace
}  // namespace epccl::topology
