// What messages of a device pass through where the network does not reach its memory: slots, and a queue each way that fills or
// empties them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/queues/copy_line.hpp"
#include "runtime/queues/pinned_slots.hpp"

namespace epccl::runtime {

struct PinnedStage {
  static constexpr size_t kept_for_spilt = 1;  // slots that no posted receive takes
  static constexpr uint64_t aligned(uint64_t bytes) {
    return (std::max<uint64_t>(bytes, 1) + 255) / 256 * 256;
  }

  /// Room for two pieces to, and two from, every rank; of `stage_bytes` (EPCCL_STAGE_SIZE) there is twice as much at least. Allocates,
  /// and so may wait for what the device does.
  static Result<std::unique_ptr<PinnedStage>> make(device::Device& device, uint64_t stage_bytes,
                                                   uint64_t piece_bytes, int ranks) {
    EPCCL_ASSIGN(CopyLine out, CopyLine::make(device));
    EPCCL_ASSIGN(CopyLine in, CopyLine::make(device));
    auto stage = std::make_unique<PinnedStage>(device, std::move(out), std::move(in));
    const uint64_t slots = 2 * static_cast<uint64_t>(ranks) + kept_for_spilt;
    const uint64_t bytes = std::max(2 * stage_bytes, slots * aligned(piece_bytes));
    EPCCL_TRY(stage->out_slots.reserve(bytes));
    EPCCL_TRY(stage->in_slots.reserve(bytes));
    return stage;
  }
  PinnedStage(device::Device& device, CopyLine out_line, CopyLine in_line)
      : out_slots(device), in_slots(device), out(std::move(out_line)), in(std::move(in_line)) {}

  PinnedSlots out_slots, in_slots;
  CopyLine out, in;  // last: nothing moves any more when the slots go
};

/// Of a message, at once: the same on all ranks.
constexpr uint64_t piece_of_stage(uint64_t stage_bytes, int ranks) {
  // Smaller ones cost more than they are worth, if the user's stage is not smaller itself.
  constexpr uint64_t least_piece = 64 << 10;
  return std::clamp(stage_bytes / static_cast<uint64_t>(ranks), std::min(least_piece, stage_bytes),
                    stage_bytes);
}

}  // namespace epccl::runtime
