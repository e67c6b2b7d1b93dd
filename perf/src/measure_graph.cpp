// Calls captured into CUDA graphs.
#include "base/clock.hpp"
#include "perf/src/gpu.hpp"
#include "perf/src/measure.hpp"
#include "perf/src/over_ranks.hpp"

namespace epccl::perf {

/// A graph of several calls, on a stream of its own.
class Meter::Replay {
 public:
  static Result<Replay> capture(Meter& meter, const Subject& subject, int calls) {
    Replay replay(meter.coordinator_, subject.communicator.get());
    EPCCL_ASSIGN(replay.stream_, meter.stream_.gpu()->graph_stream());
    EPCCL_TRY(replay.stream_->begin_capture());
    const auto stream = static_cast<epcclStream_t>(replay.stream_->handle());
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) status = meter.start(subject, stream);
    // What was refused spoils no capture, but whoever called has to end it.
    Status ended = replay.stream_->end_capture();
    EPCCL_TRY(std::move(status));
    EPCCL_TRY(std::move(ended));
    return replay;
  }

  /// One launch by all ranks; how long it took.
  Result<double> run() const {
    EPCCL_TRY(coordinator_.barrier());
    const double start = now_seconds();
    EPCCL_TRY(stream_->launch());
    EPCCL_TRY(stream_->synchronize());
    const double seconds = now_seconds() - start;
    EPCCL_TRY(outcome_on_gpu(comm_));
    return seconds;
  }

 private:
  Replay(Coordinator& coordinator, epcclComm_t comm) : coordinator_(coordinator), comm_(comm) {}

  Coordinator& coordinator_;
  epcclComm_t comm_;
  std::unique_ptr<device::cuda::GraphStream> stream_;
};

Result<uint64_t> Meter::compare_replay(const Subject& subject, const Replay& replay,
                                       const std::string& when) {
  EPCCL_TRY(prepare(subject));
  EPCCL_TRY(replay.run().status());
  return check(subject, when);
}

// In place calls change what the next one reads, so that one call is compared.
Result<Measurement> Meter::run_graph(const Subject& subject, const std::string& title) {
  EPCCL_ASSIGN(const Replay one, Replay::capture(*this, subject, 1));
  EPCCL_ASSIGN(const Replay all, Replay::capture(*this, subject, options_.iterations));
  uint64_t wrong = 0;
  if (options_.check) {
    EPCCL_ASSIGN(wrong, compare_replay(subject, one, title + ", first replay"));
  }
  for (int i = 0; i < options_.warmup; ++i) EPCCL_TRY(all.run().status());
  Measurement measured;
  measured.iterations = options_.iterations;
  std::vector<double> seconds;
  for (int i = 0; i < options_.graph_launches; ++i) {
    EPCCL_ASSIGN(const double taken, all.run());
    seconds.push_back(taken / options_.iterations);
  }
  if (options_.check) {
    EPCCL_ASSIGN(const uint64_t last, compare_replay(subject, one, title + ", last replay"));
    wrong += last;
  }
  EPCCL_ASSIGN(measured.seconds, summary_of(coordinator_, options_, seconds));
  EPCCL_ASSIGN(measured.wrong, total_of(coordinator_, options_, wrong));
  return measured;
}

}  // namespace epccl::perf
