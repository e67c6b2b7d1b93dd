// alltoall and alltoallv of one communicator: choose, build (or remember) the plan, run it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/alltoall/choose.hpp"
#include "algorithms/alltoall/counts.hpp"
#include "base/status.hpp"
#include "runtime/comm/comm_config.hpp"
#include "runtime/comm/node_alltoallv.hpp"
#include "runtime/engines/copy_engines.hpp"
#include "runtime/executor/call_name.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/executor/program_cache.hpp"

namespace epccl::runtime {

struct AlltoallCall {
  const void* input = nullptr;
  void* output = nullptr;
  uint64_t block_bytes = 0;
  // What it is called, and what ranks compare; `datatype` is a static string.
  uint64_t count = 0;
  const char* datatype = "bytes";
  EngineUse engines = EngineUse::automatic;
  device::Queue* capture = nullptr;      // as in Call
  const QueuedBehind* behind = nullptr;  // likewise
};

/// Counts and offsets in bytes, ranks entries each.
struct AlltoallvCall {
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<uint64_t> send_bytes, send_offsets, recv_bytes, recv_offsets;
  const char* datatype = "bytes";
  EngineUse engines = EngineUse::automatic;
  const QueuedBehind* behind = nullptr;  // as in Call

  /// Of a pair, in bytes: what this rank knows of the mean over all pairs, which the cost model wants.
  uint64_t mean() const {
    const uint64_t sent = std::accumulate(send_bytes.begin(), send_bytes.end(), uint64_t{0});
    return sent / std::max<size_t>(send_bytes.size(), 1);
  }
};

class AlltoallRunner {
 public:
  AlltoallRunner(const topology::Cluster& cluster, int rank, const CommConfig& config,
                 const algorithms::CostParameters& cost, Executor& executor, CopyEngines& engines);

  Status alltoall(const AlltoallCall& call);
  /// Seconds that the cost model expects of an alltoall or alltoallv.
  double predict(uint64_t bytes_per_pair) const { return choose(bytes_per_pair).seconds; }
  Status alltoallv(const AlltoallvCall& call);
  /// As alltoallv where receivers do not know what comes: blocks of `received` lie packed in rank order, rank s's at
  /// [offsets[s], offsets[s + 1]).
  Status alltoallv_unknown(const CallName& what, const void* input, const std::vector<uint64_t>& send_bytes,
                           const std::vector<uint64_t>& send_offsets, std::vector<std::byte>& received,
                           std::vector<uint64_t>& offsets);

 private:
  struct Name {
    uint64_t block_bytes;  // what the plan is built from
    uint64_t count;
    const char* datatype;
    friend bool operator==(const Name&, const Name&) = default;
  };
  struct NameHash {
    size_t operator()(const Name& name) const { return std::hash<uint64_t>{}(name.block_bytes); }
  };
  struct Planned {
    algorithms::Choice choice;
    CompiledPlan plan;
    std::string text;
    uint64_t signature = 0;  // of that
    uint16_t meaning = 0;    // likewise
    size_t bytes() const { return plan.bytes(); }
  };

  Result<const Planned*> planned(const AlltoallCall& call);
  algorithms::Choice choose(uint64_t bytes_per_pair) const;
  Result<CompiledPlan> build(const algorithms::Choice& choice, const algorithms::Exchange& exchange) const;
  void log_choice(std::string_view text, const algorithms::Choice& choice, const EngineChoice& engines) const;
  Result<plan::RankPlan> engine_plan(const algorithms::Choice& choice, const algorithms::Exchange& exchange,
                                     bool direct, int rank) const;
  Status run_on_engines(Call run, const EngineChoice& engines, const algorithms::Choice& choice,
                        const algorithms::Exchange& exchange);
  Status gather_counts(const CallName& name, const std::vector<uint64_t>& send_bytes,
                       const std::vector<uint64_t>& send_offsets, const std::vector<uint64_t>& recv_offsets,
                       const QueuedBehind* behind = nullptr);
  Status run_gathered(Call run, const algorithms::GatheredCounts& gathered, EngineUse use);
  void log_on_node(const std::string& text, const AlltoallvCall& call) const;
  Status check_counts(const AlltoallvCall& call, const algorithms::Exchange& exchange) const;

  const topology::Cluster& cluster_;
  const int rank_;
  const CommConfig& config_;
  const algorithms::CostParameters cost_;
  Executor& executor_;
  CopyEngines& engines_;
  NodeAlltoallv on_node_;
  ProgramCache<Planned, Name, NameHash> plans_;
  CompiledPlan counts_plan_;
  std::vector<algorithms::CountEntry> counts_in_, counts_out_;
};

}  // namespace epccl::runtime
