#include "perf/src/moe/measure.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "perf/src/over_ranks.hpp"
#include "perf/src/split_meter.hpp"

namespace epccl::perf::moe {

Status Meter::call(EpHandle& handle, const Exchange& exchange, Times* times) {
  const double start = now_seconds();
  if (options_.dispatches()) EPCCL_TRY(exchange.dispatch(handle));
  const double between = now_seconds();
  if (options_.combines()) EPCCL_TRY(exchange.combine(handle));
  const double end = now_seconds();
  if (times == nullptr) return {};
  times->total.push_back(end - start);
  times->dispatch.push_back(between - start);
  times->combine.push_back(end - between);
  return {};
}

Status Meter::call_in_step(EpHandle& handle, const Exchange& exchange, Times* times) {
  EPCCL_TRY(coordinator_.barrier());
  return call(handle, exchange, times);
}

Status Meter::update(EpHandle& handle, const Exchange& exchange, std::vector<double>* times) {
  EPCCL_TRY(exchange.place_table(handle));
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  EPCCL_TRY(exchange.update(handle));
  if (times != nullptr) times->push_back(now_seconds() - start);
  // A combine gives back what a dispatch has brought, and counts with the weights that came with it.
  return options_.dispatches() ? Status() : exchange.dispatch(handle);
}

Status Meter::time_updates(EpHandle& handle, const Exchange& exchange, int count, Measurement& measured) {
  std::vector<double> updates;
  Times fresh;
  for (int i = 0; i < count; ++i) {
    EPCCL_TRY(update(handle, exchange, &updates));
    EPCCL_TRY(call_in_step(handle, exchange, &fresh));
  }
  EPCCL_ASSIGN(measured.update, summary_of(coordinator_, options_, updates));
  EPCCL_ASSIGN(measured.fresh, summary_of(coordinator_, options_, fresh.total));
  return {};
}

/// As a launch of a graph has its calls: nobody waits between them, and ranks meet before the first one alone.
Result<Summary> Meter::time_in_a_row(EpHandle& handle, const Exchange& exchange, int count) {
  constexpr int rows = 20;
  std::vector<double> seconds;
  for (int row = -1; row < rows; ++row) {  // the first one warms up
    EPCCL_TRY(coordinator_.barrier());
    const double start = now_seconds();
    for (int i = 0; i < count; ++i) {
      if (options_.dispatches()) EPCCL_TRY(exchange.dispatch(handle, Until::started));
      if (options_.combines()) EPCCL_TRY(exchange.combine(handle, Until::started));
    }
    EPCCL_TRY(handle.complete());
    if (row >= 0) seconds.push_back((now_seconds() - start) / count);
  }
  return summary_of(coordinator_, options_, seconds);
}

/// Seconds of one call.
Result<double> Meter::probe(EpHandle& handle, const Exchange& exchange) {
  if (!options_.budget) return 0;
  constexpr int probes = 3;
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  for (int i = 0; i < probes; ++i) EPCCL_TRY(call(handle, exchange));
  EPCCL_TRY(coordinator_.barrier());
  return (now_seconds() - start) / probes;
}

Result<epcclEpStats_t> Meter::total_of(const EpHandle& handle) {
  EPCCL_ASSIGN(const epcclEpStats_t mine, handle.stats());
  EPCCL_ASSIGN(const std::vector<epcclEpStats_t> all,
               coordinator_.gather(std::span<const epcclEpStats_t>(&mine, 1)));
  epcclEpStats_t total = all.front();
  for (size_t rank = 1; rank < all.size(); ++rank) {
    total.tokens_local += all[rank].tokens_local;
    total.tokens_node += all[rank].tokens_node;
    total.tokens_network += all[rank].tokens_network;
    total.dispatch_bytes_local += all[rank].dispatch_bytes_local;
    total.dispatch_bytes_node += all[rank].dispatch_bytes_node;
    total.dispatch_bytes_network += all[rank].dispatch_bytes_network;
    total.combine_bytes_network += all[rank].combine_bytes_network;
  }
  return total;
}

Status Meter::run_calls(EpHandle& handle, Exchange& exchange, const std::string& title, Measurement& measured,
                        uint64_t& wrong) {
  if (options_.check) {
    EPCCL_TRY(exchange.prepare(++exchanges_));
    EPCCL_TRY(call_in_step(handle, exchange));
    EPCCL_ASSIGN(wrong, exchange.check(exchanges_, title + ", first call"));
  }
  for (int i = 0; i < options_.warmup; ++i) EPCCL_TRY(call_in_step(handle, exchange));
  EPCCL_ASSIGN(const double probed, probe(handle, exchange));
  EPCCL_ASSIGN(measured.iterations, choose_iterations(coordinator_, options_, probed));

  Times times;
  for (int i = 0; i < measured.iterations; ++i) {
    const bool compare = options_.check && i == measured.iterations - 1;
    if (compare) EPCCL_TRY(exchange.prepare(++exchanges_));
    EPCCL_TRY(call_in_step(handle, exchange, &times));
    if (!compare) continue;
    EPCCL_ASSIGN(const uint64_t here, exchange.check(exchanges_, fmt::format("{}, iteration {}", title, i)));
    wrong += here;
  }
  EPCCL_ASSIGN(measured.seconds, summary_of(coordinator_, options_, times.total));
  EPCCL_ASSIGN(measured.dispatch, summary_of(coordinator_, options_, times.dispatch));
  EPCCL_ASSIGN(measured.combine, summary_of(coordinator_, options_, times.combine));
  return {};
}

Result<Measurement> Meter::run(EpHandle& handle, Exchange& exchange, const std::string& title) {
  EPCCL_TRY(update(handle, exchange));
  Measurement measured;
  uint64_t wrong = 0;
  if (options_.graph_launches > 0) {
    // For the statistics, and for what graphs of combines alone bring back.
    EPCCL_TRY(call_in_step(handle, exchange));
    EPCCL_ASSIGN(measured.stats, total_of(handle));
    EPCCL_TRY(run_graphs(handle, exchange, title, measured, wrong));
  } else {
    EPCCL_TRY(run_calls(handle, exchange, title, measured, wrong));
    EPCCL_ASSIGN(measured.stats, total_of(handle));
    constexpr int most_updates = 20;
    EPCCL_TRY(time_updates(handle, exchange, std::min(measured.iterations, most_updates), measured));
    if (options_.fixed && handle.gpu() != nullptr) {
      constexpr int most_in_a_row = 30;
      EPCCL_ASSIGN(measured.in_a_row,
                   time_in_a_row(handle, exchange, std::min(measured.iterations, most_in_a_row)));
    }
    if (options_.split) {
      EPCCL_ASSIGN(measured.split, measure_split(coordinator_, handle.comm(), measured.iterations,
                                                 [&] { return call(handle, exchange); }));
    }
  }
  EPCCL_ASSIGN(measured.wrong, perf::total_of(coordinator_, options_, wrong));
  return measured;
}

}  // namespace epccl::perf::moe
