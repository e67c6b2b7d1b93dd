#include "perf/src/moe/shapes.hpp"

#include <fmt/format.h>

namespace epccl::perf::moe {
namespace {

RoutingRule of_groups(uint32_t chosen, uint32_t groups) {
  RoutingRule rule;
  rule.kind = RoutingRule::Kind::groups;
  rule.chosen = chosen;
  rule.groups = groups;
  return rule;
}

}  // namespace

const std::vector<NamedShape>& named_shapes() {
  // "-small" and "-tiny" keep how tokens spread, and have shorter rows: for machines that stand for larger
  // ones.
  static const std::vector<NamedShape> shapes = {
      {"deepseek-v3", {256, 8, 7168, of_groups(4, 8)}},
      {"deepseek-v3-small", {256, 8, 2048, of_groups(4, 8)}},
      {"deepseek-v3-tiny", {256, 8, 512, of_groups(4, 8)}},
      {"kimi-k2", {384, 8, 7168, {}}},
      {"qwen3-moe", {128, 8, 4096, {}}},
      {"qwen3-moe-small", {128, 8, 1024, {}}},
      {"mixtral", {8, 2, 4096, {}}},
      {"mixtral-small", {8, 2, 1024, {}}},
  };
  return shapes;
}

Result<Shape> find_shape(std::string_view name) {
  std::string known;
  for (const NamedShape& each : named_shapes()) {
    if (name == each.name) return each.shape;
    known += std::string(known.empty() ? "" : ", ") + each.name;
  }
  return error(Code::invalid_argument, "--shape {}: want one of {}", name, known);
}

std::string describe_shapes() {
  std::string text;
  for (const NamedShape& each : named_shapes()) {
    text +=
        fmt::format("  {:<18} {:>3} experts, top-{}, hidden {}, routing {}\n", each.name, each.shape.experts,
                    each.shape.topk, each.shape.hidden, to_string(each.shape.routing));
  }
  return text;
}

}  // namespace epccl::perf::moe
