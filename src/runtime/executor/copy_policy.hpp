// How an executor copies, as far as settings say.
#pragma once

#include <cstdint>

namespace epccl::runtime {

/// EPCCL_STAGING.
enum class StagingUse : uint8_t { automatic, always, never };

struct CopyPolicy {
  uint64_t streaming_bytes = 8 << 20;  // smaller outputs are written through the cache
  bool keeps_outputs = true;           // and larger ones, where that keeps them
  uint64_t cached_bytes = 0;           // what a call of a rank may have of the last-level cache; 0: unknown
  StagingUse staging = StagingUse::automatic;

  /// Whether all that a call reads and writes here is likely to stay in the last-level cache.
  bool keeps(uint64_t bytes) const { return bytes <= cached_bytes; }
  /// Whether such an output is written past the cache: what it would take the place of is worth more than itself.
  bool streams(uint64_t input_bytes, uint64_t output_bytes) const {
    return output_bytes >= streaming_bytes && !(keeps_outputs && keeps(input_bytes + output_bytes));
  }
};

}  // namespace epccl::runtime
