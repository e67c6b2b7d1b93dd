// Staged calls of the double's GPU, without a communicator.
#pragma once

#include <memory>

#include "../cuda/gpu.hpp"
#include "runtime/streams/staged_calls.hpp"

namespace epccl::runtime {

inline constexpr uint64_t KiB = 1 << 10, MiB = 1 << 20;

struct StagedCallsOfGpu {
  DeviceRooms rooms{device::test::gpu()};
  std::unique_ptr<DeviceWorker> worker = device::test::take(DeviceWorker::open(
      device::test::gpu(),
      {[] { return Status(); }, [] { return false; }, [] { return Status(); }, {[] { return 1.0; }, {}}}));
  std::unique_ptr<StagedCalls> calls = device::test::take(StagedCalls::open(*worker, rooms, 4 * KiB, 16));
};

}  // namespace epccl::runtime
