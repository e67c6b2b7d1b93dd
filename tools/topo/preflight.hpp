// What a run of the library on this machine would use, what is missing, and which limits will hurt: judged from facts, which
// preflight_facts.hpp gathers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace epccl::tools {

/// A limit of this process; `unlimited` where there is none.
struct Limit {
  static constexpr uint64_t unlimited = UINT64_MAX;
  uint64_t soft = unlimited, hard = unlimited;
};

struct PreflightFacts {
  int nodes = 1, ranks_per_node = 1;          // of the run that is meant; of unequal nodes, on the fullest
  std::vector<int> ranks_of_nodes;            // of unequal nodes; empty: they are equal
  Status settings;                            // of EPCCL_*: what is wrong with them
  std::vector<std::string> unknown_settings;  // names in EPCCL_* that are none

  // Between nodes.
  std::string network;      // what the library would take: "tcp", "ucx", "verbs", "none"
  std::string network_why;  // why
  Status verbs;             // why verbs cannot be used; ok where it can
  bool rdma_devices = false;
  Result<std::string> address = std::string();  // where this machine is reached at, or what is wrong
  bool loopback_only = false;                   // that address is no one else's
  Result<std::string> host = std::string();     // this machine's name, or why there is none

  // What started this process, as ranks would be.
  Result<std::string> launcher = std::string();  // "slurm, as rank 1 of 8"; "": nothing; or what is wrong
  bool alone = false;                            // as the only rank
  std::string contradiction;                     // what speaks against that rank; ""
  Result<std::string> meeting_place = std::string();  // of such ranks, or why they cannot meet
  std::string meeting_doubt;                          // why they may not find rank 0; ""

  // Inside the node.
  Status shared_memory;               // whether memory to share can be made, as much as such a run shares
  Status peers_open_it;               // whether another process can open it
  Status peers_are_handed_it;         // where not: whether it is handed over
  bool later_user_namespace = false;  // than the machine's first
  Limit file_bytes;                   // RLIMIT_FSIZE, which is that of such memory, too
  Status peer_memory;                 // whether one rank can read another's memory
  bool peer_memory_wanted = true;     // EPCCL_CMA
  int ptrace_scope = -1;              // -1: not restricted by Yama, or not known
  Limit shm_directory{0, 0};          // /dev/shm: soft = free, hard = size; 0 = there is none
  uint64_t scratch_bytes = 0;         // that a rank takes
  uint64_t memory_bytes = 0;          // that is left; 0 = not known

  // Device.
  int gpus_seen = 0;                               // on the PCI bus
  Result<int> cuda_gpus = 0;                       // that the driver has, or why not
  bool device_host = false;                        // EPCCL_DEVICE=host
  bool device_cuda = false;                        // EPCCL_DEVICE=cuda
  Result<std::string> gpu_direct = std::string();  // by what RDMA ports reach GPU memory, or why not
  bool peer_memory_module = false;                 // nvidia_peermem is loaded

  // Limits.
  int cores = 1;              // this process may run on
  double cpu_quota = 0;       // cores' worth of time, by cgroup; 0 = no quota
  Limit locked_bytes;         // RLIMIT_MEMLOCK
  bool may_lock_all = false;  // CAP_IPC_LOCK
  Limit open_files;           // RLIMIT_NOFILE

  uint64_t all_ranks() const;
  uint64_t ranks_with_rank_0() const;  // on its node
};

enum class Verdict : uint8_t { fine, hurts, stops };
const char* to_string(Verdict verdict);

struct Finding {
  Verdict verdict = Verdict::fine;
  std::string topic;  // "network", "locked memory", ...
  std::string found;  // with the number
  std::string mend;   // the command that mends it; "" where nothing is to be mended
};

/// Everything there is to say, in the order of the facts; without what depends on settings where these cannot be read.
std::vector<Finding> judge(const PreflightFacts& facts);

/// 0: fine, 1: something will hurt, 2: a run cannot work.
int exit_code(const std::vector<Finding>& findings);

/// A line per finding, the mending below it, and a last line that sums up.
std::string format_findings(const PreflightFacts& facts, const std::vector<Finding>& findings);
nlohmann::ordered_json findings_json(const std::vector<Finding>& findings);

}  // namespace epccl::tools
