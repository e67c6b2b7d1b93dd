// Times and checks one exchange on one communicator.
//
//   check     fresh data, barrier, call, compare
//   warm-up   barrier, call
//   timed     barrier, |call|  ... the last one with fresh data, compared afterwards
//   gather    the ranks' times and wrong elements, after the loop and never within
#pragma once

#include <optional>
#include <vector>

#include "perf/src/buffers.hpp"
#include "perf/src/coordinator.hpp"
#include "perf/src/exchange.hpp"
#include "perf/src/statistics.hpp"

namespace epccl::perf {

struct Measurement {
  Summary seconds;
  int iterations = 0;
  std::optional<uint64_t> wrong;  // elements, of all ranks; empty: not checked
};

class Meter {
 public:
  Meter(Coordinator& coordinator, const Options& options, const Buffer& input, const Buffer& output,
        epcclStream_t stream)
      : coordinator_(coordinator), options_(options), input_(input), output_(output), stream_(stream) {}

  /// Collective; the same result on every rank.
  Result<Measurement> run(Communicator& communicator, const Exchange& exchange);

 private:
  Status call_in_step(Communicator& communicator, const Exchange& exchange, double* seconds = nullptr);
  Result<int> choose_iterations(Communicator& communicator, const Exchange& exchange);
  Result<std::optional<uint64_t>> total_of(uint64_t wrong_here);

  Coordinator& coordinator_;
  const Options& options_;
  const Buffer& input_;
  const Buffer& output_;
  epcclStream_t stream_;
  uint64_t exchanges_ = 0;  // with fresh data, so far
};

}  // namespace epccl::perf
