// Steps as graphs, and what they are held to: the same calls that are not captured.
#pragma once

#include "graph_layer.hpp"

namespace epccl::tests {

Problem small_problem(int ranks, epcclEpLayout_t layout);

/// One rank's part of random problems: two numbers of tokens, whose graphs share a handle and take turns. All bits are those of calls
/// that are not captured. `seed`: the same on all ranks.
/// `knows_gpu`: when the communicator is made; else `never` is by way of host memory.
void replay_random_steps(const RankContext& context, uint64_t seed, GpuMemoryKind kind, int problems,
                         bool knows_gpu = true);

}  // namespace epccl::tests
