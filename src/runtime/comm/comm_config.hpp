// The settings of one communicator, read once when it is made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "algorithms/alltoall/choose.hpp"
#include "algorithms/collectives/collective.hpp"
#include "base/status.hpp"
#include "runtime/engines/engine_use.hpp"
#include "runtime/executor/copy_policy.hpp"
#include "runtime/executor/wait_policy.hpp"
#include "runtime/messages/carry_policy.hpp"

namespace epccl::runtime {

/// What the caller of epcclCommInitRankConfig may set; the rest comes from the settings table.
struct CommOptions {
  std::optional<std::string> algorithm;
  double timeout_seconds = 0;
  std::string name;
  std::optional<std::string> network;
  std::optional<EngineUse> engines;
  int max_blocks = 0;  // 0: EPCCL_MAX_CTAS
  bool blocking = true;
  bool first_gpu_calls = true;  // false: none are waited for, whatever EPCCL_CUDA_FIRST_CALLS says
  std::optional<int> gpu;       // that this rank will use, if it is known when the communicator is made
};

/// EPCCL_NET. `automatic`: verbs, else ucx, where every rank has an RDMA device and what drives it, else tcp (network_choice.hpp).
enum class NetworkKind : uint8_t { automatic, measured, tcp, ucx, verbs, none };
const char* to_string(NetworkKind kind);

/// EPCCL_GPU_DIRECT: by what network devices may reach memory of a GPU where it lies.
enum class GpuDirect : uint8_t { automatic, dmabuf, peermem, never };

/// What a network transport is opened with.
struct NetworkSettings {
  GpuDirect gpu_direct = GpuDirect::automatic;
  std::string verbs_devices;     // EPCCL_VERBS_DEVICES, with the number of this virtual node put in
  std::optional<int> gid_index;  // EPCCL_VERBS_GID_INDEX; none: it is looked for
  std::optional<int> rails;      // EPCCL_RAILS; none: as the rail plan says
  bool rail_failover = false;    // EPCCL_RAIL_FAILOVER
  uint64_t eager_limit = 0;      // EPCCL_VERBS_EAGER_LIMIT
  double silence = 0;            // EPCCL_VERBS_TIMEOUT, seconds
};
/// For who opens devices without a communicator.
Result<NetworkSettings> read_network_settings();

struct CommConfig {
  std::optional<algorithms::Algorithm> algorithm;  // none: the cost model chooses
  std::optional<algorithms::Variant> variant;  // of collectives that have it; none: the cost model chooses
  int carriers = -1;                           // -1: the cost model chooses
  algorithms::Parameters parameters;
  uint64_t engine_chunk_bytes = 0;  // as parameters.chunk_bytes, of plans that a GPU's queues run
  bool allow_direct = true;         // EPCCL_CMA
  double link_rate = 0;             // bytes/s, 0: not set
  WaitPolicy wait;
  bool spin_is_set = false;
  Aggregate aggregate = Aggregate::automatic;
  NetworkKind network = NetworkKind::automatic;
  NetworkSettings network_settings;
  CopyPolicy copies;
  EngineConfig engines;
  uint64_t stage_bytes = 0;         // EPCCL_STAGE_SIZE
  uint64_t first_gpu_calls = 0;     // EPCCL_CUDA_FIRST_CALLS
  bool queues_behind_held = false;  // EPCCL_CUDA_AHEAD
  uint64_t compare_every = 0;       // EPCCL_STRAGGLERS; 0: never
  std::optional<int> gpu;
  std::string name;
  std::string agreement;  // the settings of scope all_ranks, as words NAME=value, options applied

  // Found out when ranks have met, and the same on all of them:
  uint64_t message_piece_bytes =
      0;                   // of messages to other nodes; 0: they go whole, no rank can have memory of a GPU
  std::string gpus_apart;  // which GPUs of a node cannot map each other's memory, and why; empty: none known

  /// Of plans between nodes that a GPU's queues run.
  algorithms::Parameters engine_parameters() const;
};

Result<CommConfig> read_comm_config(const CommOptions& options);

}  // namespace epccl::runtime
