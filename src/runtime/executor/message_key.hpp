// How the messages of plans are named on the network.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/fnv1a.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

using transports::message_tag_bits;

// Bits of a key; one more is that of messages that are no plan's.
inline constexpr int sequence_bits = 10, meaning_bits = 14;
static_assert(sequence_bits + meaning_bits + message_tag_bits + 1 == transports::message_key_bits);

/// What ranks of other nodes know of a call beside its number, in a few bits: of calls that are not the same no message is taken for another's
/// (of 16383 pairs of texts one looks alike), so that they come to wait, and compare. 0: nothing.
constexpr uint16_t meaning_of(std::string_view text) {
  const uint64_t hash = fnv1a64(text);
  return static_cast<uint16_t>((hash ^ hash >> 32) % ((1U << meaning_bits) - 1) + 1);
}

/// `tag`: unique among the messages between two ranks in the call. Numbers of calls, and tags, come again after a while; what two ranks send each
/// other under one key comes in order.
constexpr transports::MessageKey message_key(uint64_t sequence, uint16_t meaning, uint32_t tag) {
  const uint64_t call = (sequence & ((1U << sequence_bits) - 1)) << meaning_bits | meaning;
  return call << message_tag_bits | (tag & ((1U << message_tag_bits) - 1));
}

/// The number of the call that a message is of, as seen from call `sequence`: the nearest that ends in the key's bits.
constexpr uint64_t call_of(transports::MessageKey key, uint64_t sequence) {
  constexpr uint64_t numbers = uint64_t{1} << sequence_bits;
  const uint64_t ahead = ((key >> (meaning_bits + message_tag_bits)) - sequence) % numbers;
  if (ahead <= numbers / 2 || sequence + ahead < numbers) return sequence + ahead;
  return sequence + ahead - numbers;
}

}  // namespace epccl::runtime
