#include "perf/src/moe/routing_trace.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "epccl/ep.h"
#include "perf/src/random.hpp"

namespace epccl::perf::moe {
namespace {

using TraceJson = nlohmann::json;

constexpr int64_t most_tokens_of_a_rank = int64_t{1} << 26;  // the library's own limit

Result<int64_t> integer_of(const TraceJson& record, const char* field, int64_t lowest, int64_t highest) {
  const auto found = record.find(field);
  if (found == record.end()) return error(Code::invalid_argument, "\"{}\" is missing", field);
  if (!found->is_number_integer()) return error(Code::invalid_argument, "\"{}\" is no integer", field);
  const auto value = found->get<int64_t>();
  if (value >= lowest && value <= highest) return value;
  return error(Code::invalid_argument, "\"{}\" is {}, want {} to {}", field, value, lowest, highest);
}

/// The record's table, from a list for each token or one list of all.
class TableReader {
 public:
  TableReader(const TraceJson& indices, int64_t tokens, int64_t topk, uint32_t experts)
      : indices_(indices), tokens_(tokens), topk_(topk), experts_(experts) {}

  Result<TopkTable> read() {
    if (!indices_.is_array()) return error(Code::invalid_argument, "\"top_indices\" is no list");
    const bool nested = !indices_.empty() && indices_.front().is_array();
    const int64_t want = nested ? tokens_ : tokens_ * topk_;
    if (static_cast<int64_t>(indices_.size()) != want) {
      return error(Code::invalid_argument, "\"top_indices\" has {} entries, want {} ({} tokens{})",
                   indices_.size(), want, tokens_, nested ? "" : fmt::format(" x top-{}", topk_));
    }
    table_.tokens = static_cast<uint32_t>(tokens_);
    table_.topk = static_cast<uint32_t>(topk_);
    for (const TraceJson& entry : indices_) EPCCL_TRY(nested ? add_token(entry) : add_expert(entry));
    return std::move(table_);
  }

 private:
  size_t token() const { return table_.experts.size() / static_cast<size_t>(topk_); }

  Status add_token(const TraceJson& experts) {
    if (!experts.is_array() || experts.size() != static_cast<size_t>(topk_))
      return error(Code::invalid_argument, "token {}: want a list of {} experts", token(), topk_);
    for (const TraceJson& expert : experts) EPCCL_TRY(add_expert(expert));
    return {};
  }

  Status add_expert(const TraceJson& value) {
    if (!value.is_number_integer())
      return error(Code::invalid_argument, "token {}: {} is no expert", token(), value.dump().substr(0, 40));
    const auto expert = value.get<int64_t>();
    if (expert < -1 || expert >= static_cast<int64_t>(experts_))
      return error(Code::invalid_argument, "token {}: expert {}, but --experts is {}", token(), expert,
                   experts_);
    const auto of_token = table_.experts.end() -
                          static_cast<std::ptrdiff_t>(table_.experts.size() % static_cast<size_t>(topk_));
    if (expert >= 0 && std::find(of_token, table_.experts.end(), expert) != table_.experts.end())
      return error(Code::invalid_argument, "token {}: expert {} twice", token(), expert);
    table_.experts.push_back(expert);
    return {};
  }

  const TraceJson& indices_;
  const int64_t tokens_, topk_;
  const uint32_t experts_;
  TopkTable table_;
};

/// The files of a trace, in an order that is the same everywhere.
Result<std::vector<std::string>> files_of(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::is_directory(path, code)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, code)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("router_trace_rank") && name.ends_with(".jsonl")) files.push_back(entry.path());
  }
  if (code) return system_error(code.value(), "routing trace " + path);
  if (files.empty())
    return error(Code::invalid_argument, "routing trace {}: no router_trace_rank<n>.jsonl in this directory",
                 path);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Result<RoutingTrace> RoutingTrace::load(const std::string& path, const TraceChoice& choice, int ranks,
                                        uint32_t experts) {
  EPCCL_ASSIGN(const std::vector<std::string> files, files_of(path));
  RoutingTrace trace(choice, ranks, experts);
  for (const std::string& name : files) {
    errno = 0;
    std::ifstream file(name);
    if (!file) return system_error(errno, "routing trace " + name);
    EPCCL_TRY(trace.add_lines(file, name));
  }
  EPCCL_TRY(trace.check_complete(path));
  return trace;
}

