#include "perf/src/replay.hpp"

#include "base/clock.hpp"
#include "perf/src/communicator.hpp"
#include "perf/src/gpu.hpp"

namespace epccl::perf {

Result<Replay> Replay::capture(Coordinator& coordinator, const Gpu& gpu, epcclComm_t comm,
                               const Record& record) {
  Replay replay(coordinator, comm);
  EPCCL_ASSIGN(replay.stream_, gpu.graph_stream());
  EPCCL_TRY(replay.stream_->begin_capture());
  Status status = record(static_cast<epcclStream_t>(replay.stream_->handle()));
  // What was refused spoils no capture, but whoever called has to end it.
  Status ended = replay.stream_->end_capture();
  EPCCL_TRY(std::move(status));
  EPCCL_TRY(std::move(ended));
  return replay;
}

Result<double> Replay::run() const {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  EPCCL_TRY(stream_->launch());
  EPCCL_TRY(stream_->synchronize());
  const double seconds = now_seconds() - start;
  EPCCL_TRY(outcome_on_gpu(comm_));
  return seconds;
}

Result<std::vector<double>> Replay::time(int warmup, int launches, int calls) const {
  for (int i = 0; i < warmup; ++i) EPCCL_TRY(run().status());
  std::vector<double> seconds;
  for (int i = 0; i < launches; ++i) {
    EPCCL_ASSIGN(const double taken, run());
    seconds.push_back(taken / calls);
  }
  return seconds;
}

}  // namespace epccl::perf
