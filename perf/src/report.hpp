// What a run reports: facts about the run, and a row for every size, datatype and algorithm.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/src/options.hpp"
#include "perf/src/run_facts.hpp"
#include "perf/src/statistics.hpp"

namespace epccl::perf {

struct RunInfo : RunFacts {
  Options options;
};

struct Row {
  uint64_t size = 0;   // bytes per rank (alltoallv: of the rank that sends most)
  uint64_t count = 0;  // elements per rank pair (alltoallv: on average over the destinations of that rank)
  DataType type;
  std::string algorithm;
  Summary seconds;
  int iterations = 0;
  std::optional<uint64_t> wrong;  // elements of all ranks; empty: not checked
  std::optional<double> wire_fraction;
  int ranks = 1;

  uint64_t bytes_per_pair() const { return count * type.bytes; }
  double algbw() const { return seconds.median > 0 ? static_cast<double>(size) / seconds.median / 1e9 : 0; }
  double busbw() const { return algbw() * (ranks - 1) / ranks; }
};

/// Over all rows.
uint64_t total_wrong(const std::vector<Row>& rows);
double average_busbw(const std::vector<Row>& rows);

// The table (table.cpp); every text ends with a newline.

/// nccl-tests' opening lines, a line for every rank, and the column titles.
std::string table_header(const RunInfo& info);
std::string table_row(const Row& row);
std::string table_footer(const RunInfo& info, const std::vector<Row>& rows);

/// The JSON file (json_report.cpp): nccl-tests' document. `errors`: what ended the run early, if anything
/// did.
nlohmann::ordered_json json_report(const RunInfo& info, const std::vector<Row>& rows,
                                   const std::vector<std::string>& errors);

}  // namespace epccl::perf
