// Times communication and compute, each alone and the one beneath the other.
//
//   calibrate   how many matrix products take as long as asked for
//   iteration   barrier, |calls|;  barrier, |compute|;  barrier, |start calls, compute, wait for them|
//   check       fresh data, barrier, start calls, compute, wait, compare
//
// The three of an iteration take turns at being the first, so that a machine's moods meet all of them.
#pragma once

#include "perf/src/moe/exchange.hpp"
#include "perf/src/moe/expert_compute.hpp"
#include "perf/src/moe/overlap.hpp"
#include "perf/src/over_ranks.hpp"

namespace epccl::perf::moe {

struct OverlapMeasurement {
  Overlap overlap;
  std::optional<uint64_t> wrong;  // elements, of all ranks; empty: not checked
};

class OverlapMeter {
 public:
  OverlapMeter(Coordinator& coordinator, const Options& options)
      : coordinator_(coordinator), options_(options) {}

  /// The handle has its layout. `communication`: seconds that the calls take alone, the same on every rank.
  /// Collective; the same result on every rank.
  Result<OverlapMeasurement> run(EpHandle& handle, Exchange& exchange, double communication,
                                 const std::string& title);

 private:
  struct Times {
    std::vector<double> communication, compute, overlapped, compute_beneath, background;
  };

  Result<double> time_products(int products);
  Status calibrate(double communication);
  Status iterate(EpHandle& handle, const Exchange& exchange, int iteration, Times& times);
  Status communicate(EpHandle& handle, const Exchange& exchange, Times& times);
  Status compute(Times& times);
  Status overlap(EpHandle& handle, const Exchange& exchange, Times& times);
  Result<uint64_t> check(EpHandle& handle, Exchange& exchange, const std::string& title);

  Coordinator& coordinator_;
  const Options& options_;
  ExpertCompute experts_;
  int products_ = 0;
};

}  // namespace epccl::perf::moe
