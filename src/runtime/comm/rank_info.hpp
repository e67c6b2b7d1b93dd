// What ranks tell each other about themselves when a communicator is made, and what follows from it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/bootstrap/unique_id.hpp"
#include "runtime/comm/comm_config.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

struct RankInfo {
  uint64_t host_id = 0;
  uint64_t core_set = 0;  // the same for ranks that run on the same cores, of whatever node or container
  int32_t pid = 0;
  int32_t cores = 1;       // this process may use
  double quota = 0;        // cores' worth of time, by control group; 0: all
  uint64_t quota_of = 0;   // the same for ranks that have one quota together, of whatever node or container
  int32_t rdma = 0;        // RdmaDrivers: what of this build can drive an RDMA device of this machine
  int32_t cuda = 0;        // whether memory of GPUs can appear in this process
  int32_t gpu = -1;        // this rank's; -1: not known yet
  double link_rate = 0;    // bytes/s of the node's network, 0: unknown
  uint64_t ids = 0;        // Gathering::ids
  UniqueId meeting_point;  // zeros: this rank could not open one
  std::array<char, 64> host{};
  std::array<char, 320> agreement{};  // CommConfig::agreement
};

Result<RankInfo> describe_this_rank(const CommConfig& config);

/// All ranks' infos, in rank order. Error when two ranks' settings disagree, naming both and both values.
Result<std::vector<RankInfo>> exchange_rank_infos(Bootstrap& bootstrap, const RankInfo& mine);

Result<topology::Cluster> make_cluster(const std::vector<RankInfo>& infos);

/// Whether ranks outnumber the cores that this one runs on, of whatever node or container they are; or those that its control
/// group's quota makes of them.
bool outnumber_cores(const std::vector<RankInfo>& infos, int rank);

/// The cost model's view of this cluster: the same on every rank.
algorithms::CostParameters cost_parameters(const std::vector<RankInfo>& infos,
                                           const topology::Cluster& cluster);

}  // namespace epccl::runtime
