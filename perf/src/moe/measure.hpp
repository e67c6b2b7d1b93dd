// Times and checks one case with one strategy.
//
//   layout    update
//   check     fresh data, barrier, call, compare
//   warm-up   barrier, call
//   timed     barrier, |call|  ... the last one with fresh data, compared afterwards
//   layouts   barrier, |update|, barrier, |call|: what a step pays that has a new routing
//   gather    the ranks' times and wrong elements, after the loops and never within
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/src/coordinator.hpp"
#include "perf/src/moe/exchange.hpp"
#include "perf/src/moe/options.hpp"

namespace epccl::perf::moe {

struct Measurement {
  Summary seconds;            // of the operation
  Summary dispatch, combine;  // of its parts
  Summary update;             // of epcclEpUpdateHandle
  Summary fresh;              // of the first operation after one
  int iterations = 0;
  std::optional<uint64_t> wrong;  // elements, of all ranks; empty: not checked
  epcclEpStats_t stats{};         // bytes and tokens of all ranks
};

class Meter {
 public:
  Meter(Coordinator& coordinator, const Options& options) : coordinator_(coordinator), options_(options) {}

  /// Collective; the same result on every rank.
  Result<Measurement> run(EpHandle& handle, Exchange& exchange, const std::string& title);

 private:
  struct Times {
    std::vector<double> total, dispatch, combine;
  };

  Status call(EpHandle& handle, const Exchange& exchange, Times* times = nullptr);
  Status call_in_step(EpHandle& handle, const Exchange& exchange, Times* times = nullptr);
  Status update(EpHandle& handle, const Exchange& exchange, std::vector<double>* times = nullptr);
  Status time_updates(EpHandle& handle, const Exchange& exchange, int count, Measurement& measured);
  Result<double> probe(EpHandle& handle, const Exchange& exchange);
  Result<epcclEpStats_t> total_of(const epcclEpStats_t& mine);

  Coordinator& coordinator_;
  const Options& options_;
  uint64_t exchanges_ = 0;  // with fresh data, so far
};

}  // namespace epccl::perf::moe
