// What dispatch and combine of GPU memory are held to, however they are made: the oracle of the host's tests.
#pragma once

#include "../api/ranks.hpp"

namespace epccl::tests {

/// Random problems, forward and backward.
void run_random_layers(const RunOptions& options);
/// One of fixed size in static mode, routed anew.
void run_static_layers(const RunOptions& options);

}  // namespace epccl::tests
