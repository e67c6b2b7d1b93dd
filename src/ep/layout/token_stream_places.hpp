// Static mode on several nodes, where kernels make the lists of plans: where each list lies, which is the same for all routings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/ep/token_streams.hpp"
#include "device/kernels/token_stream_parameters.hpp"
#include "ep/layout/layout.hpp"
#include "runtime/queues/device_program.hpp"
#include "runtime/queues/row_feed.hpp"

namespace epccl::ep {

/// As kernels are told.
struct TokenStreamPlaces {
  std::vector<device::kernels::SentStream> sent;
  std::vector<device::kernels::ReceivedStream> received;  // this rank's own is the last
  std::vector<device::kernels::DeliveredList> deliveries;
  std::vector<device::kernels::SumPart> parts;
  std::vector<uint32_t> relays;  // by source: which of `received` this rank hands on for it; no_row: none
  bool to_ranks = false;
  uint32_t most_blocks = 0;  // of a stream
  uint32_t first_final_sum = 0;
  uint64_t counts = 0, rows = 0, sums = 0;  // all together
};
/// `exchange`: of `layout`, whose sizes are those of maxima, with its sums.
TokenStreamPlaces places_of_streams(const LayoutView& layout, const algorithms::TokenExchange& exchange);

/// The rows that a program with the tables' counts hands to several ranks, where kernels have said to whom
/// (TokenStreamParameters::handed).
std::vector<runtime::HandOutRows> hand_outs_of(const runtime::DeviceProgram& program,
                                               const TokenStreamPlaces& places, const SlotRules& rules);

/// The most that the streams of a rank can have, whatever strategy they follow.
struct StreamLimits {
  uint64_t sent = 0, received = 0, deliveries = 0;
};
/// Of how many of the streams that a rank receives a kernel hands blocks to several ranks, at most: of none where the strategy is FLAT, or
/// the rank is alone on its node.
uint64_t most_handed_out(const topology::Cluster& cluster, int rank, std::optional<Strategy> forced);
StreamLimits most_streams(const topology::Cluster& cluster, int rank, std::optional<Strategy> forced);

}  // namespace epccl::ep
