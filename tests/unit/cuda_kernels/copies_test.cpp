// The kernel of small copies, run on the host warp by warp: what it copies, and when it tells others.
#include <gtest/gtest.h>

#include <deque>

#include "../device/numbers.hpp"
#include "buffer.hpp"
#include "device/kernels/body/copies.hpp"
#include "host_warp.hpp"

namespace epccl::device::kernels::testing {
namespace {

struct Problem {
  explicit Problem(std::mt19937_64& random) {
    const uint64_t copies = random() % 30, signals = random() % 40 % (max_signals + 1);
    for (uint64_t i = 0; i < copies; ++i) {
      const uint64_t bytes = random() % 4 == 0 ? random() % 9000 : random() % 300;
      from.emplace_back(bytes, random() % 16).fill(random);
      to.emplace_back(bytes, random() % 2 == 0 ? 0 : random() % 16);
      list.push_back({from.back().data(), to.back().data(), bytes});
    }
    words.assign(signals, 0);
    for (uint64_t i = 0; i < signals; ++i) told.push_back({&words[i], 100 + i});
  }
  bool all_copied() const {
    for (size_t i = 0; i < from.size(); ++i)
      if (!std::ranges::equal(from[i].bytes(), to[i].bytes()) || !to[i].intact()) return false;
    return true;
  }
  bool any_told() const {
    return std::ranges::any_of(words, [](uint64_t word) { return word != 0; });
  }
  bool all_told() const {
    for (size_t i = 0; i < words.size(); ++i)
      if (words[i] != 100 + i) return false;
    return true;
  }

  std::deque<Buffer> from, to;
  std::vector<SmallCopy> list;
  std::vector<uint64_t> words;
  std::vector<Signal> told;
};

TEST(CopiesKernel, TellsOthersWhenAllIsCopied) {
  std::mt19937_64 random = device::testing::seeded_generator();
  uint32_t arrived = 0;  // the same for all launches
  for (int repetition = 0; repetition < 200; ++repetition) {
    Problem problem(random);
    const auto launch =
        copies_launch(problem.list, problem.told, &arrived, {1 + static_cast<uint32_t>(random() % 5)});
    run(launch, random, [&](const HostWarp& warp, const CopiesParameters& parameters) {
      copies_body(warp, parameters);
      if (problem.any_told()) {
        ASSERT_TRUE(problem.all_copied()) << "repetition " << repetition;
      }
    });
    ASSERT_TRUE(problem.all_copied()) << "repetition " << repetition;
    ASSERT_TRUE(problem.all_told()) << "repetition " << repetition;
    ASSERT_EQ(arrived, 0U);
  }
}

TEST(CopiesLaunch, HasAWarpForSignalsAloneAndNoneForNothing) {
  uint64_t word = 0;
  uint32_t arrived = 0;
  const Signal signal{&word, 1};
  EXPECT_EQ(copies_launch({}, {&signal, 1}, &arrived, {}).blocks, 1U);
  EXPECT_EQ(copies_launch({}, {}, nullptr, {}).blocks, 0U);
}

}  // namespace
}  // namespace epccl::device::kernels::testing
