// Many small copies, then signals (CopiesParameters has the order of memory).
#pragma once

#include "device/kernels/body/rows.hpp"
#include "device/kernels/body/shared_words.hpp"

namespace epccl::device::kernels {

template <class Warp>
EPCCL_DEVICE void copies_body(const Warp& warp, const CopiesParameters& parameters) {
  if (parameters.tiles_of_copy > 0) {
    for (Tiles tiles(warp.index(), warp.count(), parameters.tiles_of_copy);
         tiles.row() < parameters.copy_count; tiles.next()) {
      const SmallCopy& copy = parameters.copies[tiles.row()];
      if (tiles.tile() >= move_tiles(copy.bytes)) continue;
      warp.each(
          [&](uint32_t lane) { copy_tile(copy.destination, copy.source, copy.bytes, tiles.tile(), lane); });
    }
  }
  if (parameters.signal_count == 0 || !warp.is_last(parameters.arrived)) return;
  warp.each([&](uint32_t lane) {
    for (uint32_t i = lane; i < parameters.signal_count; i += warp_lanes)
      store_release(parameters.signals[i].word, parameters.signals[i].value);
  });
}

}  // namespace epccl::device::kernels