Result<RoutingTrace> RoutingTrace::read(std::istream& lines, const std::string& name,
                                        const TraceChoice& choice, int ranks, uint32_t experts) {
  RoutingTrace trace(choice, ranks, experts);
  EPCCL_TRY(trace.add_lines(lines, name));
  EPCCL_TRY(trace.check_complete(name));
  return trace;
}

Status RoutingTrace::add_lines(std::istream& lines, const std::string& name) {
  std::string line;
  for (int number = 1; !complete() && std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    EPCCL_TRY(add_record(line).with_context(fmt::format("routing trace {}: line {}", name, number)));
  }
  if (lines.bad()) return error(Code::system_error, "routing trace {}: cannot be read", name);
  return {};
}

Status RoutingTrace::add_record(const std::string& line) {
  const TraceJson record = TraceJson::parse(line, nullptr, false);
  if (!record.is_object()) return error(Code::invalid_argument, "no JSON object");
  EPCCL_ASSIGN(const int64_t step, integer_of(record, "step", 0, INT64_MAX));
  EPCCL_ASSIGN(const int64_t layer, integer_of(record, "layer", 0, INT64_MAX));
  EPCCL_ASSIGN(const int64_t rank, integer_of(record, "rank", 0, INT32_MAX));
  if (!choice_.step) choice_.step = step;
  if (!choice_.layer && step == *choice_.step) choice_.layer = layer;
  if (step != *choice_.step || layer != *choice_.layer || rank >= ranks_) return {};
  if (tables_.contains(static_cast<int>(rank))) return {};
  EPCCL_ASSIGN(const int64_t tokens, integer_of(record, "num_tokens", 0, most_tokens_of_a_rank));
  EPCCL_ASSIGN(const int64_t topk, integer_of(record, "topk", 1, EPCCL_EP_MAX_TOPK));
  if (topk_ == 0) topk_ = static_cast<uint32_t>(topk);
  if (topk_ != topk)
    return error(Code::invalid_argument, "\"topk\" is {}, but {} on a rank before", topk, topk_);
  const auto indices = record.find("top_indices");
  if (indices == record.end()) return error(Code::invalid_argument, "\"top_indices\" is missing");
  EPCCL_ASSIGN(tables_[static_cast<int>(rank)], TableReader(*indices, tokens, topk, experts_).read());
  return {};
}

Status RoutingTrace::check_complete(const std::string& name) const {
  const auto text = [](const std::optional<int64_t>& number) {
    return number ? fmt::format("{}", *number) : "?";
  };
  for (int rank = 0; rank < ranks_; ++rank) {
    if (tables_.contains(rank)) continue;
    return error(Code::invalid_argument, "routing trace {}: nothing for rank {} of {} in step {}, layer {}",
                 name, rank, ranks_, text(choice_.step), text(choice_.layer));
  }
  if (most_tokens() == 0) return error(Code::invalid_argument, "routing trace {}: no rank has tokens", name);
  return {};
}

uint32_t RoutingTrace::most_tokens() const {
  uint32_t most = 0;
  for (const auto& [rank, table] : tables_) most = std::max(most, table.tokens);
  return most;
}

uint64_t RoutingTrace::hash() const {
  uint64_t hash = mix(topk_, tables_.size(), 0);
  for (const auto& [rank, table] : tables_) {
    hash = mix(hash, static_cast<uint64_t>(rank), table.tokens);
    for (const int64_t expert : table.experts) hash = mix(hash, static_cast<uint64_t>(expert), 0);
  }
  return hash;
}

TopkTable RoutingTrace::table(int rank, uint32_t tokens) const {
  const TopkTable& recorded = tables_.at(rank);
  TopkTable table{std::min(tokens, recorded.tokens), recorded.topk, {}};
  const auto entries = static_cast<std::ptrdiff_t>(size_t{table.tokens} * table.topk);
  table.experts.assign(recorded.experts.begin(), recorded.experts.begin() + entries);
  return table;
}

}  // namespace epccl::perf::moe
