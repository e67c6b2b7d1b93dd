#include "problem.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace epccl::tests {

uint64_t seed_of_this_test() {
  const char* given = std::getenv("EPCCL_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  fmt::print("EPCCL_TEST_SEED={}\n", seed);
  return seed;
}

int Problem::node_of(int rank) const {
  int node = 0;
  for (int last = ranks_per_node[0]; rank >= last; last += ranks_per_node[static_cast<size_t>(node)]) ++node;
  return node;
}

std::vector<uint32_t> Problem::experts_of(int rank) const {
  std::vector<uint32_t> list;
  for (uint32_t expert = 0; expert < experts; ++expert)
    if (owner[expert] == rank) list.push_back(expert);
  return list;
}

std::string Problem::text() const {
  return fmt::format(
      "nodes [{}] layout {} strategy {} type {} experts {} k {} hidden {} alignment {} capacity {} pad {} "
      "{}static {} tokens [{}]",
      fmt::join(ranks_per_node, " "), static_cast<int>(layout), static_cast<int>(strategy),
      static_cast<int>(type), experts, k, hidden, alignment, capacity, pad,
      undefined_padding ? "undefined " : "", is_static, fmt::join(tokens, " "));
}

namespace {

void fill_tables(Problem& problem, std::mt19937_64& random) {
  problem.topk.clear();
  problem.weights.clear();
  for (const uint32_t tokens : problem.tokens) {
    auto& table = problem.topk.emplace_back();
    auto& weights = problem.weights.emplace_back();
    for (uint32_t i = 0; i < tokens * problem.k; ++i) {
      table.push_back(random() % 9 == 0 ? -1 : static_cast<int64_t>(random() % problem.experts));
      weights.push_back(static_cast<float>(random() % 1000) / 777.0F);
    }
  }
}

}  // namespace

Problem random_problem(const std::vector<int>& ranks_per_node, std::mt19937_64& random) {
  const auto below = [&](uint64_t limit) { return static_cast<uint32_t>(random() % limit); };
  const int ranks = std::accumulate(ranks_per_node.begin(), ranks_per_node.end(), 0);
  Problem made;
  made.ranks_per_node = ranks_per_node;
  made.layout = static_cast<epcclEpLayout_t>(1 + below(3));
  made.strategy = static_cast<epcclEpStrategy_t>(below(4));
  made.type = std::vector{epcclFloat32, epcclBfloat16, epcclFloat16}[below(3)];
  made.experts = 1 + below(20);
  made.k = 1 + below(6);
  const bool mapped = below(2) == 0;
  for (uint32_t expert = 0; expert < made.experts; ++expert)
    made.owner.push_back(mapped ? static_cast<int>(below(static_cast<uint64_t>(ranks)))
                                : static_cast<int>(expert * static_cast<uint32_t>(ranks) / made.experts));
  for (int rank = 0; rank < ranks; ++rank) {
    made.tokens.push_back(below(5) == 0 ? 0 : below(below(3) == 0 ? 400 : 20));
    made.max_tokens = std::max(made.max_tokens, made.tokens.back());
  }
  // Many tokens or long ones: both at once are many seconds of comparing under sanitizers.
  const uint32_t longest = made.max_tokens > 50 ? 400 : 3000;
  made.hidden = below(3) == 0 ? 1 + below(7) : 1 + below(longest);
  fill_tables(made, random);
  if (made.by_expert()) {
    made.alignment = 1 + below(4);
    if (below(3) == 0) made.capacity = 1 + below(30);
    made.pad = made.capacity > 0 && below(2) == 0;
    made.undefined_padding = below(4) == 0;
  }
  return made;
}

Problem random_problem_of_fixed_size(const std::vector<int>& ranks_per_node, std::mt19937_64& random) {
  Problem made = random_problem(ranks_per_node, random);
  if (made.layout == EPCCL_EP_LAYOUT_FLAT) made.layout = EPCCL_EP_LAYOUT_RANK_MAJOR;
  if (!made.by_expert()) return made;
  if (made.capacity == 0) made.capacity = 1 + static_cast<uint32_t>(random() % 30);
  made.pad = true;
  return made;
}

Problem padded_problem(const std::vector<int>& ranks_per_node, std::mt19937_64& random) {
  Problem made = random_problem_of_fixed_size(ranks_per_node, random);
  made.layout = EPCCL_EP_LAYOUT_EXPERT_MAJOR;
  made.is_static = made.pad = made.undefined_padding = true;
  made.capacity = made.max_tokens + 1;
  return made;
}

void reroute(Problem& problem, std::mt19937_64& random) {
  for (uint32_t& tokens : problem.tokens) {
    const uint32_t most = random() % 8 == 0 ? problem.max_tokens : std::min(problem.max_tokens, 20U);
    tokens = static_cast<uint32_t>(random() % (most + 1));
  }
  fill_tables(problem, random);
}

float token_value(int source, uint32_t token, uint32_t h) {
  uint64_t x = static_cast<uint64_t>(source + 1) * 0x9e3779b97f4a7c15ULL ^
               (token + 1) * 0xc2b2ae3d27d4eb4fULL ^ (h + 1) * 0x165667b19e3779f9ULL;
  x ^= x >> 31;
  x *= 0x27d4eb2f165667c5ULL;
  return static_cast<float>(static_cast<int>(x >> 40) % 128) / 64.0F;
}

}  // namespace epccl::tests
