#include "topo/preflight_facts.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/control_groups.hpp"
#include "base/core_mask.hpp"
#include "base/namespaces.hpp"
#include "base/net.hpp"
#include "base/settings.hpp"
#include "device/gpus.hpp"
#include "device/host/host_memory.hpp"
#include "runtime/bootstrap/launch_env.hpp"
#include "runtime/comm/network.hpp"
#include "topology/host_id.hpp"
#include "transports/shm/hand_over.hpp"
#include "transports/shm/message_ring.hpp"
#include "transports/shm/node_segment.hpp"

namespace epccl::tools {
namespace {

/// What one rank tries to read of another.
volatile uint64_t probe = 0;
constexpr uint64_t probe_value = 0x657063636c;

Limit limit_of(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return {};
  const auto value = [](rlim_t it) {
    return it == RLIM_INFINITY ? Limit::unlimited : static_cast<uint64_t>(it);
  };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

/// The number after `key` in the first line of a file that starts with it; -1 where there is none.
int64_t number_in(const std::string& path, const std::string& key = "", int base = 10) {
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);) {
    if (text.rfind(key, 0) != 0) continue;
    const char* begin = text.c_str() + key.size();
    char* end = nullptr;
    const long long value = std::strtoll(begin, &end, base);
    return end == begin ? -1 : value;
  }
  return -1;
}

bool may_lock_all() {
  constexpr int cap_ipc_lock = 14;
  const int64_t capabilities = number_in("/proc/self/status", "CapEff:", 16);
  return capabilities >= 0 && (capabilities >> cap_ipc_lock & 1) != 0;
}

/// Maps it by way of a child that has it open, too: as a rank does that of another.
Status open_by_way_of_child(device::WindowRef memory) {
  const pid_t owner = fork();
  if (owner < 0) return system_error(errno, "fork");
  if (owner == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) pause();
  }
  memory.pid = owner;
  const auto mapped = device::map_window(memory, device::Pages::as_touched);
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  if (!mapped.ok()) return mapped.status();
  munmap(*mapped, memory.size);
  return {};
}

/// Asks for it in a child, whose exit status tells.
Status hand_over_to_child(const transports::NodeSegment& segment) {
  EPCCL_ASSIGN(const auto hands, transports::HandOver::start(segment, 0));
  const pid_t peer = fork();
  if (peer < 0) return system_error(errno, "fork");
  if (peer == 0) _exit(transports::ask_for_window(segment.handle(), 0, segment.handle().memory).ok() ? 0 : 1);
  int status = 0;
  if (waitpid(peer, &status, 0) != peer || status != 0)
    return error(Code::system_error, "a socket between two processes passes no descriptor");
  return {};
}

/// Makes what the ranks of a node would share: none of its memory is touched.
void try_shared_memory(PreflightFacts& facts) {
  transports::SegmentSpec spec;
  spec.local_size = std::clamp(facts.ranks_per_node, 1, transports::node_max_ranks);
  spec.scratch_bytes = facts.scratch_bytes;
  spec.ring_bytes = transports::message_rings_bytes(spec.local_size);
  const auto segment = transports::NodeSegment::create(spec);
  if (!segment.ok()) {
    facts.shared_memory = segment.status();
    return;
  }
  facts.peers_open_it = open_by_way_of_child(segment->handle().memory);
  if (!facts.peers_open_it.ok()) facts.peers_are_handed_it = hand_over_to_child(*segment);
}

/// Of a sibling's memory; the exit status is errno, 0 when it worked.
[[noreturn]] void use_sibling(pid_t sibling, bool writes) {
  uint64_t value = writes ? probe_value : 0;
  iovec mine{&value, sizeof value};
  iovec theirs{const_cast<uint64_t*>(&probe), sizeof value};
  const ssize_t count = writes ? process_vm_writev(sibling, &mine, 1, &theirs, 1, 0)
                               : process_vm_readv(sibling, &mine, 1, &theirs, 1, 0);
  _exit(count < 0 ? errno : count == sizeof value && value == probe_value ? 0 : EIO);
}

Status use_by_way_of_child(pid_t owner, bool writes) {
  const std::string call = writes ? "process_vm_writev" : "process_vm_readv";
  const pid_t user = fork();
  if (user == 0) use_sibling(owner, writes);
  int status = 0;
  if (user < 0 || waitpid(user, &status, 0) != user || !WIFEXITED(status))
    return error(Code::system_error, "{} could not be tried", call);
  if (WEXITSTATUS(status) != 0) return system_error(WEXITSTATUS(status), call + " between two processes");
  return {};
}

/// Forks twice, as a launcher does: the one child may not be an ancestor of the other, who would be allowed more.
Status peer_memory() {
  probe = probe_value;
  const pid_t owner = fork();
  if (owner < 0) return system_error(errno, "fork");
  if (owner == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) pause();
  }
  Status status = use_by_way_of_child(owner, false);
  if (status.ok()) status = use_by_way_of_child(owner, true);
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  return status;
}

