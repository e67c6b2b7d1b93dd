// How the warps of a launch share rows: a row is cut into tiles, tiles are handed out in turn. Copies of tiles.
#pragma once

#include <bit>

#include "device/kernels/body/vector.hpp"
#include "device/kernels/parameters.hpp"

namespace epccl::device::kernels {

/// The tiles of a warp: every count-th of all, row by row.
class Tiles {
 public:
  EPCCL_DEVICE Tiles(uint32_t index, uint32_t count, uint32_t tiles_of_row)
      : of_row_(tiles_of_row),
        row_step_(count / tiles_of_row),
        tile_step_(count % tiles_of_row),
        row_(index / tiles_of_row),
        tile_(index % tiles_of_row) {}

  EPCCL_DEVICE uint64_t row() const { return row_; }
  EPCCL_DEVICE uint32_t tile() const { return tile_; }
  EPCCL_DEVICE void next() {
    row_ += row_step_;
    tile_ += tile_step_;
    if (tile_ < of_row_) return;
    tile_ -= of_row_;
    ++row_;
  }

 private:
  uint32_t of_row_, row_step_, tile_step_;
  uint64_t row_;
  uint32_t tile_;
};

/// use(i) for each i below `count`, a lane for each.
template <class Warp, class Use>
EPCCL_DEVICE void for_each_number(const Warp& warp, uint64_t count, Use use) {
  const uint64_t step = uint64_t{warp.count()} * warp_lanes;
  for (uint64_t first = uint64_t{warp.index()} * warp_lanes; first < count; first += step)
    warp.each([&](uint32_t lane) {
      if (first + lane < count) use(first + lane);
    });
}

/// Eight bytes that were written as one thing, by one access.
template <class T>
EPCCL_DEVICE T load_eight(const T* from) {
  static_assert(sizeof(T) == 8 && alignof(T) == 8);
#ifdef __CUDA_ARCH__
  return std::bit_cast<T>(*reinterpret_cast<const uint2*>(from));
#else
  return *from;
#endif
}

EPCCL_DEVICE uint32_t rows_of(const RowCount& rows) {
  if (rows.counted == nullptr || *rows.counted > rows.most) return rows.most;
  return *rows.counted;
}

/// no_row where the i-th row is to be left out.
EPCCL_DEVICE uint32_t row_of(const RowList& rows, uint64_t i) {
  if (rows.list == nullptr) return static_cast<uint32_t>(i);
  const uint32_t row = rows.list[i];
  return row == no_row ? no_row : row - rows.first;
}

EPCCL_DEVICE std::byte* at(const RowArray& array, uint32_t row) {
  return array.data + row * array.stride;
}

// Vectors that a lane moves at once.
inline constexpr uint32_t move_vectors = 4;
inline constexpr uint32_t move_tile_vectors = move_vectors * warp_lanes;

/// Of a run of bytes; `aligned`: which goes to 16-byte boundaries.
constexpr uint32_t move_tiles(uint64_t bytes, bool aligned = false) {
  const uint64_t vectors = aligned ? (bytes + vector_bytes - 1) / vector_bytes : VectorsOf::most(bytes);
  return static_cast<uint32_t>((vectors + move_tile_vectors - 1) / move_tile_vectors);
}

/// A lane's vectors of a tile, of a row that begins at a 16-byte boundary; those of them that are whole.
struct LoadedTile {
  Vector vector[move_vectors];

  EPCCL_DEVICE void load(const std::byte* row, uint64_t first, uint64_t whole) {
    EPCCL_UNROLL
    for (uint32_t v = 0; v < move_vectors; ++v) {
      const uint64_t i = first + v * warp_lanes;
      if (i < whole) vector[v] = load_aligned<Vector>(row + i * vector_bytes);
    }
  }
  EPCCL_DEVICE void store(std::byte* row, uint64_t first, uint64_t whole) const {
    EPCCL_UNROLL
    for (uint32_t v = 0; v < move_vectors; ++v) {
      const uint64_t i = first + v * warp_lanes;
      if (i < whole) store_aligned(row + i * vector_bytes, vector[v]);
    }
  }
};

/// A lane's vectors of a tile, from `first_whole` on, one by one.
EPCCL_DEVICE void copy_slowly(std::byte* to, const std::byte* from, uint64_t bytes, uint64_t first,
                              uint64_t end, uint64_t first_whole) {
  const VectorsOf result(to, bytes, 1);
  const uint64_t all = result.count();
  for (uint64_t i = first; i < end && i < all; i += warp_lanes)
    if (i >= first_whole) result.store(i, Bytes{from, bytes}.load(result.offset(i), result.part(i)));
}

/// A lane's vectors of a tile of a row.
EPCCL_DEVICE void copy_tile(std::byte* to, const std::byte* from, uint64_t bytes, uint32_t tile,
                            uint32_t lane) {
  const uint64_t begin = uint64_t{tile} * move_tile_vectors, end = begin + move_tile_vectors;
  const bool aligned = misalignment(to) == 0 && misalignment(from) == 0;
  const uint64_t whole = aligned ? bytes / vector_bytes : 0;
  if (begin < whole) {
    LoadedTile loaded;
    loaded.load(from, begin + lane, whole);
    loaded.store(to, begin + lane, whole);
  }
  if (end > whole) copy_slowly(to, from, bytes, begin + lane, end, whole);
}

}  // namespace epccl::device::kernels
