// Times and checks one call on one communicator.
//
//   check     fresh data, barrier, call, compare
//   warm-up   barrier, call
//   timed     barrier, |call|  ... the last one with fresh data, compared afterwards
//             with --in-a-row: barrier, |calls, barrier|calls, barrier|  ... and a call more for the comparison, not timed
//             with --agg_iters: each call of these is a group of calls; and a call by itself more for the comparison, not timed
//             with --graph N: barrier, |a launch of a graph of all iterations|  ... N of them
//   gather    the ranks' times and wrong elements, after the loop and never within
#pragma once

#include <span>

#include "perf/src/call.hpp"
#include "perf/src/coordinator.hpp"
#include "perf/src/overlap/overlap.hpp"
#include "perf/src/replay.hpp"

namespace epccl::perf {

class Meter {
 public:
  Meter(Coordinator& coordinator, const Options& options, const Buffer& input, const Buffer& output,
        const Stream& stream)
      : coordinator_(coordinator), options_(options), input_(input), output_(output), stream_(stream) {}

  /// Collective; the same result on every rank.
  Result<Measurement> run(Communicator& communicator, const Call& call, bool in_place);
  /// What computing beside a call came to, and beside bare copies of as many bytes, if those are asked for.
  struct Overlaps {
    Overlap call;
    std::optional<Overlap> copies;
  };
  /// The same call beside compute, `alone` seconds long by itself; needs a stream. Adds what is wrong to `wrong`. Collective.
  Result<Overlaps> run_overlap(Communicator& communicator, const Call& call, bool in_place, double alone,
                               std::optional<uint64_t>& wrong);

 private:
  class Calls;
  /// What one measurement is about.
  struct Subject {
    Communicator& communicator;
    const Call& call;
    Operands operands;
  };

  Status start(const Subject& subject, epcclStream_t stream);
  Result<Replay> capture(const Subject& subject, int calls);
  Result<Measurement> run_graph(const Subject& subject, const std::string& title);
  Result<uint64_t> compare_replay(const Subject& subject, const Replay& replay, const std::string& when);
  Status issue(const Subject& subject);
  /// As many calls as a group has.
  Status issue_group(const Subject& subject);
  /// Work after a barrier. `seconds` may be null.
  template <typename Work>
  Status time_in_step(const Work& work, double* seconds);
  /// A group of calls after a barrier. `seconds` of one of them, on average; may be null.
  Status issue_in_step(const Subject& subject, double* seconds = nullptr);
  /// Iterations of `calls` groups, one behind the other. `seconds`: for each, of one of its calls, on average.
  Status issue_in_a_row(const Subject& subject, int calls, std::span<double> seconds);
  // Between this program's data and what calls are given, where they are not the same.
  Status prepare(const Subject& subject);
  Result<uint64_t> check(const Subject& subject, const std::string& when);
  Result<uint64_t> compare(const Subject& subject, const std::string& when, double* seconds = nullptr);
  Result<double> probe(const Subject& subject);

  Coordinator& coordinator_;
  const Options& options_;
  const Buffer& input_;
  const Buffer& output_;
  const Stream& stream_;
  uint64_t exchanges_ = 0;  // with fresh data, so far
};

}  // namespace epccl::perf
