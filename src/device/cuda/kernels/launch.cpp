#include "device/cuda/kernels/launch.hpp"

#include <algorithm>

namespace epccl::device::cuda {
namespace {

// Several times what runs at once (2 to 8 blocks): else all would end a round together but the last, which is not full.
constexpr uint32_t blocks_of_multiprocessor = 32;

// Not one, so that a multiprocessor which is done early gets more to do.
constexpr uint32_t rounds_in_turn = 2;

}  // namespace

uint32_t Grid::blocks(uint64_t wanted) const {
  const uint64_t most = most_blocks > 0 ? most_blocks : uint64_t{multiprocessors} * blocks_of_multiprocessor;
  return static_cast<uint32_t>(std::min(wanted, most));
}

uint32_t Grid::blocks_in_turn(const Kernel& kernel, uint64_t wanted) const {
  const uint64_t resident = residency != nullptr ? residency->of(kernel) : 0;
  if (resident > 0) wanted = std::min(wanted, rounds_in_turn * resident * multiprocessors);
  return blocks(wanted);
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

}  // namespace epccl::device::cuda
