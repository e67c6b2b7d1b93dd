// Times communication and compute, each alone and the one beneath the other.
//
//   calibrate   how many matrix products take as long as asked for; where one takes longer than the calls, how many times those have to be
//               made to go on for as long as it does
//   iteration   barrier, |compute|;  for each subject: barrier, |calls|; barrier, |start calls, compute, wait for them|
//
// The parts of an iteration take turns at being the first, so that a machine's moods meet all of them.
#pragma once

#include <span>

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
  /// Waits for all that was started.
  virtual Status finish() = 0;
  /// Whether more can be started before finish(), one behind the other.
  virtual bool queues() const { return false; }
};

class OverlapMeter {
 public:
  OverlapMeter(Coordinator& coordinator, const MeasuringOptions& options, MatrixProducts& products)
      : coordinator_(coordinator), options_(options), matrix_products_(products) {}

  /// `communication`: seconds that the first subject's calls take alone, the same on every rank. A result for each subject,
  /// all beneath the same compute. Collective; the same results on every rank.
  Result<std::vector<Overlap>> run(std::span<Overlapped* const> subjects, double communication);
  /// The calls once more with the compute beneath, not timed: for a check of their results.
  Status run_once(Overlapped& calls);

 private:
  struct Times {
    std::vector<double> communication, overlapped, compute_beneath, background;
  };

  Result<double> time_products(int products);
  Status calibrate(double communication, bool queues);
  Status iterate(std::span<Overlapped* const> subjects, int iteration, std::vector<Times>& times);
  Status communicate(Overlapped& calls, Times& times);
  Status compute();
  Status overlap(Overlapped& calls, int times_to_start, Times& times);
  Result<std::vector<double>> by_iteration(const std::vector<double>& mine);
  Result<Overlap> result_of(const Times& times, std::span<const double> compute);

  Coordinator& coordinator_;
  const MeasuringOptions& options_;
  MatrixProducts& matrix_products_;
  int products_ = 0;
  int calls_ = 1;
  std::vector<double> compute_;  // alone, by iteration
};

}  // namespace epccl::perf
