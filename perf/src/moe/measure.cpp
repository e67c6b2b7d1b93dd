#include "perf/src/moe/measure.hpp"

#include <algorithm>
#include <numeric>

#include "base/clock.hpp"

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
  EPCCL_ASSIGN(measured.update, summary_of(updates));
  EPCCL_ASSIGN(measured.fresh, summary_of(fresh.total));
  return {};
}

Result<int> Meter::choose_iterations(EpHandle& handle, const Exchange& exchange) {
  if (!options_.budget) return options_.iterations;
  constexpr int probes = 3;
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  for (int i = 0; i < probes; ++i) EPCCL_TRY(call(handle, exchange));
  EPCCL_TRY(coordinator_.barrier());
  const double mine = (now_seconds() - start) / probes;
  EPCCL_ASSIGN(const std::vector<double> all, coordinator_.gather(std::span<const double>(&mine, 1)));
  return iterations_within(*options_.budget, *std::max_element(all.begin(), all.end()));
}

Result<Summary> Meter::summary_of(const std::vector<double>& mine) {
  EPCCL_ASSIGN(const std::vector<double> all, coordinator_.gather(std::span<const double>(mine)));
  return summarize(over_ranks(all, static_cast<size_t>(coordinator_.ranks()), options_.average));
}

Result<std::optional<uint64_t>> Meter::total_of(uint64_t wrong_here) {
  if (!options_.check) return std::optional<uint64_t>();
  EPCCL_ASSIGN(const std::vector<uint64_t> wrong,
               coordinator_.gather(std::span<const uint64_t>(&wrong_here, 1)));
  return std::optional<uint64_t>(std::accumulate(wrong.begin(), wrong.end(), uint64_t{0}));
}

Result<epcclEpStats_t> Meter::total_of(const epcclEpStats_t& mine) {
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

Result<Measurement> Meter::run(EpHandle& handle, Exchange& exchange, const std::string& title) {
  EPCCL_TRY(update(handle, exchange));
  uint64_t wrong = 0;
  if (options_.check) {
    exchange.prepare(++exchanges_);
    EPCCL_TRY(call_in_step(handle, exchange));
    wrong += exchange.check(exchanges_, title + ", first call");
  }
  for (int i = 0; i < options_.warmup; ++i) EPCCL_TRY(call_in_step(handle, exchange));
  Measurement measured;
  EPCCL_ASSIGN(measured.iterations, choose_iterations(handle, exchange));

  Times times;
  for (int i = 0; i < measured.iterations; ++i) {
    const bool compare = options_.check && i == measured.iterations - 1;
    if (compare) exchange.prepare(++exchanges_);
    EPCCL_TRY(call_in_step(handle, exchange, &times));
    if (compare) wrong += exchange.check(exchanges_, fmt::format("{}, iteration {}", title, i));
  }
  EPCCL_ASSIGN(const epcclEpStats_t stats, handle.stats());
  constexpr int most_updates = 20;
  EPCCL_TRY(time_updates(handle, exchange, std::min(measured.iterations, most_updates), measured));

  EPCCL_ASSIGN(measured.seconds, summary_of(times.total));
  EPCCL_ASSIGN(measured.dispatch, summary_of(times.dispatch));
  EPCCL_ASSIGN(measured.combine, summary_of(times.combine));
  EPCCL_ASSIGN(measured.wrong, total_of(wrong));
  EPCCL_ASSIGN(measured.stats, total_of(stats));
  return measured;
}

}  // namespace epccl::perf::moe
