// What computing while tokens travel is worth: arithmetic over three times of the same work.
#pragma once

#include <utility>

#include "perf/src/statistics.hpp"

namespace epccl::perf {

struct Overlap {
  Summary communication;    // alone: the calls, each waited for
  Summary compute;          // alone
  Summary overlapped;       // both: the calls are started, then comes the compute, then they are waited for
  Summary compute_beneath;  // the compute of `overlapped`
  // Of an iteration: overlapped - compute, and compute_beneath - compute. A machine whose speed drifts between iterations
  // moves both alike, so their difference is steadier than that of the medians.
  Summary lost, slower;
  Summary background;  // of `overlapped`: core time of the process's other threads
  int products = 0;    // matrix products in the compute
  int calls = 1;       // how many times the calls are made, one behind the other
  int iterations = 0;  // of each

  /// One after the other.
  double serial() const { return communication.median + compute.median; }
  /// What of the communication the compute did not hide, in seconds.
  double exposed() const { return lost.median; }
  /// Of the communication's time. 0: all hidden.
  double exposed_fraction() const;
  /// Core time that the communication takes beneath the compute, of its own time alone.
  double background_fraction() const;
  /// By how much the communication slows the compute down. 0: not at all.
  double dilation() const;
  /// Of the time that can be saved at all, the part that is saved. 1: all of it.
  double fraction_of_ideal() const;
};

/// How many products to compute beneath how many calls, of the seconds that one of each takes, so that the products take `ratio` times as
/// long as the calls. A product that takes longer than that has several calls above it, where calls can be started one behind the other.
std::pair<int, int> balance(double product, double call, double ratio, bool queues);

}  // namespace epccl::perf
