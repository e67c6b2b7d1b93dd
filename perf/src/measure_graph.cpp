// Calls captured into CUDA graphs.
#include "perf/src/measure.hpp"
#include "perf/src/over_ranks.hpp"
#include "perf/src/replay.hpp"

namespace epccl::perf {

Result<Replay> Meter::capture(const Subject& subject, int calls) {
  return Replay::capture(coordinator_, *stream_.gpu(), subject.communicator.get(), [&](epcclStream_t stream) {
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) status = start(subject, stream);
    return status;
  });
}

Result<uint64_t> Meter::compare_replay(const Subject& subject, const Replay& replay,
                                       const std::string& when) {
  EPCCL_TRY(prepare(subject));
  EPCCL_TRY(replay.run().status());
  return check(subject, when);
}

// In place calls change what the next one reads, so that one call is compared.
Result<Measurement> Meter::run_graph(const Subject& subject, const std::string& title) {
  EPCCL_ASSIGN(const Replay one, capture(subject, 1));
  EPCCL_ASSIGN(const Replay all, capture(subject, options_.iterations));
  uint64_t wrong = 0;
  if (options_.check) {
    EPCCL_ASSIGN(wrong, compare_replay(subject, one, title + ", first replay"));
  }
  Measurement measured;
  measured.iterations = options_.iterations;
  EPCCL_ASSIGN(const std::vector<double> seconds,
               all.time(options_.warmup, options_.graph_launches, options_.iterations));
  if (options_.check) {
    EPCCL_ASSIGN(const uint64_t last, compare_replay(subject, one, title + ", last replay"));
    wrong += last;
  }
  EPCCL_ASSIGN(measured.seconds, summary_of(coordinator_, options_, seconds));
  EPCCL_ASSIGN(measured.wrong, total_of(coordinator_, options_, wrong));
  return measured;
}

}  // namespace epccl::perf
