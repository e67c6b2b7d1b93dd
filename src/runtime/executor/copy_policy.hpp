// How an executor copies, as far as settings say.
#pragma once

#include <cstdint>

namespace epccl::runtime {

/// EPCCL_STAGING.
enum class StagingUse : uint8_t { automatic, always, never };

struct CopyPolicy {
  uint64_t streaming_bytes = 0;  // outputs of at least so much are written past the cache
  StagingUse staging = StagingUse::automatic;
};

}  // namespace epccl::runtime
