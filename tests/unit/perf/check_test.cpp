#include "perf/src/check.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace epccl::perf {
namespace {

using Bytes = std::vector<std::byte>;

Bytes block_of(const BlockId& id, size_t bytes) {
  Bytes block(bytes);
  fill_block(block, id);
  return block;
}

TEST(DataCheck, AcceptsWhatWasSent) {
  for (size_t bytes = 0; bytes < 70; ++bytes) {
    for (const size_t element : {1, 2, 4, 8}) {
      if (bytes % element != 0) continue;
      EXPECT_EQ(check_block(block_of({3, 4, 5}, bytes), {3, 4, 5}, element).wrong, 0u) << bytes << " bytes";
    }
  }
}

TEST(DataCheck, DetectsEverySingleFlippedBit) {
  for (const size_t element : {1, 2, 4, 8}) {
    const size_t bytes = 8 * element + (element < 8 ? element * 3 : 0);
    Bytes block = block_of({1, 2, 3}, bytes);
    for (size_t bit = 0; bit < 8 * bytes; ++bit) {
      const auto mask = static_cast<std::byte>(1u << (bit % 8));
      block[bit / 8] ^= mask;
      const BlockCheck check = check_block(block, {1, 2, 3}, element);
      ASSERT_EQ(check.wrong, 1u) << "element of " << element << " bytes, bit " << bit;
      ASSERT_EQ(check.first, bit / 8 / element);
      block[bit / 8] ^= mask;
    }
  }
}

TEST(DataCheck, CountsElementsAndDescribesTheFirst) {
  Bytes block = block_of({0, 1, 7}, 40);
  const Bytes right = block;
  for (const size_t at : {12, 13, 14, 20, 39}) block[at] ^= std::byte{0xFF};
  const BlockCheck check = check_block(block, {0, 1, 7}, 4);
  EXPECT_EQ(check.wrong, 3u);  // elements 3, 5 and 9
  EXPECT_EQ(check.first, 3u);
  uint32_t want = 0, got = 0;
  std::memcpy(&want, right.data() + 12, 4);
  std::memcpy(&got, block.data() + 12, 4);
  EXPECT_EQ(check.expected, fmt::format("{:#010x}", want));
  EXPECT_EQ(check.found, fmt::format("{:#010x}", got));
  EXPECT_FALSE(check.unwritten);
}

TEST(DataCheck, DetectsBlocksOfAnotherSourceDestinationOrExchange) {
  std::set<Bytes> seen;
  for (int source = 0; source < 12; ++source) {
    for (int destination = 0; destination < 12; ++destination) {
      for (uint64_t exchange = 0; exchange < 12; ++exchange) {
        EXPECT_TRUE(seen.insert(block_of({source, destination, exchange}, 16)).second)
            << source << " to " << destination << " in exchange " << exchange;
      }
    }
  }
}

TEST(DataCheck, DetectsBlocksThatAreShifted) {
  const BlockId id{2, 5, 9};
  const Bytes long_block = block_of(id, 4096);
  for (size_t shift = 1; shift <= 256; ++shift) {
    const std::span<const std::byte> shifted(long_block.data() + shift, 1024);
    EXPECT_EQ(check_block(shifted, id, 8).wrong, 128u) << "shifted by " << shift << " bytes";
  }
}

TEST(DataCheck, DetectsTwoSwappedElementsWhereTheyDiffer) {
  Bytes block = block_of({1, 1, 1}, 64);
  std::swap_ranges(block.begin() + 4, block.begin() + 8, block.begin() + 32);
  EXPECT_EQ(check_block(block, {1, 1, 1}, 4).wrong, 2u);
}

TEST(DataCheck, SaysWhereNothingWasWritten) {
  Bytes block(64);
  poison(block);
  for (const size_t element : {1, 2, 4, 8}) {
    const BlockCheck check = check_block(block, {0, 0, 1}, element);
    EXPECT_EQ(check.wrong, 64 / element);
    EXPECT_TRUE(check.unwritten);
  }
}

TEST(DataCheck, DataNeverHaveAZeroByteNorThePoison) {
  const Bytes block = block_of({0, 0, 0}, 1 << 20);
  EXPECT_EQ(std::count(block.begin(), block.end(), std::byte{0}), 0);
  EXPECT_EQ(std::count(block.begin(), block.end(), poison_byte), 0);
}

TEST(DataCheck, WordsOfABlockAreAllDifferent) {
  const Bytes block = block_of({6, 7, 8}, 8 << 16);
  std::vector<uint64_t> words(1 << 16);
  std::memcpy(words.data(), block.data(), block.size());
  std::sort(words.begin(), words.end());
  EXPECT_EQ(std::adjacent_find(words.begin(), words.end()), words.end());
}

TEST(DataCheck, GuardBytesAreCountedWhereTheyWereWritten) {
  Bytes guard(64);
  poison(guard);
  EXPECT_EQ(count_unpoisoned(guard), 0u);
  guard[0] = guard[63] = std::byte{1};
  EXPECT_EQ(count_unpoisoned(guard), 2u);
}

TEST(DataCheck, DetectsRandomDamage) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const size_t elements = 1 + random() % 5000;
    const size_t element = size_t{1} << random() % 4;
    const BlockId id{static_cast<int>(random() % 64), static_cast<int>(random() % 64), random()};
    Bytes block = block_of(id, elements * element);
    std::set<size_t> damaged;
    for (unsigned n = random() % 20; n > 0; --n) damaged.insert(random() % elements);
    for (const size_t at : damaged)
      block[at * element + random() % element] ^= static_cast<std::byte>(1 + random() % 255);
    const BlockCheck check = check_block(block, id, element);
    ASSERT_EQ(check.wrong, damaged.size());
    ASSERT_EQ(check.first, damaged.empty() ? 0 : *damaged.begin());
  }
}

}  // namespace
}  // namespace epccl::perf
