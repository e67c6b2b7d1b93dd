#include <algorithm>
#include <cassert>

#include "device/kernels/body/rows.hpp"
#include "device/kernels/launch.hpp"

namespace epccl::device::kernels {

Launch<CopiesParameters> copies_launch(std::span<const SmallCopy> copies, std::span<const Signal> signals,
                                       uint32_t* arrived, const Grid& grid) {
  assert(copies.size() <= max_small_copies && signals.size() <= max_signals);
  assert(signals.empty() || arrived != nullptr);
  Launch<CopiesParameters> launch;
  launch.kernel = {"epccl_copies", Image::copies};
  CopiesParameters& parameters = launch.parameters;
  std::ranges::copy(copies, parameters.copies);
  std::ranges::copy(signals, parameters.signals);
  parameters.arrived = arrived;
  parameters.copy_count = static_cast<uint32_t>(copies.size());
  parameters.signal_count = static_cast<uint32_t>(signals.size());
  for (const SmallCopy& copy : copies) {
    parameters.tiles_of_copy = std::max(parameters.tiles_of_copy, move_tiles(copy.bytes));
    launch.least_bytes += 2 * copy.bytes;
  }
  constexpr uint64_t warps = block_threads / warp_lanes;
  const uint64_t tiles = uint64_t{parameters.tiles_of_copy} * copies.size();
  // Signals alone need a warp, too.
  launch.blocks = grid.blocks(std::max<uint64_t>((tiles + warps - 1) / warps, signals.empty() ? 0 : 1));
  return launch;
}

}  // namespace epccl::device::kernels
