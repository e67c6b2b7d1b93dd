// Whether GPUs can map each other's memory: found out by trying, and the same on every rank.
//
//   allocate a little, offer it  --all tell all-->  map what the others of the node offer  --all tell all-->  verdict
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

/// What a rank tells the others: as it is in memory, so plain bytes.
struct TrialWord {
  device::MemoryHandle memory;
  uint32_t has_memory = 0;
  char why_not[256] = {};  // empty: nothing is wrong so far
};

/// Tells every rank `mine`, and gives everybody's, by rank.
using TellAll = std::function<Status(const TrialWord& mine, std::vector<TrialWord>& all)>;

/// Every rank of a communicator calls it. `mine`: this rank's GPU; null: it takes no part; an error speaks for all. Empty: what was tried
/// works; else the first rank that has a reason, and the reason.
Result<std::string> try_mapping(const topology::Cluster& cluster, int rank,
                                const Result<device::Device*>& mine, const TellAll& tell);

}  // namespace epccl::runtime
