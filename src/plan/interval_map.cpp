#include "plan/interval_map.hpp"

#include <algorithm>

namespace epccl::plan {
namespace {

template <typename Vector>
auto iterator_at(Vector& vector, size_t index) {
  return vector.begin() + static_cast<std::ptrdiff_t>(index);
}

}  // namespace

IntervalMap::Position IntervalMap::find(uint64_t offset) const {
  const auto block = static_cast<size_t>(std::ranges::upper_bound(last_ends_, offset) - last_ends_.begin());
  if (block == blocks_.size()) return {block, 0};
  const auto piece = std::ranges::upper_bound(blocks_[block], offset, {}, &Piece::end);
  return {block, static_cast<size_t>(piece - blocks_[block].begin())};
}

void IntervalMap::insert(const Piece& piece) {
  Position at = find(piece.begin);
  if (at.block == blocks_.size()) {
    // Ascending writes fill one block after the other to the brim.
    if (blocks_.empty() || blocks_.back().size() == block_capacity) {
      blocks_.emplace_back();
      last_ends_.push_back(0);
    }
    blocks_.back().push_back(piece);
    last_ends_.back() = piece.end;
    return;
  }
  if (blocks_[at.block].size() == block_capacity) {
    constexpr size_t half = block_capacity / 2;
    std::vector<Piece> upper(iterator_at(blocks_[at.block], half), blocks_[at.block].end());
    blocks_[at.block].resize(half);
    blocks_.insert(iterator_at(blocks_, at.block + 1), std::move(upper));
    last_ends_.insert(iterator_at(last_ends_, at.block), blocks_[at.block].back().end);
    if (at.index >= half) at = {at.block + 1, at.index - half};
  }
  std::vector<Piece>& block = blocks_[at.block];
  block.insert(iterator_at(block, at.index), piece);
  last_ends_[at.block] = block.back().end;
}

void IntervalMap::cut(uint64_t offset) {
  const Position at = find(offset);
  if (at.block == blocks_.size()) return;
  Piece& piece = blocks_[at.block][at.index];
  if (piece.begin >= offset) return;
  Piece upper = piece;
  upper.begin = offset;
  upper.source_offset += offset - piece.begin;
  piece.end = offset;
  last_ends_[at.block] = blocks_[at.block].back().end;
  insert(upper);
}

void IntervalMap::erase(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  cut(begin);
  cut(end);
  Position at = find(begin);
  while (at.block < blocks_.size()) {
    std::vector<Piece>& block = blocks_[at.block];
    const auto first = iterator_at(block, at.index);
    const auto last =
        std::find_if(first, block.end(), [end](const Piece& piece) { return piece.begin >= end; });
    const bool more = last == block.end();
    block.erase(first, last);
    if (block.empty()) {
      blocks_.erase(iterator_at(blocks_, at.block));
      last_ends_.erase(iterator_at(last_ends_, at.block));
    } else {
      last_ends_[at.block] = block.back().end;
      ++at.block;
    }
    if (!more) return;
    at.index = 0;
  }
}

}  // namespace epccl::plan
