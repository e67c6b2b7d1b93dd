#include "plan/printer.hpp"

#include <fmt/format.h>

#include <iterator>

namespace epccl::plan {

std::string to_text(const Location& location) {
  return fmt::format("{}.{}+{}", location.rank, to_string(location.buffer), location.offset);
}

std::string to_text(const Step& step) {
  switch (step.kind) {
    case Kind::copy: {
      std::string text =
          fmt::format("copy {} -> {} bytes={}", to_text(step.source), to_text(step.destination), step.bytes);
      if (step.rows != 1)
        text += fmt::format(" rows={} strides={}/{}", step.rows, step.source_stride, step.destination_stride);
      return text;
    }
    case Kind::send:
      return fmt::format("send to={} tag={} {} bytes={}", step.peer, step.tag, to_text(step.source),
                         step.bytes);
    case Kind::recv:
      return fmt::format("recv from={} tag={} -> {} bytes={}", step.peer, step.tag, to_text(step.destination),
                         step.bytes);
    case Kind::post:
      return fmt::format("post slot={} value={}", step.slot, step.value);
    case Kind::wait:
      return fmt::format("wait peer={} slot={} value={}", step.peer, step.slot, step.value);
  }
  return fmt::format("unknown kind {}", static_cast<int>(step.kind));
}

std::string to_text(const RankPlan& plan, uint32_t index) {
  const Step& step = plan.steps[index];
  std::string line = fmt::format("rank {} step {} stage {} {}", plan.rank, index,
                                 static_cast<int>(step.stage), to_text(step));
  const char* separator = " after=";
  for (const uint32_t dependency : plan.dependencies_of(step)) {
    fmt::format_to(std::back_inserter(line), "{}{}", separator, dependency);
    separator = ",";
  }
  return line;
}

std::string to_text(const RankPlan& plan) {
  std::string text = fmt::format("rank {}: {} steps, input {} B, output {} B, scratch {} B\n", plan.rank,
                                 plan.steps.size(), plan.input_bytes, plan.output_bytes, plan.scratch_bytes);
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    text += to_text(plan, index);
    text += '\n';
  }
  return text;
}

std::string to_text(const Plan& plan) {
  std::string text =
      fmt::format("plan {}: {} ranks on {} nodes\n", plan.algorithm, plan.ranks.size(), plan.cluster.nodes());
  for (const RankPlan& rank : plan.ranks) text += to_text(rank);
  return text;
}

}  // namespace epccl::plan
