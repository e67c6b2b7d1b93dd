// What a run reports: a row for each kind of links.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perf/src/links/diagnosis.hpp"
#include "perf/src/links/options.hpp"
#include "perf/src/run_facts.hpp"

namespace epccl::perf::links {

inline constexpr double us = 1e6, gigabyte = 1e9;  // what a second has, what GB/s are told in

struct RunInfo : RunFacts {
  Options options;
};

struct Row {
  Pairs kind = Pairs::rails;
  size_t rounds = 0;
  std::vector<int> node_of;
  std::vector<Link> links;
  Diagnosis diagnosis;
};

/// There is nothing to compare.
inline uint64_t total_wrong(const std::vector<Row>& /*rows*/) {
  return 0;
}

// The table (table.cpp); every text ends with a newline.
std::string table_header(const RunInfo& info);
std::string table_row(const Row& row);
std::string table_footer(const RunInfo& info, const std::vector<Row>& rows);

/// The JSON file (json_report.cpp). `errors`: what ended the run early, if anything did.
nlohmann::ordered_json json_report(const RunInfo& info, const std::vector<Row>& rows,
                                   const std::vector<std::string>& errors);

}  // namespace epccl::perf::links
