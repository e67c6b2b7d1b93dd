// The collectives beside alltoall of one communicator: choose, build (or remember) the plan, run it.
#pragma once

#include <optional>
#include <string>

#include "algorithms/collectives/choose_form.hpp"
#include "base/status.hpp"
#include "device/host/reduction.hpp"
#include "runtime/comm/comm_config.hpp"
#include "runtime/engines/copy_engines.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/executor/program_cache.hpp"

namespace epccl::runtime {

struct CollectiveCall {
  algorithms::CollectiveSpec what;
  const void* input = nullptr;
  void* output = nullptr;
  std::optional<device::Reduction> reduction;  // for those that reduce
  EngineUse engines = EngineUse::automatic;
  // What it is called, and what ranks compare: static strings.
  uint64_t count = 0;
  const char* datatype = "bytes";
  const char* operation = "";
  std::string part = {};                 // "", or which part it is of a call that is made piece by piece
  device::Queue* capture = nullptr;      // as in Call
  const QueuedBehind* behind = nullptr;  // likewise

  /// "allreduce count 4 float32 sum": equal on ranks that agree, and different for different plans.
  std::string text() const;
};

class CollectiveRunner {
 public:
  CollectiveRunner(const topology::Cluster& cluster, int rank, const CommConfig& config,
                   const algorithms::CostParameters& cost, Executor& executor, CopyEngines& engines)
      : cluster_(cluster),
        rank_(rank),
        config_(config),
        cost_(cost),
        executor_(executor),
        engines_(engines) {}

  Status run(const CollectiveCall& call);
  /// How this communicator would run it.
  algorithms::FormChoice choose(const CollectiveCall& call) const;
  /// Who moves its data; the same on every rank.
  EngineChoice choose_engines(const CollectiveCall& call,
                              const algorithms::FormChoice* known = nullptr) const;
  /// Whether one launch of a kernel can add up as many parts as the sums of this call have.
  bool kernels_name_all(const CollectiveCall& call, const algorithms::FormChoice* known = nullptr) const;

 private:
  struct Name {
    algorithms::Collective kind;
    int root;
    uint64_t bytes, count;
    const char *datatype, *operation;
    std::string part;
    friend bool operator==(const Name&, const Name&) = default;
  };
  struct NameHash {
    size_t operator()(const Name& name) const;
  };
  struct Planned {
    std::string text;
    uint64_t signature = 0;  // of that
    uint16_t meaning = 0;    // likewise
    algorithms::FormChoice choice;
    CompiledPlan plan;
    bool is_small = false;                       // alike on all ranks
    uint64_t input_bytes = 0, output_bytes = 0;  // of the rank's buffers
    size_t bytes() const { return plan.bytes(); }
  };

  /// Whether all of it is staged in one round, in no more scratch than small calls have.
  bool fits_small_place(const algorithms::CollectiveSpec& call,
                        algorithms::CollectiveParameters parameters) const;
  algorithms::CollectiveParameters base_parameters(const CollectiveCall& call) const;
  Result<const Planned*> planned(const CollectiveCall& call);
  Result<Planned> make_plan(const CollectiveCall& call) const;
  Result<plan::RankPlan> engine_plan(const CollectiveCall& call, const algorithms::FormChoice& choice,
                                     const CopyEngines::Reach& reach, int rank) const;
  Status run_on_engines(const CollectiveCall& call, const EngineChoice& engines,
                        const algorithms::FormChoice& choice, Call run);
  void log_choice(const std::string& text, const algorithms::FormChoice& choice,
                  const EngineChoice& engines) const;

  const topology::Cluster& cluster_;
  const int rank_;
  const CommConfig& config_;
  const algorithms::CostParameters cost_;
  Executor& executor_;
  CopyEngines& engines_;
  ProgramCache<Planned, Name, NameHash> plans_;
};

}  // namespace epccl::runtime
