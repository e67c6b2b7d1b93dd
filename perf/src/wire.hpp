// The time the network needs at least: the bytes on the busiest link at the rate that is left for payload.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/src/pattern.hpp"

namespace epccl::perf {

/// What TCP over Ethernet leaves of a link's nominal rate: 1448 bytes of 1518 with their headers.
inline constexpr double payload_share = 0.954;

/// Bytes on the busiest link, where every node has one link each way: the largest of what any node sends to,
/// or receives from, other nodes. node_of[r] is rank r's node.
uint64_t busiest_link_bytes(const CountMatrix& counts, uint64_t bytes_per_element,
                            const std::vector<int>& node_of);

/// Seconds that `bytes` take on a link of `rate` bits a second.
double ideal_seconds(uint64_t bytes, double rate);

}  // namespace epccl::perf
