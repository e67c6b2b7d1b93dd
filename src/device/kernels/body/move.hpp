// Rows by list: to one place each (move), or to several (spread).
#pragma once

#include "device/kernels/body/rows.hpp"

namespace epccl::device::kernels {

/// Of parts [first, part_count) of a row.
template <class Parameters>
EPCCL_DEVICE uint32_t tiles_of_parts(const Parameters& parameters, uint32_t first) {
  uint32_t tiles = 0;
  for (uint32_t part = first; part < parameters.part_count; ++part) tiles += parameters.parts[part].tiles;
  return tiles;
}

/// Which part a tile belongs to; `tile` becomes its number there.
template <class Parameters>
EPCCL_DEVICE uint32_t part_of(const Parameters& parameters, uint32_t first, uint32_t& tile) {
  uint32_t part = first;
  while (tile >= parameters.parts[part].tiles) tile -= parameters.parts[part++].tiles;
  return part;
}

/// A tile of one of the parts from `first_part` on.
template <class Warp>
EPCCL_DEVICE void move_tile(const Warp& warp, const MoveParameters& parameters, uint64_t i, uint32_t tile,
                            uint32_t first_part) {
  const MoveParameters::Part& part = parameters.parts[part_of(parameters, first_part, tile)];
  const uint32_t from = row_of(parameters.sources, i), to = row_of(parameters.destinations, i);
  if (from == no_row || to == no_row) return;
  std::byte* const destination = at(part.destination, to);
  const std::byte* const source = at(part.source, from);
  warp.each([&](uint32_t lane) { copy_tile(destination, source, part.bytes, tile, lane); });
}

template <class Warp>
EPCCL_DEVICE void move_body(const Warp& warp, const MoveParameters& parameters) {
  const uint32_t rows = rows_of(parameters.rows), tiles_of_row = tiles_of_parts(parameters, 0);
  for (Tiles tiles(warp.index(), warp.count(), tiles_of_row); tiles.row() < rows; tiles.next())
    move_tile(warp, parameters, tiles.row(), tiles.tile(), 0);
}

/// A lane's vectors of a tile.
EPCCL_DEVICE void clear_tile(std::byte* to, uint64_t bytes, uint32_t tile, uint32_t lane) {
  const VectorsOf row(to, bytes, 1);
  const uint64_t begin = uint64_t{tile} * move_tile_vectors, all = row.count();
  for (uint64_t i = begin + lane; i < begin + move_tile_vectors && i < all; i += warp_lanes) row.store(i, {});
}

template <class Warp>
EPCCL_DEVICE void clear_body(const Warp& warp, const MoveParameters& parameters) {
  const uint32_t rows = rows_of(parameters.rows), tiles_of_row = tiles_of_parts(parameters, 0);
  for (Tiles tiles(warp.index(), warp.count(), tiles_of_row); tiles.row() < rows; tiles.next()) {
    const auto row = static_cast<uint32_t>(tiles.row());
    if (parameters.sources.list[row] != no_row) continue;
    uint32_t tile = tiles.tile();
    const MoveParameters::Part& part = parameters.parts[part_of(parameters, 0, tile)];
    warp.each([&](uint32_t lane) { clear_tile(at(part.destination, row), part.bytes, tile, lane); });
  }
}

EPCCL_DEVICE Target target_of(const SpreadParameters& parameters, uint64_t i, uint32_t place) {
  if (parameters.targets == nullptr) return {static_cast<uint32_t>(i), 0};
  return load_eight(parameters.targets + i * parameters.width + place);
}

/// Null: nowhere.
EPCCL_DEVICE std::byte* place_of(const SpreadParameters::Part& part, const Target& target) {
  if (target.row == no_row) return nullptr;
  return part.destinations[target.peer] + target.row * part.destination_stride;
}

/// A lane's vectors of a tile, to all places of a row.
EPCCL_DEVICE void spread_vectors(const SpreadParameters& parameters, const SpreadParameters::Part& part,
                                 const std::byte* source, uint64_t i, uint32_t tile, uint32_t lane) {
  const uint64_t begin = uint64_t{tile} * move_tile_vectors, end = begin + move_tile_vectors;
  const uint64_t whole = misalignment(source) == 0 ? part.bytes / vector_bytes : 0;
  LoadedTile loaded;
  loaded.load(source, begin + lane, whole);
  for (uint32_t place = 0; place < parameters.width; ++place) {
    std::byte* const to = place_of(part, target_of(parameters, i, place));
    if (to == nullptr) continue;
    const uint64_t at_once = misalignment(to) == 0 ? whole : 0;
    if (at_once > 0) loaded.store(to, begin + lane, at_once);
    if (end > at_once) copy_slowly(to, source, part.bytes, begin + lane, end, at_once);
  }
}

/// A tile of one of the parts from `first_part` on.
template <class Warp>
EPCCL_DEVICE void spread_tile(const Warp& warp, const SpreadParameters& parameters, uint64_t i, uint32_t tile,
                              uint32_t first_part) {
  const SpreadParameters::Part& part = parameters.parts[part_of(parameters, first_part, tile)];
  const uint32_t from = row_of(parameters.sources, i);
  if (from == no_row) return;
  const std::byte* const source = at(part.source, from);
  warp.each([&](uint32_t lane) { spread_vectors(parameters, part, source, i, tile, lane); });
}

template <class Warp>
EPCCL_DEVICE void spread_body(const Warp& warp, const SpreadParameters& parameters) {
  const uint32_t rows = rows_of(parameters.rows), tiles_of_row = tiles_of_parts(parameters, 0);
  for (Tiles tiles(warp.index(), warp.count(), tiles_of_row); tiles.row() < rows; tiles.next())
    spread_tile(warp, parameters, tiles.row(), tiles.tile(), 0);
}

}  // namespace epccl::device::kernels
