// How the messages of plans are named on the network.
#pragma once

#include <cstdint>

#include "transports/transport.hpp"

namespace epccl::runtime {

inline constexpr int message_tag_bits = 24;

/// `tag`: unique among the messages between two ranks in the call.
constexpr transports::MessageKey message_key(uint64_t sequence, uint32_t tag) {
  return (sequence & 0x3fffff) << message_tag_bits | (tag & ((1U << message_tag_bits) - 1));
}

}  // namespace epccl::runtime
