#include "perf/src/run_facts.hpp"

#include <fmt/format.h>

#include <string_view>

#include "epccl/epccl.h"

namespace epccl::perf {
namespace {

constexpr int document_version = 2;  // of nccl-tests' document

int device_of(const RunFacts& facts, int rank) {
  return facts.device == "host" ? 0 : gpu_of_rank(facts.ranks, rank, facts.ranks_per_gpu);
}

}  // namespace

int gpu_of_rank(const std::vector<RankInfo>& ranks, int rank, int per_gpu) {
  const auto mine = static_cast<size_t>(rank);
  int before = 0;  // on the node
  for (size_t other = 0; other < mine; ++other) before += ranks[other].node == ranks[mine].node ? 1 : 0;
  return before / per_gpu;
}

std::vector<std::string> relevant_environment(const char* const* variables) {
  constexpr std::string_view secret = "EPCCL_JOB_KEY=";
  std::vector<std::string> relevant;
  for (; *variables != nullptr; ++variables) {
    const std::string_view variable = *variables;
    if (variable.starts_with(secret)) {
      relevant.push_back(std::string(secret) + "(set)");
    } else if (variable.starts_with("EPCCL_") || variable.starts_with("UCX_")) {
      relevant.emplace_back(variable);
    }
  }
  return relevant;
}

std::string opening_lines(const RunFacts& facts, const char* operation) {
  return fmt::format("# epccl-perf version {} epccl-headers={} epccl-library={}\n", EPCCL_VERSION_STRING,
                     EPCCL_VERSION_CODE, facts.library_version) +
         fmt::format("# Collective test starting: {}\n", operation);
}

std::string device_lines(const RunFacts& facts) {
  std::string text = "#\n# Using devices\n";
  for (const RankInfo& rank : facts.ranks) {
    text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} [{}] node {}\n", rank.rank,
                        rank.pid, rank.host, device_of(facts, rank.rank), facts.device, rank.node);
  }
  return text;
}

std::string wrong_line(uint64_t wrong) {
  return fmt::format("# {:<20} : {} {}\n", "Out of bounds values", wrong, wrong == 0 ? "OK" : "FAILED");
}

std::string closing_lines(const char* operation) {
  return fmt::format("#\n# Collective test concluded: {}\n", operation);
}

std::string fixed_width(double value, int width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    const std::string text = fmt::format("{:{}.{}f}", value, width, decimals);
    if (text.size() <= static_cast<size_t>(width)) return text;
  }
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

const char* truth(bool value) {
  return value ? "true" : "false";
}

nlohmann::ordered_json json_opening(const RunFacts& facts) {
  return {{"version", document_version},
          {"start_time", facts.start_time},
          {"args", facts.arguments},
          {"env", facts.environment},
          {"epccl_version", facts.library_version}};
}

nlohmann::ordered_json json_devices(const RunFacts& facts) {
  auto devices = nlohmann::ordered_json::array();
  for (const RankInfo& rank : facts.ranks) {
    devices.push_back({{"rank", rank.rank},
                       {"group", 0},
                       {"pid", rank.pid},
                       {"hostname", rank.host},
                       {"device", device_of(facts, rank.rank)},
                       {"device_hex", facts.device},
                       {"device_info", facts.device == "host" ? "host memory" : "GPU memory"},
                       {"node", rank.node}});
  }
  return devices;
}

nlohmann::ordered_json json_out_of_bounds(uint64_t wrong) {
  return {{"count", wrong}, {"okay", truth(wrong == 0)}};
}

}  // namespace epccl::perf
