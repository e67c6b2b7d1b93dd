// A RankPlan made ready to run many times: successors instead of dependencies, local positions instead of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::runtime {

struct CompiledStep {
  plan::Step step;
  int16_t source_local = -1, destination_local = -1,
          peer_local = -1;   // positions on the node, where they mean something
  bool others_wait = false;  // a post or a send, sooner or later, waits for this step
  uint32_t first_successor = 0, last_successor = 0;
};

struct CompiledPlan {
  std::vector<CompiledStep> steps;
  std::vector<uint32_t> successors;
  std::vector<uint32_t> dependency_counts;  // what a run starts with
  std::vector<uint32_t> initially_ready;
  std::vector<plan::RowSource> row_sources;
  std::vector<int16_t> row_source_locals;
  std::shared_ptr<const plan::RowTables> tables;
  uint64_t input_bytes = 0, output_bytes = 0, scratch_bytes = 0;
  plan::Extent offered;
  bool uses_network = false;

  /// What it takes in memory; the tables are others' as well.
  size_t bytes() const;
  /// Goes on with other tables: see plan::count_rows().
  void use_tables(std::shared_ptr<const plan::RowTables> other);
};

CompiledPlan compile(const plan::RankPlan& plan, const topology::Cluster& cluster);

}  // namespace epccl::runtime
