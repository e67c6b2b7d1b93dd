#include "runtime/comm/rank_info.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "base/control_groups.hpp"
#include "base/core_mask.hpp"
#include "base/fnv1a.hpp"
#include "device/gpus.hpp"
#include "runtime/comm/network.hpp"
#include "topology/host_id.hpp"

namespace epccl::runtime {
namespace {

template <size_t N>
void copy_text(std::array<char, N>& to, const std::string& text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = 0;
}

struct UsableCores {
  int count = 1;
  uint64_t set = 0;  // by kernel and numbers
};

UsableCores usable_cores(uint64_t kernel) {
  const std::vector<int> cores = allowed_cores();
  return {std::max(1, static_cast<int>(cores.size())),
          fnv1a64({reinterpret_cast<const char*>(cores.data()), cores.size() * sizeof(int)}, kernel)};
}

/// Takes a word off the text.
std::string_view next_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  return word;
}

/// Of two agreements, of rank 0 and of `rank`, the settings that are not equal.
std::string differences(std::string_view first, std::string_view other, size_t rank) {
  std::string text;
  while (!first.empty() || !other.empty()) {
    const std::string_view mine = next_word(first), theirs = next_word(other);
    if (mine == theirs) continue;
    const auto value = [](std::string_view word) { return word.substr(word.find('=') + 1); };
    text += fmt::format("{}EPCCL_{} is {} on rank 0, {} on rank {}", text.empty() ? "" : "; ",
                        mine.substr(0, mine.find('=')), value(mine), value(theirs), rank);
  }
  return text;
}

/// Cores that the ranks of a node keep busy: those of all their sets, since a launcher may have dealt them out, but not more than
/// there are ranks, nor than the quotas of their control groups give. Of sets that overlap only the numbers of cores are known: what
/// they share counts twice.
double cores_of_node(const std::vector<RankInfo>& infos, const topology::Cluster& cluster, int node) {
  std::map<uint64_t, double> sets, quotas;
  double without_quota = 0;
  for (const int rank : cluster.members(node)) {
    const RankInfo& info = infos[static_cast<size_t>(rank)];
    double& cores = sets.try_emplace(info.core_set, info.cores).first->second;
    cores = std::min<double>(cores, info.cores);
    if (info.quota > 0)
      quotas[info.quota_of] = info.quota;
    else
      ++without_quota;
  }
  const auto sum = [](const std::map<uint64_t, double>& all) {
    return std::accumulate(all.begin(), all.end(), 0.0,
                           [](double so_far, const auto& each) { return so_far + each.second; });
  };
  return std::min({sum(sets), sum(quotas) + without_quota, static_cast<double>(cluster.local_size(node))});
}

}  // namespace

Result<RankInfo> describe_this_rank(const CommConfig& config) {
  EPCCL_ASSIGN(const topology::HostId host, topology::this_host_id());
  RankInfo info;
  info.host_id = host.hash;
  info.pid = getpid();
  const UsableCores cores = usable_cores(host.kernel);
  info.core_set = cores.set;
  info.cores = cores.count;
  const CpuQuota quota = cpu_quota();
  info.quota = quota.cores;
  info.quota_of = fnv1a64({reinterpret_cast<const char*>(&quota.group), sizeof quota.group}, host.kernel);
  info.rdma = static_cast<int32_t>(rdma_drivers(config));
  info.cuda = device::cuda_possible() ? 1 : 0;
  info.gpu = config.gpu.value_or(-1);
  info.link_rate = config.link_rate;
  copy_text(info.host, host.label());
  if (config.agreement.size() >= info.agreement.size())
    return error(Code::internal_error, "the settings' text is too long to compare ({} bytes of {}): {}",
                 config.agreement.size(), info.agreement.size() - 1, config.agreement);
  copy_text(info.agreement, config.agreement);
  return info;
}

Result<std::vector<RankInfo>> exchange_rank_infos(Bootstrap& bootstrap, const RankInfo& mine) {
  EPCCL_ASSIGN(const std::vector<Blob> blobs, bootstrap.allgather(std::as_bytes(std::span(&mine, 1))));
  std::vector<RankInfo> infos;
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    if (blobs[rank].size() != sizeof(RankInfo))
      return error(Code::invalid_usage,
                   "rank {} runs another version of the library: its introduction has {} bytes, not {}", rank,
                   blobs[rank].size(), sizeof(RankInfo));
    RankInfo info;
    std::memcpy(&info, blobs[rank].data(), sizeof info);
    info.host.back() = info.agreement.back() = 0;
    if (!infos.empty() && std::strcmp(info.agreement.data(), infos.front().agreement.data()) != 0)
      return error(Code::invalid_usage, "settings differ (environment, file or epcclConfig_t): {}",
                   differences(infos.front().agreement.data(), info.agreement.data(), rank));
    if (!infos.empty() && infos.front().ids != info.ids)
      return error(Code::invalid_usage,
                   "rank 0 and rank {} were given different unique ids, or the same in another order", rank);
    infos.push_back(info);
  }
  return infos;
}

Result<topology::Cluster> make_cluster(const std::vector<RankInfo>& infos) {
  std::vector<uint64_t> host_ids;
  host_ids.reserve(infos.size());
  for (const RankInfo& info : infos) host_ids.push_back(info.host_id);
  return topology::Cluster::from_host_ids(host_ids);
}

bool outnumber_cores(const std::vector<RankInfo>& infos, int rank) {
  const RankInfo& mine = infos[static_cast<size_t>(rank)];
  const auto with_mine = [&](auto RankInfo::*what) {
    return static_cast<double>(std::ranges::count(infos, mine.*what, what));
  };
  return with_mine(&RankInfo::core_set) > mine.cores ||
         (mine.quota > 0 && with_mine(&RankInfo::quota_of) > mine.quota);
}

algorithms::CostParameters cost_parameters(const std::vector<RankInfo>& infos,
                                           const topology::Cluster& cluster) {
  algorithms::CostParameters cost;
  // The slowest link and the node with the fewest cores decide.
  for (const RankInfo& info : infos)
    if (info.link_rate > 0)
      cost.link_rate = cost.link_rate > 0 ? std::min(cost.link_rate, info.link_rate) : info.link_rate;
  cost.cores_per_node = cores_of_node(infos, cluster, 0);
  for (int node = 1; node < cluster.nodes(); ++node)
    cost.cores_per_node = std::min(cost.cores_per_node, cores_of_node(infos, cluster, node));
  return cost;
}

}  // namespace epccl::runtime
