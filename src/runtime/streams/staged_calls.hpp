// Collectives on a device's memory by way of pinned host memory: what works with every transport and every algorithm.
//
//   user's stream   ... record -> wait ---------------------------------------------------> goes on
//   worker thread          |      copy in slice 0 | run it on host memory    | run slice 1 ... |
//   copy engine            +--->                    copy in slice 1 | copy out slice 0 ...     +---> word
//
// The caller does not block, but for first_calls.hpp. Slices are the same part of every block of a buffer, so that a slice is a call of its
// own, with smaller blocks; two are under way at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/streams/device_rooms.hpp"
#include "runtime/streams/device_worker.hpp"
#include "runtime/streams/turn.hpp"

namespace epccl::runtime {

class StagedCalls {
 public:
  /// `worker` makes the calls, and ends before this does. `slice_bytes`: of a buffer, at most, as far as whole elements allow; at least
  /// `least_slice`.
  static Result<std::unique_ptr<StagedCalls>> open(const DeviceWorker& worker, DeviceRooms& rooms,
                                                   uint64_t slice_bytes, uint64_t least_slice);

  DeviceRooms& rooms() const { return rooms_; }
  uint64_t slice_bytes() const { return slice_bytes_; }

  /// Buffers of a call: `input_blocks` and `output_blocks` (0: none) of `block_bytes` each.
  struct Blocks {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    int input_blocks = 0, output_blocks = 0;
    uint64_t block_bytes = 0;
    uint64_t part_bytes = 0;  // of a block, in a slice: the same on every rank
  };
  /// Runs one slice: blocks of `bytes`, packed.
  using RunSlice =
      std::function<Status(const std::byte* input, std::byte* output, uint64_t first, uint64_t bytes)>;
  Status run(const Turn& turn, const Blocks& call, const RunSlice& run_slice);

  /// A part of a buffer, at the same offset on the host.
  struct Piece {
    std::byte* device = nullptr;
    uint64_t offset = 0, bytes = 0;
  };
  /// All at once, through memory that was borrowed for it: `inputs` are copied in, `outputs` out.
  using RunWhole = std::function<Status(const std::byte* input, std::byte* output)>;
  Status run_whole(const Turn& turn, const std::vector<Piece>& inputs, std::byte* input,
                   const std::vector<Piece>& outputs, std::byte* output, const RunWhole& run_whole);

  // The same, step by step: after the turn has begun, each waits for its copies.
  Status copy_pieces_in(const std::vector<Piece>& pieces, std::byte* host);
  Status copy_pieces_out(const std::vector<Piece>& pieces, const std::byte* host);

  /// Copies a few bytes of the device to any memory of the host after the turn has begun, and waits for them.
  Status fetch(const Turn& turn, void* to, const std::byte* from, uint64_t bytes);

 private:
  struct Slot {
    explicit Slot(device::Device& device) : input(device), output(device) {}
    DeviceRoom input, output;
    std::unique_ptr<device::QueueEvent> copied_in, copied_out;
  };

  StagedCalls(const DeviceWorker& worker, DeviceRooms& rooms, uint64_t slice_bytes);
  Status prepare(uint64_t slot_bytes);
  Status copy_in(const Blocks& call, uint64_t first, uint64_t bytes, Slot& slot);
  Status copy_out(const Blocks& call, uint64_t first, uint64_t bytes, Slot& slot);
  Status run_slices(const Blocks& call, const RunSlice& run_slice);

  const DeviceWorker& worker_;
  DeviceRooms& rooms_;
  const uint64_t slice_bytes_;
  DeviceRoom few_bytes_;
  std::array<Slot, 2> slots_;
  std::unique_ptr<device::Queue> in_, out_;
};

}  // namespace epccl::runtime
