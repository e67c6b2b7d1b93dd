// Staged calls of the double's GPU, without a communicator.
#pragma once

#include <memory>

#include "../cuda/gpu.hpp"
#include "runtime/streams/staged_calls.hpp"

namespace epccl::runtime {

inline constexpr uint64_t KiB = 1 << 10, MiB = 1 << 20;

inline std::unique_ptr<StagedCalls> staged_calls() {
  return device::test::take(StagedCalls::open(
      device::test::gpu(), 4 * KiB, 16,
      {[] { return Status(); }, [] { return false; }, [] { return Status(); }, {[] { return 1.0; }, {}}}));
}

}  // namespace epccl::runtime
