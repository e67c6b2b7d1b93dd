// What the cost models know of the machine, and what they have in common.
#pragma once

#include <algorithm>

namespace epccl::algorithms {

/// The same on every rank. Seconds, bytes per second.
struct CostParameters {
  double link_rate = 0;             // a node's network link, each direction; 0 = unknown: taken as 10 GB/s
  double network_latency = 30e-6;   // first byte to last hop
  double message_overhead = 15e-6;  // CPU time of one network message, both ends together
  double copy_rate = 6e9;           // of one core, between processes
  double signal_latency = 2e-6;     // until a rank of the node sees another's post, a context switch included
  double cores_per_node = 1;        // cores a node's ranks have
  // CPU time of handing something to another rank of the node: a message to a carrier, which takes it off a lane, or a part of a result.
  double parcel_overhead = 1e-6;

  double known_link_rate() const { return link_rate > 0 ? link_rate : 10e9; }
};

/// Small differences are noise of the model: another algorithm than the usual one must promise this much.
inline constexpr double margin = 0.97;

/// Seconds that a link and the cores take which work at the same time: they overlap, but never wholly.
inline double overlapped(double wire, double cores) {
  constexpr double not_overlapped = 0.5;
  return std::max(wire, cores) + not_overlapped * std::min(wire, cores);
}

}  // namespace epccl::algorithms
