// Facts about a run, whatever it measures, as the table's opening and the JSON document tell them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace epccl::perf {

/// Where a rank runs.
struct RankInfo {
  int rank = 0;
  int pid = 0;
  std::string host;
  int node = 0;
};

/// The GPU of a rank, where `per_gpu` ranks of a node share one.
int gpu_of_rank(const std::vector<RankInfo>& ranks, int rank, int per_gpu);

struct RunFacts {
  std::vector<RankInfo> ranks;
  int nodes = 1;
  std::string device = "host";  // "host" or "cuda"
  int ranks_per_gpu = 1;
  int library_version = 0;  // EPCCL_VERSION_CODE of the library that is loaded
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // "NAME=value"
  std::string start_time, end_time;
};

/// Of "NAME=value" those that can have an influence on the result; the whole environment is nobody's business, and
/// of a secret nothing but that it was set.
std::vector<std::string> relevant_environment(const char* const* variables);

// Lines of a table; every text ends with a newline.

/// "# epccl-perf version ..." and "# Collective test starting: ...".
std::string opening_lines(const RunFacts& facts, const char* operation);
/// "# Using devices" and a line for every rank.
std::string device_lines(const RunFacts& facts);
std::string wrong_line(uint64_t wrong);
std::string closing_lines(const char* operation);

/// A number in a column of nccl-tests: two decimals, or as many as fit, or an exponent.
std::string fixed_width(double value, int width);

// Parts of nccl-tests' JSON document.

const char* truth(bool value);  // nccl-tests writes these as strings
/// The document's first fields, from "version" to "epccl_version".
nlohmann::ordered_json json_opening(const RunFacts& facts);
nlohmann::ordered_json json_devices(const RunFacts& facts);
nlohmann::ordered_json json_out_of_bounds(uint64_t wrong);

}  // namespace epccl::perf
