// Which experts a token goes to. A rank's table follows from the seed and its number alone, so that every
// process can compute every rank's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "perf/src/moe/routing_rule.hpp"

namespace epccl::perf::moe {

/// One rank's tokens and their experts; -1 where a token has fewer than topk.
struct TopkTable {
  uint32_t tokens = 0;
  uint32_t topk = 0;
  std::vector<int64_t> experts;  // [tokens, topk]

  std::span<const int64_t> row(uint32_t token) const {
    return std::span(experts).subspan(size_t{token} * topk, topk);
  }
};

class Routing {
 public:
  virtual ~Routing() = default;
  /// A rank's first `tokens` tokens. A shorter table is the beginning of a longer one.
  virtual TopkTable table(int rank, uint32_t tokens) const = 0;
};

/// Any rule but a trace; check_routing() holds.
std::unique_ptr<Routing> make_routing(const RoutingRule& rule, uint32_t experts, uint32_t topk,
                                      uint64_t seed);

/// Of every rank.
std::vector<TopkTable> all_tables(const Routing& routing, int ranks, uint32_t tokens);

}  // namespace epccl::perf::moe
