// Times and checks one case with one strategy.
//
//   layout    update
//   check     fresh data, barrier, call, compare
//   warm-up   barrier, call
//   timed     barrier, |call|  ... the last one with fresh data, compared afterwards
//   layouts   barrier, |update|, barrier, |call|: what a step pays that has a new routing
//   in a row  with --static on a GPU: barrier, |calls, queued one behind the other, and waited for at their end|: what graphs are held against
//   graphs    with --graph N: barrier, |a launch of a graph of all iterations|  ... N of them, of the call, of its parts, of updates
//   gather    the ranks' times and wrong elements, after the loops and never within
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/src/coordinator.hpp"
#include "perf/src/moe/exchange.hpp"
#include "perf/src/moe/options.hpp"
#include "perf/src/replay.hpp"

namespace epccl::perf::moe {

struct Measurement {
  Summary seconds;                  // of the operation
  Summary dispatch, combine;        // of its parts
  Summary update;                   // of epcclEpUpdateHandle
  Summary fresh;                    // of the first operation after one
  std::optional<Summary> in_a_row;  // of one of many operations that are queued behind each other
  int iterations = 0;
  std::optional<uint64_t> wrong;  // elements, of all ranks; empty: not checked
  epcclEpStats_t stats{};         // bytes and tokens of all ranks
  std::optional<Split> split;     // --split: of the operation
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

  /// What the calls are that are captured.
  struct Captured {
    bool updates = false, dispatches = false, combines = false;
  };
  Result<Replay> capture(EpHandle& handle, const Exchange& exchange, const Captured& what, int calls);
  Result<Summary> time_graph(EpHandle& handle, const Exchange& exchange, const Captured& what);
  Result<uint64_t> compare_replay(Exchange& exchange, const Replay& replay, const std::string& title);
  Status run_graphs(EpHandle& handle, Exchange& exchange, const std::string& title, Measurement& measured,
                    uint64_t& wrong);
  Status run_calls(EpHandle& handle, Exchange& exchange, const std::string& title, Measurement& measured,
                   uint64_t& wrong);
  Status call(EpHandle& handle, const Exchange& exchange, Times* times = nullptr);
  Status call_in_step(EpHandle& handle, const Exchange& exchange, Times* times = nullptr);
  Result<Summary> time_in_a_row(EpHandle& handle, const Exchange& exchange, int count);
  Status update(EpHandle& handle, const Exchange& exchange, std::vector<double>* times = nullptr);
  Status time_updates(EpHandle& handle, const Exchange& exchange, int count, Measurement& measured);
  Result<double> probe(EpHandle& handle, const Exchange& exchange);
  Result<epcclEpStats_t> total_of(const EpHandle& handle);

  Coordinator& coordinator_;
  const Options& options_;
  uint64_t exchanges_ = 0;  // with fresh data, so far
};

}  // namespace epccl::perf::moe
