// A layer's exchange as a test states it: who routes what where. The same on every rank.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "epccl/ep.h"

namespace epccl::tests {

struct Problem {
  std::vector<int> ranks_per_node;
  epcclEpLayout_t layout = EPCCL_EP_LAYOUT_FLAT;
  epcclEpStrategy_t strategy = EPCCL_EP_STRATEGY_AUTO;
  epcclDataType_t type = epcclFloat32;
  uint32_t experts = 1, k = 1, hidden = 1, max_tokens = 1;
  uint32_t alignment = 1, capacity = 0;
  bool pad = false, undefined_padding = false;
  bool is_static = false;                   // sizes from maxima
  std::vector<int> owner;                   // of an expert
  std::vector<uint32_t> tokens;             // of a rank
  std::vector<std::vector<int64_t>> topk;   // [rank]: [tokens, k]
  std::vector<std::vector<float>> weights;  // likewise

  int ranks() const { return static_cast<int>(tokens.size()); }
  int node_of(int rank) const;
  bool by_expert() const { return layout == EPCCL_EP_LAYOUT_EXPERT_MAJOR; }
  /// Experts of a rank, ascending.
  std::vector<uint32_t> experts_of(int rank) const;
  std::string text() const;
};

/// Random sizes, map and routing.
/// EPCCL_TEST_SEED, or a new one; printed.
uint64_t seed_of_this_test();
Problem random_problem(const std::vector<int>& ranks_per_node, std::mt19937_64& random);
/// One that static mode allows, and that stays the same in it.
Problem random_problem_of_fixed_size(const std::vector<int>& ranks_per_node, std::mt19937_64& random);
/// One of static mode, expert-major, with rows that only pad and may be anything.
Problem padded_problem(const std::vector<int>& ranks_per_node, std::mt19937_64& random);
/// The same but for the tables: each rank has up to max_tokens tokens, routed anew.
void reroute(Problem& problem, std::mt19937_64& random);

/// Element `h` of a token: a number of every datatype used here.
float token_value(int source, uint32_t token, uint32_t h);

}  // namespace epccl::tests