void gather_launcher(PreflightFacts& facts) {
  const auto found = runtime::launch_environment();
  if (!found.ok()) facts.launcher = found.status();
  if (!found.ok() || !found->has_value()) return;
  const runtime::LaunchEnv& env = **found;
  facts.launcher = fmt::format("{}, as rank {} of {}", env.launcher, env.rank, env.ranks);
  facts.alone = env.ranks == 1;
  facts.contradiction = env.contradiction;
  const auto place = runtime::meeting_place(env);
  if (!place.ok()) {
    facts.meeting_place = place.status();
    return;
  }
  facts.meeting_place = place->where;
  facts.meeting_doubt = place->doubt;
}

void gather_network(PreflightFacts& facts) {
  const auto config = runtime::read_comm_config({});
  facts.settings = config.ok() ? Status() : config.status();
  facts.unknown_settings = settings::unknown_names();
  facts.rdma_devices = runtime::has_rdma_devices();
  facts.verbs = runtime::verbs_usable();
  if (config.ok()) {
    const auto choice = runtime::choose_network(config->network, runtime::rdma_drivers(*config));
    facts.network = to_string(choice.kind);
    facts.network_why = choice.why;
    facts.scratch_bytes = config->parameters.scratch_bytes;
    facts.peer_memory_wanted = config->allow_direct;
  }
  const auto here = net::local_address(net::selected_interfaces());
  if (!here.ok()) {
    facts.address = here.status();
    return;
  }
  std::string text = here->to_string();
  facts.loopback_only = text.rfind("127.", 0) == 0 || text.rfind("[::1]", 0) == 0;
  facts.address = text.substr(0, text.rfind(':'));
}

/// What a control group's memory is limited to, and counted in: the names are those of one version.
struct MemoryFiles {
  const char *limit, *used, *cached;
};

/// Bytes up to its limit; no limit is as much as there can be.
uint64_t memory_left_of(const std::string& group) {
  constexpr MemoryFiles versions[] = {
      {"/memory.max", "/memory.current", "inactive_file "},
      {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "}};
  for (const MemoryFiles& files : versions) {
    const int64_t limit = number_in(group + files.limit), used = number_in(group + files.used);
    if (limit < 0 || used < 0) continue;
    // Cached files count as used, but give way to whoever needs the memory.
    const int64_t cached = std::clamp<int64_t>(number_in(group + "/memory.stat", files.cached), 0, used);
    return static_cast<uint64_t>(limit - std::min(limit, used - cached));
  }
  return UINT64_MAX;
}

}  // namespace

uint64_t memory_left(const std::vector<std::string>& groups) {
  const int64_t available = number_in("/proc/meminfo", "MemAvailable:");
  uint64_t left = available > 0 ? static_cast<uint64_t>(available) * 1024 : 0;
  for (const std::string& group : groups) left = std::min(left, memory_left_of(group));
  return left;
}

PreflightFacts gather_facts(const topology::Machine& machine, int nodes, int ranks_per_node) {
  PreflightFacts facts;
  facts.nodes = nodes;
  facts.ranks_per_node = ranks_per_node;
  facts.peer_memory = peer_memory();  // first: the fewer threads, the better to fork
  gather_launcher(facts);
  gather_network(facts);
  try_shared_memory(facts);
  facts.later_user_namespace = in_later_user_namespace();
  facts.file_bytes = limit_of(RLIMIT_FSIZE);
  if (const auto host = topology::read_host_identity(); host.ok())
    facts.host = host->host;
  else
    facts.host = host.status();
  facts.ptrace_scope = static_cast<int>(number_in("/proc/sys/kernel/yama/ptrace_scope"));
  if (struct statvfs shm{}; statvfs("/dev/shm", &shm) == 0)
    facts.shm_directory = {static_cast<uint64_t>(shm.f_bavail) * shm.f_frsize,
                           static_cast<uint64_t>(shm.f_blocks) * shm.f_frsize};
  facts.memory_bytes = memory_left(control_groups("memory"));
  facts.gpus_seen = static_cast<int>(machine.gpus.size());
  facts.device_host = settings::get("EPCCL_DEVICE") == "host";
  facts.device_cuda = settings::get("EPCCL_DEVICE") == "cuda";
  facts.cuda_gpus = device::cuda_device_count();
  const bool has_gpu = !facts.device_host && facts.cuda_gpus.ok() && *facts.cuda_gpus > 0;
  if (has_gpu && facts.verbs.ok()) facts.gpu_direct = runtime::try_gpu_direct(0);
  if (has_gpu && !facts.verbs.ok()) facts.gpu_direct = Status(facts.verbs);
  facts.peer_memory_module = access("/sys/module/nvidia_peermem", F_OK) == 0;
  facts.cores = std::max(1, static_cast<int>(allowed_cores().size()));
  facts.cpu_quota = cpu_quota().cores;
  facts.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  facts.may_lock_all = may_lock_all();
  facts.open_files = limit_of(RLIMIT_NOFILE);
  return facts;
}

}  // namespace epccl::tools
