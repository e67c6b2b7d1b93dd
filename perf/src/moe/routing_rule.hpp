// How experts are chosen, as --routing says it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace epccl::perf::moe {

struct RoutingRule {
  enum class Kind : uint8_t { uniform, zipf, groups, hot, trace };

  Kind kind = Kind::uniform;
  double exponent = 0;  // zipf
  uint32_t chosen = 0;  // groups: of these ...
  uint32_t groups = 0;  // ... so many
  uint32_t hot = 0;     // hot experts
  std::string path;     // trace
  friend bool operator==(const RoutingRule&, const RoutingRule&) = default;
};

/// `uniform`, `zipf:<exponent>`, `groups:<chosen>/<groups>`, `hot:<experts>` or `trace:<path>`.
Result<RoutingRule> parse_routing(std::string_view text);
std::string to_string(const RoutingRule& rule);

/// Error: no token can have `topk` different experts of `experts` by this rule.
Status check_routing(const RoutingRule& rule, uint32_t experts, uint32_t topk);

}  // namespace epccl::perf::moe
