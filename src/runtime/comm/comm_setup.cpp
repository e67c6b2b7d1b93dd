// How ranks become a communicator:
//
//   join -> introductions (host, settings) -> cluster -> node segment -> may we read and open each other's? -> network -> may our GPUs?
//        -> Communicator::begin()
#include <algorithm>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"
#include "base/threads_own.hpp"
#include "device/gpus.hpp"
#include "runtime/bootstrap/allgather.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/network.hpp"
#include "runtime/comm/node_setup.hpp"
#include "runtime/comm/rank_info.hpp"
#include "runtime/engines/mapping_trial.hpp"
#include "runtime/executor/placement.hpp"
#include "runtime/queues/pinned_stage.hpp"
#include "topology/caches.hpp"
#include "topology/cpu_list.hpp"

namespace epccl::runtime {
namespace {

void warn_of_unknown_settings(int rank) {
  static std::once_flag once;
  std::call_once(once, [rank] {
    for (const std::string& name : settings::unknown_names())
      log::warn(log::env, rank, "{} is not a setting of EPCCL: see docs/configuration.md", name);
  });
}

// Ranks whose GPU is not known yet take no part: where those cannot map each other a call fails, and says so.
Status find_gpus_apart(CommParts& parts, const std::vector<RankInfo>& infos) {
  const auto knows = [&](const RankInfo& info) { return info.gpu >= 0; };
  parts.config.engines.gpus_reach = std::ranges::all_of(infos, knows);
  if (std::ranges::count_if(infos, knows) < 2) return {};
  Result<device::Device*> mine = static_cast<device::Device*>(nullptr);
  // A GPU that cannot be used is for the first call to tell.
  if (parts.config.gpu)
    if (auto gpu = device::cuda_device(*parts.config.gpu); gpu.ok()) mine = gpu;
  const auto tell = [&parts](const TrialWord& word, std::vector<TrialWord>& all) -> Status {
    EPCCL_ASSIGN(all, allgather(*parts.bootstrap, word));
    return {};
  };
  EPCCL_ASSIGN(parts.config.gpus_apart, try_mapping(parts.cluster, parts.rank, mine, tell));
  if (parts.config.gpus_apart.empty()) return {};
  parts.config.engines.gpus_reach = false;
  if (parts.config.engines.use != EngineUse::always)
    log::info(
        log::coll, parts.rank,
        "comm {}: calls on GPU memory are staged through pinned host memory, since GPUs of a node do not "
        "reach each other: {}",
        parts.config.name, parts.config.gpus_apart);
  return {};
}

/// Among the ranks that share this one's cores.
struct Sharing {
  size_t ranks = 0;
  size_t position = 0;  // those before this one, node by node
  int first_node = 0;
};

Sharing find_sharing(const CommParts& parts, const std::vector<RankInfo>& infos) {
  const auto place = [&parts](int rank) {
    return std::pair(parts.cluster.node_of(rank), parts.cluster.local_of(rank));
  };
  Sharing found{0, 0, parts.cluster.node_of(parts.rank)};
  for (int rank = 0; rank < parts.cluster.ranks(); ++rank) {
    if (infos[static_cast<size_t>(rank)].core_set != infos[static_cast<size_t>(parts.rank)].core_set)
      continue;
    ++found.ranks;
    found.position += place(rank) < place(parts.rank) ? 1 : 0;
    found.first_node = std::min(found.first_node, parts.cluster.node_of(rank));
  }
  return found;
}

void set_wait_policy(CommParts& parts, const std::vector<RankInfo>& infos) {
  // Spinning pays only while every rank has a core of its own; virtual nodes and containers of one machine share its cores, and
  // ranks that are bound to different ones do not. What is spun away of a quota the whole group is kept waiting for.
  const Sharing sharing = find_sharing(parts, infos);
  parts.config.wait.share_cores = outnumber_cores(infos, parts.rank);
  if (parts.config.wait.share_cores && !parts.config.spin_is_set) parts.config.wait.spin_seconds = 0;
  parts.config.wait.home_core =
      home_core(sharing.position, sharing.ranks, static_cast<size_t>(sharing.first_node));
}

struct KnownCaches {
  topology::CpuList cpus;
  topology::LastLevelCaches caches;
};

void set_copy_policy(CommParts& parts, const std::vector<RankInfo>& infos) {
  KnownCaches& known = threads_own<KnownCaches>();
  topology::CpuList cpus = topology::allowed_cpus();
  if (cpus != known.cpus) known = {cpus, topology::last_level_caches(cpus)};
  // Not all of it is there for one call.
  const uint64_t share =
      std::min(known.caches.total / find_sharing(parts, infos).ranks, known.caches.largest);
  parts.config.copies.cached_bytes = share / 4 * 3;
}

// A power of two is so many whole pieces, and no empty one behind them.
uint64_t message_piece(const CommParts& parts, const std::vector<RankInfo>& infos) {
  const bool has_gpus = std::ranges::any_of(infos, [](const RankInfo& info) { return info.cuda != 0; });
  return has_gpus ? piece_of_stage(parts.config.stage_bytes, parts.cluster.ranks()) + 256 : 0;
}

// What follows joining. Its errors are known to the other ranks from the control line.
Status set_up_joined(CommParts& parts, const RankInfo& mine) {
  const int rank = parts.rank;
  EPCCL_ASSIGN(const std::vector<RankInfo> infos, exchange_rank_infos(*parts.bootstrap, mine));
  for (const RankInfo& info : infos) parts.meeting_points.push_back(info.meeting_point);
  EPCCL_ASSIGN(parts.cluster, make_cluster(infos));
  for (int node = 0; node < parts.cluster.nodes(); ++node)
    parts.hosts.emplace_back(infos[static_cast<size_t>(parts.cluster.rank_at(node, 0))].host.data());
  if (parts.cluster.max_local_size() > transports::node_max_ranks)
    return error(Code::invalid_usage, "{} ranks on one node: at most {} are supported",
                 parts.cluster.max_local_size(), transports::node_max_ranks);
  parts.cost = cost_parameters(infos, parts.cluster);
  set_wait_policy(parts, infos);
  set_copy_policy(parts, infos);
  parts.config.message_piece_bytes = message_piece(parts, infos);
  EPCCL_TRY(open_node_memory(parts));
  EPCCL_TRY(agree_on_access(parts));
  parts.config.parameters.direct = parts.direct;
  if (parts.direct) parts.config.wait.neighbours = parts.cluster.members(parts.cluster.node_of(parts.rank));
  EPCCL_TRY(algorithms::check(parts.cluster, parts.config.parameters));
  uint32_t drivers = all_rdma_drivers;
  for (const RankInfo& info : infos) drivers &= static_cast<uint32_t>(info.rdma);
  EPCCL_ASSIGN(parts.network, open_network(*parts.bootstrap, parts.cluster, rank, parts.config, drivers));
  return find_gpus_apart(parts, infos);
}

// Only where ranks meet again is it needed; who cannot open one can still do everything else.
std::unique_ptr<MeetingPoint> open_meeting_point(int rank) {
  auto opened = MeetingPoint::open();
  if (opened.ok()) return std::move(opened).value();
  log::info(log::init, rank, "no split and no shrink can start at this rank: {}", opened.status().message());
  return nullptr;
}

// Up to where all have come together; what it returns they will want to know of this rank.
Result<RankInfo> come_together(CommParts& parts, const Gathering& gathering, const CommOptions& options) {
  EPCCL_ASSIGN(parts.config, read_comm_config(options));
  EPCCL_ASSIGN(RankInfo mine, describe_this_rank(parts.config));
  mine.ids = gathering.ids;
  parts.meeting_point = open_meeting_point(parts.rank);
  if (parts.meeting_point != nullptr) mine.meeting_point = parts.meeting_point->id();
  auto joined =
      Bootstrap::join(gathering.id, gathering.rank, gathering.ranks, parts.config.wait.timeout_seconds,
                      {gathering.session, parts.interrupt, gathering.check, gathering.ranks_of_parent,
                       gathering.nobody_there});
  if (!joined.ok())
    return gathering.where.empty() ? std::move(joined).take_status()
                                   : std::move(joined).take_status().with_context(gathering.where);
  parts.bootstrap = std::move(joined).value();
  return mine;
}

}  // namespace

Result<CommParts> set_up(const Gathering& gathering, const CommOptions& options,
                         std::shared_ptr<Interrupt> interrupt) {
  warn_of_unknown_settings(gathering.rank);
  CommParts parts;
  parts.began = now_seconds();
  parts.rank = gathering.rank;
  parts.key = {gathering.id.bytes, gathering.session};
  parts.origin = {parts.key, parts.rank};
  parts.interrupt = std::move(interrupt);
  const Result<RankInfo> mine = come_together(parts, gathering, options);
  if (!mine.ok()) {
    if (gathering.in_vain) gathering.in_vain();
    return mine.status();
  }
  Status status = set_up_joined(parts, *mine);
  if (status.ok()) return parts;
  // Giving up is told as such: a connection that just closes would count as a death.
  parts.bootstrap->report_failure(status);
  parts.bootstrap->leave(Bootstrap::any_call);
  return status;
}

}  // namespace epccl::runtime
