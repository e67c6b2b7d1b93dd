// How messages are told apart. The 64-bit tag of one says who sent it, and the caller's key:
//
//   63        47 46                                    0
//   | source:17 |               key:47                 |
#pragma once

#include <cstdint>

#include "transports/transport.hpp"

namespace epccl::transports::ucx {

inline constexpr int source_bits = 64 - message_key_bits;
inline constexpr int max_ranks = 1 << source_bits;  // 131072
inline constexpr uint64_t tag_key_mask = (uint64_t{1} << message_key_bits) - 1;
inline constexpr uint64_t tag_source_mask = ~tag_key_mask;

inline uint64_t make_tag(int source, MessageKey key) {
  return (static_cast<uint64_t>(source) << message_key_bits) | key;
}

// Of active messages, which have no tag.
inline constexpr unsigned marker_id = 1;  // what drained() sends
inline constexpr unsigned hello_id =
    2;  // the first message over a connection: its header is the sender's rank

}  // namespace epccl::transports::ucx
