// A routing that was recorded: one JSON object a line, as Megatron-LM's router tracer writes them:
//   {"step": 3, "layer": 7, "rank": 0, "num_tokens": 2, "topk": 2, "top_indices": [[5, 1], [0, 5]]}
// Other fields are ignored, `top_indices` may be flat, and -1 is a token's unused entry.
#pragma once

#include <istream>
#include <map>
#include <optional>
#include <string>

#include "perf/src/moe/routing.hpp"

namespace epccl::perf::moe {

/// Which records of a trace. Empty: those of the first record's step and layer.
struct TraceChoice {
  std::optional<int64_t> step, layer;
};

class RoutingTrace final : public Routing {
 public:
  /// `path`: a file, or a directory with Megatron's router_trace_rank<n>.jsonl. Records of ranks from `ranks`
  /// on are ignored, and all of a rank but the first (micro-batches). Error: a rank has none, or what is
  /// there is no routing for `experts` experts.
  static Result<RoutingTrace> load(const std::string& path, const TraceChoice& choice, int ranks,
                                   uint32_t experts);
  /// `name` is for errors.
  static Result<RoutingTrace> read(std::istream& lines, const std::string& name, const TraceChoice& choice,
                                   int ranks, uint32_t experts);

  uint32_t topk() const { return topk_; }
  int64_t step() const { return *choice_.step; }
  int64_t layer() const { return *choice_.layer; }
  /// Of the rank that has most.
  uint32_t most_tokens() const;
  /// Of all tables.
  uint64_t hash() const;

  /// A rank that has fewer than `tokens` gives what it has.
  TopkTable table(int rank, uint32_t tokens) const override;

 private:
  RoutingTrace(const TraceChoice& choice, int ranks, uint32_t experts)
      : choice_(choice), ranks_(ranks), experts_(experts) {}
  Status add_lines(std::istream& lines, const std::string& name);
  Status add_record(const std::string& line);
  Status check_complete(const std::string& name) const;
  bool complete() const { return tables_.size() == static_cast<size_t>(ranks_); }

  TraceChoice choice_;
  int ranks_;
  uint32_t experts_;
  uint32_t topk_ = 0;
  std::map<int, TopkTable> tables_;
};

}  // namespace epccl::perf::moe
