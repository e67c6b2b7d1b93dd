// What dispatch and combine of GPU memory are held to, however they are made: the oracle of the host's tests.
#pragma once

#include <functional>
#include <ostream>

#include "../api/ranks.hpp"
#include "gpu_memory.hpp"

namespace epccl::tests {

enum class As { processes, threads };

/// How the ranks of a test run, and what memory their tensors are.
struct GpuRun {
  RunOptions options;  // threads: of one node
  As as = As::processes;
  GpuMemoryKind memory = GpuMemoryKind::plain;
  bool knows_gpu = true;  // when the communicator is made; else `never` is by way of host memory
};

/// Threads wait for each other before one frees memory and before one makes a call after that: to free waits for the whole GPU
/// (docs/cuda.md). Processes need not.
using Meet = std::function<void()>;
/// As run_ranks(), or all ranks as threads of one process.
void run_gpu_ranks(const GpuRun& run, const std::function<void(const RankContext&, const Meet&)>& body);

/// Random problems, forward and backward.
void run_random_layers(const GpuRun& run);
/// One of fixed size in static mode, routed anew.
void run_static_layers(const GpuRun& run);
/// The same, made by turns of the GPU and of the host, whose messages are shorter.
void run_static_layers_by_turns(const GpuRun& run);
/// One whose rows that only pad may be anything: they are left as they were.
void run_padded_layers(const GpuRun& run);

}  // namespace epccl::tests
