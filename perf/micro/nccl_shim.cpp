// What a call through NCCL's interface costs beyond the same call of epccl.h: a communicator of one rank, one element.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "bindings/nccl/abi.hpp"
#include "epccl/epccl.h"

#define ROW(result, name, parameters, arguments) extern "C" result nccl##name parameters;
#include "bindings/nccl/entry_points.inc"
#undef ROW

namespace {

/// NCCL's handle is EPCCL's.
ncclComm_t the_communicator() {
  static ncclComm_t const comm = [] {
    ncclUniqueId id;
    ncclComm_t made = nullptr;
    if (ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRank(&made, 1, id, 0) != ncclSuccess) std::abort();
    return made;
  }();
  return comm;
}

void alltoall_epccl(benchmark::State& state) {
  auto* const comm = reinterpret_cast<epcclComm_t>(the_communicator());
  int in = 1, out = 0;
  for (auto _ : state) benchmark::DoNotOptimize(epcclAlltoall(&in, &out, 1, epcclInt32, comm, nullptr));
}

void alltoall_nccl(benchmark::State& state) {
  ncclComm_t const comm = the_communicator();
  int in = 1, out = 0;
  for (auto _ : state) benchmark::DoNotOptimize(ncclAlltoAll(&in, &out, 1, ncclInt32, comm, nullptr));
}

void group_epccl(benchmark::State& state) {
  auto* const comm = reinterpret_cast<epcclComm_t>(the_communicator());
  int in = 1, out = 0;
  for (auto _ : state) {
    epcclGroupStart();
    epcclSend(&in, 1, epcclInt32, 0, comm, nullptr);
    epcclRecv(&out, 1, epcclInt32, 0, comm, nullptr);
    benchmark::DoNotOptimize(epcclGroupEnd());
  }
}

void group_nccl(benchmark::State& state) {
  ncclComm_t const comm = the_communicator();
  int in = 1, out = 0;
  for (auto _ : state) {
    ncclGroupStart();
    ncclSend(&in, 1, ncclInt32, 0, comm, nullptr);
    ncclRecv(&out, 1, ncclInt32, 0, comm, nullptr);
    benchmark::DoNotOptimize(ncclGroupEnd());
  }
}

BENCHMARK(alltoall_epccl);
BENCHMARK(alltoall_nccl);
BENCHMARK(group_epccl);
BENCHMARK(group_nccl);

}  // namespace
