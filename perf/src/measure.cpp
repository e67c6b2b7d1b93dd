#include "perf/src/measure.hpp"

#include <algorithm>
#include <numeric>

#include "base/clock.hpp"

namespace epccl::perf {

Status Meter::call_in_step(Communicator& communicator, const Exchange& exchange, double* seconds) {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  EPCCL_TRY(exchange.call(communicator, input_, output_, stream_));
  if (seconds != nullptr) *seconds = now_seconds() - start;
  return {};
}

Result<int> Meter::choose_iterations(Communicator& communicator, const Exchange& exchange) {
  if (!options_.budget) return options_.iterations;
  constexpr int probes = 3;
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  for (int i = 0; i < probes; ++i) EPCCL_TRY(exchange.call(communicator, input_, output_, stream_));
  EPCCL_TRY(coordinator_.barrier());
  const double mine = (now_seconds() - start) / probes;
  EPCCL_ASSIGN(const std::vector<double> all, coordinator_.gather(std::span<const double>(&mine, 1)));
  return iterations_within(*options_.budget, *std::max_element(all.begin(), all.end()));
}

Result<std::optional<uint64_t>> Meter::total_of(uint64_t wrong_here) {
  if (!options_.check) return std::optional<uint64_t>();
  EPCCL_ASSIGN(const std::vector<uint64_t> wrong,
               coordinator_.gather(std::span<const uint64_t>(&wrong_here, 1)));
  return std::optional<uint64_t>(std::accumulate(wrong.begin(), wrong.end(), uint64_t{0}));
}

Result<Measurement> Meter::run(Communicator& communicator, const Exchange& exchange) {
  const std::string title = fmt::format("{} {} {} bytes sent", communicator.algorithm(), exchange.type().name,
                                        exchange.sent_bytes());
  uint64_t wrong = 0;
  if (options_.check) {
    exchange.prepare(input_, output_, ++exchanges_);
    EPCCL_TRY(call_in_step(communicator, exchange));
    wrong += exchange.check(output_, exchanges_, title + ", first call");
  }
  for (int i = 0; i < options_.warmup; ++i) EPCCL_TRY(call_in_step(communicator, exchange));
  EPCCL_ASSIGN(const int iterations, choose_iterations(communicator, exchange));

  std::vector<double> seconds(static_cast<size_t>(iterations));
  for (int i = 0; i < iterations; ++i) {
    const bool compare = options_.check && i == iterations - 1;
    if (compare) exchange.prepare(input_, output_, ++exchanges_);
    EPCCL_TRY(call_in_step(communicator, exchange, &seconds[static_cast<size_t>(i)]));
    if (compare) wrong += exchange.check(output_, exchanges_, fmt::format("{}, iteration {}", title, i));
  }
  EPCCL_ASSIGN(const std::vector<double> all, coordinator_.gather(std::span<const double>(seconds)));
  EPCCL_ASSIGN(const std::optional<uint64_t> total, total_of(wrong));
  const auto ranks = static_cast<size_t>(coordinator_.ranks());
  return Measurement{summarize(over_ranks(all, ranks, options_.average)), iterations, total};
}

}  // namespace epccl::perf
