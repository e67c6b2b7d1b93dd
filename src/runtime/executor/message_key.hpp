// How the messages of plans are named on the network.
#pragma once

#include <cstdint>
#include <string_view>

#include "transports/transport.hpp"

namespace epccl::runtime {

/// What ranks of other nodes know of a call beside its number, in a few bits: of calls that are not the same no message is taken for another's,
/// so that they come to wait, and compare. 0: nothing. (FNV-1a; the same wherever the library was built.)
constexpr uint8_t meaning_of(std::string_view text) {
  uint32_t hash = 2166136261U;
  for (const char letter : text) hash = (hash ^ static_cast<uint8_t>(letter)) * 16777619U;
  return static_cast<uint8_t>((hash ^ hash >> 8 ^ hash >> 16 ^ hash >> 24) % 255 + 1);
}

inline constexpr int message_tag_bits = 24, meaning_bits = 8;

/// `tag`: unique among the messages between two ranks in the call. Numbers of calls come again after 16384; what two ranks send each other under
/// one key comes in order.
constexpr transports::MessageKey message_key(uint64_t sequence, uint8_t meaning, uint32_t tag) {
  const uint64_t call = (sequence & 0x3fff) << meaning_bits | meaning;
  return call << message_tag_bits | (tag & ((1U << message_tag_bits) - 1));
}

}  // namespace epccl::runtime
