// What the bytes of one buffer hold during symbolic execution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace epccl::plan {

/// Bytes [begin, end) of a buffer: a copy of `source_rank`'s input from `source_offset` on (or sums: see
/// SumTable), written by step `writer`.
struct Piece {
  uint64_t begin = 0, end = 0;
  uint64_t source_offset = 0;
  int32_t source_rank = 0;
  uint32_t writer = 0;            // step id, or `nobody`: it was there from the start
  uint32_t readers = no_readers;  // head of a list kept elsewhere; both halves of a split piece share it

  static constexpr uint32_t no_readers = UINT32_MAX;
  static constexpr uint32_t nobody = UINT32_MAX;
};

/// Disjoint pieces in ascending order: sorted blocks of bounded size, so that an insertion moves a few
/// kilobytes at most however many pieces there are, and no node is allocated per piece.
class IntervalMap {
 public:
  /// Calls `visit(Piece&)` for each piece that shares a byte with [begin, end), in ascending order. `visit`
  /// must not change a piece's bounds.
  template <typename Visit>
  void for_each(uint64_t begin, uint64_t end, Visit visit) {
    if (blocks_.empty() || begin >= end) return;
    for (Position at = find(begin); at.block < blocks_.size(); ++at.block, at.index = 0) {
      std::vector<Piece>& block = blocks_[at.block];
      for (; at.index < block.size(); ++at.index) {
        if (block[at.index].begin >= end) return;
        visit(block[at.index]);
      }
    }
  }

  /// Forgets [begin, end): pieces inside vanish, pieces across an edge are cut.
  void erase(uint64_t begin, uint64_t end);

  /// Adds a piece. Its bytes must be free: erase() them first.
  void insert(const Piece& piece);

 private:
  static constexpr size_t block_capacity = 64;

  struct Position {
    size_t block, index;
  };

  /// First piece that ends after `offset`.
  Position find(uint64_t offset) const;
  /// Cuts the piece that has `offset` inside, if there is one.
  void cut(uint64_t offset);

  std::vector<std::vector<Piece>> blocks_;  // none of them empty
  std::vector<uint64_t> last_ends_;         // per block: end of its last piece
};

}  // namespace epccl::plan
