// Models by name: --shape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/src/moe/routing_rule.hpp"

namespace epccl::perf::moe {

/// What a model's MoE layers are like, as far as tokens travel.
struct Shape {
  uint32_t experts = 64;
  uint32_t topk = 8;
  uint32_t hidden = 2048;
  RoutingRule routing;
};

struct NamedShape {
  const char* name;
  Shape shape;
};

const std::vector<NamedShape>& named_shapes();
Result<Shape> find_shape(std::string_view name);
/// A line for each, for --help.
std::string describe_shapes();

}  // namespace epccl::perf::moe
