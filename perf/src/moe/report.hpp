// What a run reports: a row for every number of tokens and strategy.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/src/moe/options.hpp"
#include "perf/src/overlap/overlap.hpp"
#include "perf/src/run_facts.hpp"
#include "perf/src/statistics.hpp"

namespace epccl::perf::moe {

struct RunInfo : RunFacts {
  Options options;
  std::string blas;  // the library of --overlap; empty: none
};

/// Bytes of all ranks by the link they take. A combine's are known between nodes only: there they are those
/// of the rows that come back.
struct LinkBytes {
  uint64_t local = 0, node = 0;  // of the dispatch
  uint64_t network = 0;          // of the operation
};

struct Row {
  epcclEpStrategy_t asked = EPCCL_EP_STRATEGY_AUTO, used = EPCCL_EP_STRATEGY_AUTO;
  uint32_t tokens = 0;          // of a rank, as asked for
  uint64_t total_tokens = 0;    // of all ranks
  uint64_t bytes_per_rank = 0;  // as if each (token, expert) were a copy; mean over ranks
  Summary seconds, dispatch, combine, update, fresh;
  std::optional<Summary> in_a_row;  // --static on a GPU: of one of many that are queued behind each other
  int iterations = 0;
  LinkBytes bytes, expected;
  double imbalance = 1;
  std::optional<double> wire_fraction;
  std::optional<uint64_t> wrong;  // elements of all ranks; empty: not checked
  std::optional<Split> split;
  std::optional<Overlap> overlap;
  std::optional<Overlap> sockets;  // the same bytes by a bare socket, beneath the same compute

  double algbw() const {
    return seconds.median > 0 ? static_cast<double>(bytes_per_rank) / seconds.median / 1e9 : 0;
  }
  double tokens_per_second() const {
    return seconds.median > 0 ? static_cast<double>(total_tokens) / seconds.median : 0;
  }
};

/// Over all rows.
uint64_t total_wrong(const std::vector<Row>& rows);

// The table (table.cpp; with --overlap the rows are overlap_table.cpp's); every text ends with a newline.
std::string table_header(const RunInfo& info);
std::string table_row(const Options& options, const Row& row);
std::string overlap_titles();
std::string overlap_row(const Row& row);
std::string strategy_text(const Row& row);
std::string table_footer(const RunInfo& info, const std::vector<Row>& rows);

/// The JSON file (json_report.cpp): nccl-tests' document, with results of our own. `errors`: what ended the
/// run early, if anything did.
nlohmann::ordered_json json_report(const RunInfo& info, const std::vector<Row>& rows,
                                   const std::vector<std::string>& errors);

}  // namespace epccl::perf::moe
