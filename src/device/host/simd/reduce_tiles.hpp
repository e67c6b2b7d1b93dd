// Walks the columns of a reduction: a tile of them stays in registers while all sources are joined. A `Tile` has
//   element_bytes
//   bytes                of one source that fill it
//   Constants(call)      what is the same for all tiles
//   Tile(constants)      no columns yet
//   load(from, scaled)   takes the first source; scaled: multiplied first
//   join(from, scaled)   another one
//   store(to)            the result
#pragma once

#include <cstring>

#include "device/host/simd/reduce_call.hpp"

namespace epccl::device {
namespace {

/// Where a tile's columns of a source are; if they are only `bytes`, after copying them to where there is room for all.
template <class Tile, bool whole>
const std::byte* columns_of(const ReduceSource& source, size_t offset, size_t bytes, std::byte* padded) {
  if constexpr (whole) return source.data + offset;
  std::memcpy(padded, source.data + offset, bytes);
  return padded;
}

/// The columns of one tile, or only the first `bytes` of them.
template <class Tile, bool whole>
void reduce_tile(const typename Tile::Constants& constants, const ReduceCall& call, size_t offset,
                 size_t bytes) {
  alignas(64) std::byte padded[whole ? 1 : Tile::bytes] = {};
  Tile tile(constants);
  const ReduceSource* source = call.sources;
  tile.load(columns_of<Tile, whole>(*source, offset, bytes, padded), call.scaled && source->raw);
  while (++source != call.sources + call.source_count)
    tile.join(columns_of<Tile, whole>(*source, offset, bytes, padded), call.scaled && source->raw);
  if constexpr (whole) return tile.store(call.destination + offset);
  tile.store(padded);
  std::memcpy(call.destination + offset, padded, bytes);
}

template <class Tile>
void reduce_in_tiles(const ReduceCall& call) {
  const typename Tile::Constants constants(call);
  const size_t bytes = call.elements * Tile::element_bytes;
  size_t at = 0;
  for (; at + Tile::bytes <= bytes; at += Tile::bytes)
    reduce_tile<Tile, true>(constants, call, at, Tile::bytes);
  if (at < bytes) reduce_tile<Tile, false>(constants, call, at, bytes - at);
}

}  // namespace
}  // namespace epccl::device
