// Times communication and compute, each alone and the one beneath the other.
//
//   calibrate   how many matrix products take as long as asked for
//   iteration   barrier, |calls|;  barrier, |compute|;  barrier, |start calls, compute, wait for them|
//
// The three of an iteration take turns at being the first, so that a machine's moods meet all of them.
#pragma once

#include "perf/src/over_ranks.hpp"
#include "perf/src/overlap/matrix_products.hpp"
#include "perf/src/overlap/overlap.hpp"

namespace epccl::perf {

/// The communication of an overlap: calls that can be started and waited for.
class Overlapped {
 public:
  virtual ~Overlapped() = default;
  /// Makes the calls, each waited for.
  virtual Status call() = 0;
  virtual Status start() = 0;
  virtual Status finish() = 0;
};

class OverlapMeter {
 public:
  OverlapMeter(Coordinator& coordinator, const MeasuringOptions& options)
      : coordinator_(coordinator), options_(options) {}

  /// `communication`: seconds that the calls take alone, the same on every rank. Collective; the same result on every rank.
  Result<Overlap> run(Overlapped& calls, double communication);
  /// The calls once more with the compute beneath, not timed: for a check of their results.
  Status run_once(Overlapped& calls);

 private:
  struct Times {
    std::vector<double> communication, compute, overlapped, compute_beneath, background;
  };

  Result<double> time_products(int products);
  Status calibrate(double communication);
  Status iterate(Overlapped& calls, int iteration, Times& times);
  Status communicate(Overlapped& calls, Times& times);
  Status compute(Times& times);
  Status overlap(Overlapped& calls, Times& times);

  Coordinator& coordinator_;
  const MeasuringOptions& options_;
  MatrixProducts products_of_matrices_;
  int products_ = 0;
};

}  // namespace epccl::perf
