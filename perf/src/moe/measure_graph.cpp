// Dispatch and combine captured into CUDA graphs.
#include "perf/src/gpu.hpp"
#include "perf/src/moe/measure.hpp"
#include "perf/src/over_ranks.hpp"

namespace epccl::perf::moe {

Result<Replay> Meter::capture(EpHandle& handle, const Exchange& exchange, const Captured& what, int calls) {
  auto replay =
      Replay::capture(coordinator_, *handle.gpu(), handle.comm(), [&](epcclStream_t stream) -> Status {
        handle.capture_on(stream);
        for (int i = 0; i < calls; ++i) {
          if (what.updates) EPCCL_TRY(exchange.capture_update(handle));
          if (what.dispatches) EPCCL_TRY(exchange.dispatch(handle));
          if (what.combines) EPCCL_TRY(exchange.combine(handle));
        }
        return {};
      });
  handle.capture_on(nullptr);
  return replay;
}

Result<Summary> Meter::time_graph(EpHandle& handle, const Exchange& exchange, const Captured& what) {
  if (!what.updates && !what.dispatches && !what.combines)
    return summary_of(coordinator_, options_, std::vector<double>(1, 0.0));
  EPCCL_ASSIGN(const Replay replay, capture(handle, exchange, what, options_.iterations));
  EPCCL_ASSIGN(const std::vector<double> seconds,
               replay.time(options_.warmup, options_.graph_launches, options_.iterations));
  return summary_of(coordinator_, options_, seconds);
}

Result<uint64_t> Meter::compare_replay(Exchange& exchange, const Replay& replay, const std::string& title) {
  EPCCL_TRY(exchange.prepare(++exchanges_));
  EPCCL_TRY(replay.run().status());
  return exchange.check(exchanges_, title);
}

// What is compared is a step with its update; what is timed has the update's routing.
Status Meter::run_graphs(EpHandle& handle, Exchange& exchange, const std::string& title,
                         Measurement& measured, uint64_t& wrong) {
  const Captured calls{false, options_.dispatches(), options_.combines()};
  measured.iterations = options_.iterations;
  EPCCL_ASSIGN(const Replay step, capture(handle, exchange, {true, calls.dispatches, calls.combines}, 1));
  if (options_.check) {
    EPCCL_ASSIGN(wrong, compare_replay(exchange, step, title + ", first replay"));
  }
  EPCCL_ASSIGN(measured.seconds, time_graph(handle, exchange, calls));
  EPCCL_ASSIGN(measured.dispatch, time_graph(handle, exchange, {false, calls.dispatches, false}));
  EPCCL_ASSIGN(measured.combine, time_graph(handle, exchange, {false, false, calls.combines}));
  EPCCL_ASSIGN(measured.update, time_graph(handle, exchange, {true, false, false}));
  EPCCL_ASSIGN(measured.fresh, time_graph(handle, exchange, {true, calls.dispatches, calls.combines}));
  if (!options_.check) return {};
  EPCCL_ASSIGN(const uint64_t last, compare_replay(exchange, step, title + ", last replay"));
  wrong += last;
  return {};
}

}  // namespace epccl::perf::moe
