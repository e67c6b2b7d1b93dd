// Clusters, counts and parameters that the plan tests share.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "algorithms/alltoall/alltoall.hpp"
#include "topology/cluster.hpp"

namespace epccl::tests {

/// A generator whose seed the failing test prints (EPCCL_TEST_SEED repeats a run).
std::mt19937_64 seeded_generator(const char* what);

/// "3+5", for traces.
std::string shape_text(const topology::Cluster& cluster);

/// Equal and unequal nodes, one rank, one node, one rank a node, and ranks that are not numbered node by node.
std::vector<topology::Cluster> small_shapes();

/// bytes[s * ranks + d] up to `most`, about a third of them zero.
std::vector<uint64_t> random_counts(int ranks, uint64_t most, std::mt19937_64& random);

/// Bytes that must cross from node `source` to node `destination`.
uint64_t bytes_between(const topology::Cluster& cluster, const algorithms::Exchange& exchange, int source,
                       int destination);

/// Whether every rank whose input peers read offers some of it. (That they read nothing else is the verifier's to say.)
bool every_input_read_is_offered(const plan::Plan& plan);

/// Tiny constants (a chunk of one element, a scratch of little more than nothing) and the default ones.
std::vector<algorithms::Parameters> parameter_choices();

std::string text_of(const algorithms::Parameters& parameters);

}  // namespace epccl::tests
