#include "plan/printer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace epccl::plan {

std::string to_text(const Location& location) {
  return fmt::format("{}.{}+{}", location.rank, to_string(location.buffer), location.offset);
}

std::string to_text(const RowSum::Term& term) {
  std::string text = to_text(Location{term.rank, Buffer::input, term.offset});
  if (term.weight != RowTerm::unweighted) text += fmt::format(" weight={}", term.weight);
  if (term.ends == RowTerm::rank_sum) text += " ends=rank";
  if (term.ends == RowTerm::node_sum) text += " ends=node";
  if (term.ends == (RowTerm::rank_sum | RowTerm::node_sum)) text += " ends=rank,node";
  return text;
}

std::string to_text(std::span<const RowSum::Term> terms) {
  constexpr size_t shown = 8;
  std::string text = "(";
  for (size_t i = 0; i < std::min(terms.size(), shown); ++i)
    text += (i == 0 ? "" : " + ") + to_text(terms[i]);
  return text + (terms.size() > shown ? fmt::format(" + ... {} terms)", terms.size()) : ")");
}

namespace {

/// Rows of one side of a step: "0.input+0[list 12]".
std::string to_text(const Location& at, uint32_t list, uint32_t first_row) {
  if (list == Step::no_list) return to_text(at);
  if (first_row == 0) return fmt::format("{}[list {}]", to_text(at), list);
  return fmt::format("{}[list {} from {}]", to_text(at), list, first_row);
}

/// What the sources of a reduce or reduce_rows step are: " of 0.input+0,1.scratch+64[from 8]".
std::string sources_text(const RankPlan& plan, const Step& step) {
  std::string text;
  for (uint64_t i = 0; i < step.source_count && step.first_source + i < plan.row_sources.size(); ++i) {
    const RowSource& source = plan.row_sources[step.first_source + i];
    text += (i == 0 ? " of " : ",") + to_text(source.at);
    if (source.first_row != 0) text += fmt::format("[from {}]", source.first_row);
  }
  return text;
}

}  // namespace

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
                         step.total_bytes());
    case Kind::recv:
      return fmt::format("recv from={} tag={} -> {} bytes={}", step.peer, step.tag, to_text(step.destination),
                         step.total_bytes());
    case Kind::post:
      return fmt::format("post slot={} value={}", step.slot, step.value);
    case Kind::wait:
      return fmt::format("wait peer={} slot={} value={}", step.peer, step.slot, step.value);
    case Kind::move_rows:
      return fmt::format("move_rows {} -> {} rows={} bytes={}{}",
                         to_text(step.source, step.source_list, step.source_first_row),
                         to_text(step.destination, step.destination_list, step.destination_first_row),
                         step.rows, step.bytes, step.unless_fetched ? " unless fetched" : "");
    case Kind::reduce_rows:
      return fmt::format("reduce_rows first_sum={} sources={} -> {} rows={} bytes={}", step.first_sum,
                         step.source_count,
                         to_text(step.destination, step.destination_list, step.destination_first_row),
                         step.rows, step.bytes);
    case Kind::reduce:
      return fmt::format("reduce{} sources={} raw={} -> {} bytes={}", step.finishes ? " (last)" : "",
                         step.source_count, step.raw_count, to_text(step.destination), step.bytes);
  }
  return fmt::format("unknown kind {}", static_cast<int>(step.kind));
}

std::string to_text(const RankPlan& plan, uint32_t index) {
  const Step& step = plan.steps[index];
  std::string line = fmt::format("rank {} step {} stage {} {}", plan.rank, index,
                                 static_cast<int>(step.stage), to_text(step));
  if (step.kind == Kind::reduce_rows || step.kind == Kind::reduce) line += sources_text(plan, step);
  const char* separator = " after=";
  for (const uint32_t dependency : plan.dependencies_of(step)) {
    fmt::format_to(std::back_inserter(line), "{}{}", separator, dependency);
    separator = ",";
  }
  return line;
}

std::string to_text(const RankPlan& plan) {
  std::string text = fmt::format("rank {}: {} steps, input {} B, output {} B, scratch {} B{}\n", plan.rank,
                                 plan.steps.size(), plan.input_bytes, plan.output_bytes, plan.scratch_bytes,
                                 plan.fetches ? ", fetches" : "");
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
