// Whether copy engines move the data of a collective.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.hpp"

namespace epccl::runtime {

/// EPCCL_COPY_ENGINE, epcclConfig_t.copyEngine and epcclCommSetCopyEngine().
enum class EngineUse : uint8_t { automatic, always, never };
const char* to_string(EngineUse use);
Result<EngineUse> parse_engine_use(const std::string& text);

struct EngineConfig {
  EngineUse use = EngineUse::automatic;
  int max_blocks = 0;        // that reductions beside copy engines use at most; 0: the device's choice
  uint64_t stage_bytes = 0;  // EPCCL_STAGE_SIZE
  bool near_signals = true;  // EPCCL_CUDA_SIGNALS: ranks that share a GPU signal each other in its memory
  bool gpus_reach = false;   // GPUs of a node map each other's memory: tried, of all ranks
};

struct EngineChoice {
  bool engines = false;  // all of it: the plan becomes queues of the device
  bool copies = false;   // the large copies inside a node, of a plan that a core runs
  const char* why = "";
  bool by_cores = false;       // what those queues copy with: compute cores
  bool may_use_cores = false;  // engines may leave to compute cores what those copy faster

  static EngineChoice host(const char* why) { return {.why = why}; }
  static EngineChoice host_with_engines(const char* why) { return {.copies = true, .why = why}; }
  static EngineChoice copy_engines(const char* why, bool may_use_cores = false) {
    return {.engines = true, .why = why, .may_use_cores = may_use_cores};
  }
  static EngineChoice compute_cores(const char* why) {
    return {.engines = true, .why = why, .by_cores = true};
  }

  /// For log lines.
  const char* who() const {
    if (engines) return by_cores ? "kernels" : "engines";
    return copies ? "cores+engines" : "cores";
  }
  /// What a device's queues copy with: part of a call's text, so that ranks that disagree are told.
  const char* movers() const { return by_cores ? "compute cores" : "copy engines"; }
};

}  // namespace epccl::runtime
