// Building one rank's two-stage plan.
#include <benchmark/benchmark.h>

#include "algorithms/alltoall/alltoall.hpp"

namespace epccl {
namespace {

void build_two_stage(benchmark::State& state) {
  const auto cluster = topology::Cluster::uniform(static_cast<int>(state.range(0)), 8);
  const auto exchange = algorithms::Exchange::uniform(cluster.ranks(), 1024);
  for (auto _ : state)
    benchmark::DoNotOptimize(
        algorithms::build_alltoall(algorithms::Algorithm::two_stage, cluster, exchange, 0, {}));
}
BENCHMARK(build_two_stage)->ArgName("nodes")->Arg(16)->Arg(128)->Arg(1024)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace epccl
