// What a run reports: facts about the run, and a row for every size, datatype and algorithm.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/src/operation.hpp"
#include "perf/src/options.hpp"
#include "perf/src/overlap/overlap.hpp"
#include "perf/src/run_facts.hpp"
#include "perf/src/statistics.hpp"

namespace epccl::perf {

struct RunInfo : RunFacts {
  Options options;
  std::string blas;  // the library of --overlap; empty: none
};

/// Which call a row is about.
struct RowKey {
  Operation operation = Operation::alltoall;
  DataType type;
  uint64_t size = 0;  // bytes, as nccl-tests has it (alltoallv: of the rank that sends most)
  uint64_t count =
      0;  // the call's argument, elements (alltoallv: on average over the destinations of that rank)
  std::optional<RedOp> redop;
  int root = -1;  // -1: it has none
  int ranks = 1;
  uint64_t link_bytes = 0;  // what the busiest link between nodes carries at least
};

struct Row : RowKey {
  std::string algorithm;
  std::string engine;  // --copy-engine; empty: not given
  std::optional<Measurement> out_of_place, in_place;
  std::optional<double> link_rate;  // bits per second and node
  std::optional<Overlap> overlap;   // of the call out of place, or else in place
  std::optional<Overlap> copies;    // bare ones, beneath the same compute

  double algbw(const Measurement& measured) const {
    const double seconds = measured.seconds.median;
    return seconds > 0 ? static_cast<double>(size) / seconds / 1e9 : 0;
  }
  double busbw(const Measurement& measured) const { return algbw(measured) * bus_factor(operation, ranks); }
  /// Which columns beyond nccl-tests' are about: out of place if that was measured.
  const Measurement& main() const { return out_of_place ? *out_of_place : *in_place; }
  uint64_t wrong() const;
  /// Of its time, what the network needs at least; empty: not known, or there is no network in it.
  std::optional<double> wire_fraction() const;
};

/// Over all rows.
uint64_t total_wrong(const std::vector<Row>& rows);
double average_busbw(const std::vector<Row>& rows);

// The table (table.cpp); every text ends with a newline.

/// nccl-tests' opening lines, a line for every rank, and the column titles.
std::string table_header(const RunInfo& info);
std::string table_row(const Row& row);
/// With --overlap rows are these (overlap_table.cpp).
std::string overlap_titles();
std::string overlap_row(const Row& row);
std::string table_footer(const RunInfo& info, const std::vector<Row>& rows);

/// The JSON file (json_report.cpp): nccl-tests' document. `errors`: what ended the run early, if anything
/// did.
nlohmann::ordered_json json_report(const RunInfo& info, const std::vector<Row>& rows,
                                   const std::vector<std::string>& errors);

}  // namespace epccl::perf
