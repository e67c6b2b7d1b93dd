// The kernel by which queues of ranks that share a GPU wait for each other and post.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "launched.hpp"

namespace epccl::device::kernels::testing {
namespace {

void run_once(const WordParameters& parameters) {
  std::mt19937_64 random(1);
  run(words_launch(parameters), random);
}

uint64_t value_of(uint64_t& word) {
  return std::atomic_ref(word).load();
}

/// Words of the host's memory, and of the GPU's.
struct Words {
  std::vector<uint64_t> far = std::vector<uint64_t>(64), near = std::vector<uint64_t>(64);
};

/// Waits for the first `count` of them to be `at_least`, and raises the 63rd.
WordParameters wait_for(Words& words, uint32_t count, uint64_t at_least) {
  WordParameters made;
  for (uint32_t i = 0; i < count; ++i)
    made.awaited[made.awaited_count++] = {&words.far[i], &words.near[i], at_least};
  made.raised[made.raised_count++] = {&words.far[63], &words.near[63], at_least};
  return made;
}

TEST(Words, AreRaisedInBothMemoriesWithoutAWait) {
  Words words;
  WordParameters raise = wait_for(words, 0, 5);
  raise.raised[raise.raised_count++] = {&words.far[7], nullptr, 6};
  run_once(raise);
  EXPECT_EQ(words.far[63], 5U);
  EXPECT_EQ(words.near[63], 5U);
  EXPECT_EQ(words.far[7], 6U);
  EXPECT_EQ(words.near[7], 0U);
}

TEST(Words, AreAwaitedAllOfThemWhereTheyAreNear) {
  for (const uint32_t late : {0U, 5U, max_awaited_words - 1}) {
    Words words;
    words.near.assign(64, 9);
    words.near[63] = 0;
    words.near[late] = 8;
    std::thread kernel([&] { run_once(wait_for(words, max_awaited_words, 9)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(value_of(words.far[63]), 0U) << "word " << late << " is not there";
    std::atomic_ref(words.near[late]).store(10);
    kernel.join();
    EXPECT_EQ(words.far[63], 9U);
  }
}

// A rank that gives up lets all go on, and a thread of the host posts there alone.
TEST(Words, OfTheHostAloneLetAWaitThroughToo) {
  Words words;
  std::thread kernel([&] { run_once(wait_for(words, 3, 4)); });
  for (size_t i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    EXPECT_EQ(value_of(words.far[63]), 0U);
    std::atomic_ref(words.far[i]).store(uint64_t{1} << 62);
  }
  kernel.join();
  EXPECT_EQ(words.near[63], 4U);
}

TEST(Words, AreAwaitedAtTheHostWhereNoneIsNear) {
  Words words;
  WordParameters wait = wait_for(words, 2, 4);
  wait.awaited[1].near = nullptr;
  words.near[0] = words.near[1] = 4;
  std::thread kernel([&] { run_once(wait); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(value_of(words.far[63]), 0U);
  std::atomic_ref(words.far[1]).store(4);
  kernel.join();
  EXPECT_EQ(words.far[63], 4U);
}

// As ranks of a node do: each says that it has come, and waits for all.
TEST(Words, KeepRanksTogether) {
  constexpr size_t ranks = 4;
  constexpr uint64_t rounds = 50;
  Words words;
  std::array<std::atomic<uint64_t>, ranks> inside{};
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      for (uint64_t round = 1; round <= rounds; ++round) {
        inside[rank] = round;
        WordParameters come;
        come.raised[come.raised_count++] = {&words.far[rank], &words.near[rank], round};
        run_once(come);
        WordParameters wait = wait_for(words, ranks, round);
        wait.raised_count = 0;
        run_once(wait);
        for (const auto& other : inside) EXPECT_GE(other.load(), round);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace epccl::device::kernels::testing
