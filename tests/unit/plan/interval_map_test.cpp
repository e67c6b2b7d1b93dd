// IntervalMap against a plain array of bytes.
#include "plan/interval_map.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace epccl::plan::testing {
namespace {

Piece piece(uint64_t begin, uint64_t end, uint64_t source_offset, uint32_t writer) {
  return {begin, end, source_offset, 0, writer, Piece::no_readers};
}

std::vector<Piece> pieces(IntervalMap& map, uint64_t begin, uint64_t end) {
  std::vector<Piece> found;
  map.for_each(begin, end, [&](const Piece& it) { found.push_back(it); });
  return found;
}

TEST(IntervalMap, EraseCutsPiecesAcrossItsEdges) {
  IntervalMap map;
  map.insert(piece(10, 20, 100, 1));
  map.erase(13, 15);
  const auto left = pieces(map, 0, 100);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].begin, 10u);
  EXPECT_EQ(left[0].end, 13u);
  EXPECT_EQ(left[1].begin, 15u);
  EXPECT_EQ(left[1].end, 20u);
  EXPECT_EQ(left[1].source_offset, 105u) << "the upper half keeps its origin";
}

TEST(IntervalMap, FindsOnlyPiecesThatShareAByte) {
  IntervalMap map;
  map.insert(piece(0, 4, 0, 1));
  map.insert(piece(8, 12, 0, 2));
  map.insert(piece(4, 8, 0, 3));
  EXPECT_EQ(pieces(map, 4, 8).size(), 1u);
  EXPECT_EQ(pieces(map, 3, 9).size(), 3u);
  EXPECT_TRUE(pieces(map, 12, 99).empty());
  EXPECT_TRUE(pieces(map, 5, 5).empty());
}

TEST(IntervalMap, BehavesAsAnArrayOfBytes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr uint64_t size = 5000;
  IntervalMap map;
  std::vector<std::optional<uint64_t>> bytes(size);  // source offset of each byte
  for (uint32_t round = 0; round < 4000; ++round) {
    // Mostly short ranges, so that there are many blocks; now and then one that wipes out several.
    const uint64_t begin = random() % size;
    const uint64_t end = std::min(size, begin + 1 + random() % (round % 50 == 0 ? 1500 : 6));
    map.erase(begin, end);
    for (uint64_t at = begin; at < end; ++at) bytes[at].reset();
    if (random() % 8 != 0) {
      const uint64_t source = random();
      map.insert(piece(begin, end, source, round));
      for (uint64_t at = begin; at < end; ++at) bytes[at] = source + (at - begin);
    }
    if (round % 100 != 99) continue;
    std::vector<std::optional<uint64_t>> found(size);
    uint64_t last = 0;
    for (const Piece& it : pieces(map, 0, size)) {
      ASSERT_LE(last, it.begin);
      ASSERT_LT(it.begin, it.end);
      last = it.end;
      for (uint64_t at = it.begin; at < it.end; ++at) found[at] = it.source_offset + (at - it.begin);
    }
    ASSERT_EQ(found, bytes) << "after round " << round;
  }
}

}  // namespace
}  // namespace epccl::plan::testing
