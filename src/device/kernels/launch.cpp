#include "device/kernels/launch.hpp"

#include <algorithm>

namespace epccl::device::kernels {
namespace {

// Several times what runs at once (2 to 8 blocks): else all would end a round together but the last, which is not full.
constexpr uint32_t blocks_of_multiprocessor = 32;

// Not one, so that a multiprocessor which is done early gets more to do.
constexpr uint64_t rounds_in_turn = 2;
// Copies of rows gain by more, as long as a block has that much to move (measured on an H200: docs/cuda-kernels.md). Sums, which prepare more, lose.
constexpr uint64_t most_rounds_of_copies = 8, bytes_of_block = 40 << 10;

}  // namespace

uint32_t Grid::blocks(uint64_t wanted) const {
  const uint64_t most = most_blocks > 0 ? most_blocks : uint64_t{multiprocessors} * blocks_of_multiprocessor;
  return static_cast<uint32_t>(std::min(wanted, most));
}

uint32_t Grid::blocks_in_turn(const Kernel& kernel, uint64_t wanted, uint64_t least_bytes) const {
  const uint64_t at_once = (residency != nullptr ? residency->of(kernel) : 0) * uint64_t{multiprocessors};
  if (at_once == 0) return blocks(wanted);
  uint64_t most = rounds_in_turn * at_once;
  if (kernel.image == Image::rows)
    most = std::clamp(least_bytes / bytes_of_block, most, most_rounds_of_copies * at_once);
  return blocks(std::min(wanted, most));
}

uint32_t Residency::of(const Kernel& kernel) const {
  const auto found = blocks_.find(std::string_view(kernel.name));
  return found == blocks_.end() ? 0 : found->second;
}

const char* to_string(Image image) {
  switch (image) {
    case Image::reduce:
      return "reduce";
    case Image::rows:
      return "rows";
    case Image::sums:
      return "sums";
    case Image::layout:
      return "layout";
    case Image::copies:
      return "copies";
    case Image::signals:
      return "signals";
  }
  return "?";
}

}  // namespace epccl::device::kernels
