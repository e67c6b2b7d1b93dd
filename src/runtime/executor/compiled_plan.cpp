#include "runtime/executor/compiled_plan.hpp"

#include "runtime/executor/kept_bytes.hpp"

namespace epccl::runtime {

using plan::Kind;

CompiledPlan compile(const plan::RankPlan& plan, const topology::Cluster& cluster) {
  CompiledPlan compiled;
  const size_t count = plan.steps.size();
  compiled.input_bytes = plan.input_bytes;
  compiled.output_bytes = plan.output_bytes;
  compiled.scratch_bytes = plan.scratch_bytes;
  compiled.offered = plan.offered;
  compiled.steps.reserve(count);
  compiled.dependency_counts.reserve(count);
  std::vector<uint32_t> successor_counts(count, 0);
  for (const uint32_t dependency : plan.dependencies) ++successor_counts[dependency];

  const auto local = [&](int rank) { return static_cast<int16_t>(rank < 0 ? -1 : cluster.local_of(rank)); };
  compiled.row_sources = plan.row_sources;
  for (const plan::RowSource& source : plan.row_sources)
    compiled.row_source_locals.push_back(local(source.at.rank));
  compiled.tables = plan.tables;
  uint32_t next_successor = 0;
  for (size_t i = 0; i < count; ++i) {
    const plan::Step& step = plan.steps[i];
    CompiledStep ready{step,
                       local(step.source.rank),
                       local(step.destination.rank),
                       local(step.peer),
                       step.kind == Kind::send || step.kind == Kind::post,
                       next_successor,
                       next_successor};
    next_successor += successor_counts[i];
    compiled.uses_network |= step.kind == Kind::send || step.kind == Kind::recv;
    compiled.steps.push_back(ready);
    compiled.dependency_counts.push_back(step.dependency_count);
    if (step.dependency_count == 0) compiled.initially_ready.push_back(static_cast<uint32_t>(i));
  }
  compiled.successors.resize(next_successor);
  for (size_t i = 0; i < count; ++i)
    for (const uint32_t dependency : plan.dependencies_of(plan.steps[i]))
      compiled.successors[compiled.steps[dependency].last_successor++] = static_cast<uint32_t>(i);
  // Dependencies are earlier steps, so one pass from the end reaches all.
  for (size_t i = count; i-- > 0;)
    if (compiled.steps[i].others_wait)
      for (const uint32_t dependency : plan.dependencies_of(plan.steps[i]))
        compiled.steps[dependency].others_wait = true;
  return compiled;
}

size_t CompiledPlan::bytes() const {
  return kept_bytes(steps, successors, dependency_counts, initially_ready, row_sources, row_source_locals);
}

void CompiledPlan::use_tables(std::shared_ptr<const plan::RowTables> other) {
  if (tables == other) return;
  tables = std::move(other);
  for (CompiledStep& step : steps) plan::count_rows(step.step, *tables);
}

}  // namespace epccl::runtime
