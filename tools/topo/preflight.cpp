#include "topo/preflight.hpp"

#include <algorithm>

#include "topology/counted.hpp"
#include "transports/shm/node_segment.hpp"

namespace epccl::tools {
namespace {

constexpr uint64_t mib = 1 << 20, gib = 1 << 30;
/// Less than this cannot even hold a transport's own buffers.
constexpr uint64_t least_locked = 16 * mib;
/// Buffers of user programs are registered, too.
constexpr uint64_t enough_locked = 4 * gib;
/// Descriptors of a rank besides its connections.
constexpr uint64_t own_descriptors = 64;

std::string bytes_text(uint64_t bytes) {
  if (bytes == Limit::unlimited) return "unlimited";
  if (bytes >= gib) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / gib);
  if (bytes >= mib) return fmt::format("{} MiB", bytes / mib);
  return fmt::format("{} KiB", bytes / 1024);
}

/// "a node", or which one it is about.
std::string node_text(const PreflightFacts& facts) {
  if (facts.ranks_of_nodes.empty()) return "a node";
  const auto fullest = std::ranges::max_element(facts.ranks_of_nodes) - facts.ranks_of_nodes.begin();
  return fmt::format("node {}, the fullest", fullest);
}

std::string ranks_text(int ranks) {
  return topology::counted(ranks, "rank");
}

Finding fine(std::string topic, std::string found) {
  return {Verdict::fine, std::move(topic), std::move(found), ""};
}

Finding settings(const PreflightFacts& facts) {
  if (facts.settings.ok() && !facts.unknown_settings.empty())
    return {Verdict::hurts, "settings",
            fmt::format("{} is set, which is no setting: misspelt?", fmt::join(facts.unknown_settings, ", ")),
            "docs/configuration.md has their names"};
  if (facts.settings.ok()) return fine("settings", "EPCCL_* settings can be read");
  return {Verdict::stops, "settings", facts.settings.message(),
          "mend or unset that variable (docs/configuration.md)"};
}

Finding launcher(const PreflightFacts& facts) {
  constexpr const char* topic = "launcher";
  if (!facts.launcher.ok())
    return {Verdict::stops, topic, facts.launcher.status().message(), "mend or unset these variables"};
  if (facts.launcher->empty())
    return fine(topic, facts.nodes == 1
                           ? "none started this process"
                           : "none started this process: how ranks of several nodes would meet is "
                             "seen where it starts this, too (srun epccl-topo --check ...)");
  const std::string by = fmt::format("started by {}", *facts.launcher);
  const std::string doubt = facts.contradiction.empty() ? "" : "; but " + facts.contradiction;
  if (!facts.alone && !facts.meeting_place.ok())
    return {Verdict::stops, topic, fmt::format("{}{}; {}", by, doubt, facts.meeting_place.status().message()),
            "README.md, Several nodes"};
  const std::string found =
      (facts.alone ? by : fmt::format("{}; ranks meet at {}", by, *facts.meeting_place)) + doubt;
  if (!facts.alone && !facts.meeting_doubt.empty())
    return {Verdict::hurts, topic, fmt::format("{}; but {}", found, facts.meeting_doubt),
            "only where addresses are translated between nodes may it stay so"};
  if (doubt.empty()) return fine(topic, found);
  return {Verdict::hurts, topic, found, "only where a torchrun in each task has set them may it stay so"};
}

Finding network(const PreflightFacts& facts) {
  const std::string found = fmt::format("{} between nodes: {}", facts.network, facts.network_why);
  if (facts.network == "none" && facts.nodes > 1)
    return {Verdict::stops, "network", found, "unset EPCCL_NET"};
  if (facts.network == "verbs" && !facts.verbs.ok())
    return {Verdict::stops, "network", found + "; but: " + facts.verbs.message(),
            "epccl-topo --nics shows each port"};
  if (facts.network != "verbs" && facts.rdma_devices && !facts.verbs.ok())
    return {Verdict::hurts, "network",
            fmt::format("{}; there are RDMA devices, but: {}", found, facts.verbs.message()),
            "epccl-topo --nics shows each port; EPCCL_NET=verbs makes the library insist"};
  return fine("network", found);
}

Finding address(const PreflightFacts& facts) {
  if (!facts.address.ok())
    return {Verdict::stops, "address", facts.address.status().message(),
            "set EPCCL_SOCKET_IFNAME to an interface that is up"};
  const std::string found = fmt::format("this machine is reached at {}", *facts.address);
  if (!facts.loopback_only) return fine("address", found);
  return {facts.nodes > 1 ? Verdict::stops : Verdict::fine, "address",
          found + ": nobody outside can reach that",
          facts.nodes > 1 ? "ip link set IFACE up, give it an address, or set EPCCL_SOCKET_IFNAME" : ""};
}

Finding host_name(const PreflightFacts& facts) {
  if (facts.host.ok()) return fine("host name", fmt::format("this machine is {}", *facts.host));
  return {Verdict::stops, "host name", facts.host.status().message(),
          "hostname NAME (docker run --hostname NAME)"};
}

Finding shared_memory(const PreflightFacts& facts) {
  constexpr const char* topic = "shared memory";
  if (!facts.shared_memory.ok())
    return {Verdict::stops, topic, facts.shared_memory.message(),
            facts.file_bytes.soft == Limit::unlimited
                ? "allow memfd_create in the container's seccomp profile"
                : "ulimit -f unlimited"};
  if (facts.peers_open_it.ok())
    return fine(topic, "memory to share can be made (memfd), and another process can open it");
  if (facts.peers_are_handed_it.ok())
    return fine(topic, fmt::format("another process cannot open it ({}), and is handed it by a socket",
                                   facts.peers_open_it.message()));
  const bool stops = facts.ranks_per_node > 1;
  return {stops ? Verdict::stops : Verdict::hurts, topic,
          fmt::format("{}; nor is it handed over: {}", facts.peers_open_it.message(),
                      facts.peers_are_handed_it.message()) +
              (stops ? "" : ": several ranks could not run on one node"),
          "mount -t proc proc /proc; ranks of a node must see each other there: one user, one PID namespace"};
}

Finding peer_memory(const PreflightFacts& facts) {
  constexpr const char* topic = "peers' memory";
  if (!facts.peer_memory_wanted)
    return {Verdict::hurts, topic, "EPCCL_CMA=0: large blocks inside the node are copied twice",
            "unset EPCCL_CMA"};
  const std::string once =
      "a rank can read and write another's memory (process_vm_readv, process_vm_writev): large blocks are "
      "copied "
      "once";
  if (facts.peer_memory.ok() && facts.later_user_namespace)
    return fine(topic, once +
                           ", between ranks of this user namespace, which is not the machine's first; where "
                           "each rank has one of its own (mpirun outside of unprivileged containers), twice");
  if (facts.peer_memory.ok()) return fine(topic, once);
  std::string found =
      fmt::format("{}: large blocks inside the node are copied twice, unless they are of epcclMemAlloc",
                  facts.peer_memory.message());
  if (facts.ptrace_scope > 0)
    return {Verdict::hurts, topic,
            found + fmt::format(" (kernel.yama.ptrace_scope is {})", facts.ptrace_scope),
            "sysctl -w kernel.yama.ptrace_scope=0"};
  return {Verdict::hurts, topic, found,
          "in a container: docker run --cap-add=SYS_PTRACE, or a seccomp profile that allows it"};
}

Finding shm_directory(const PreflightFacts& facts) {
  constexpr uint64_t wanted = 512 * mib;
  const Limit& shm = facts.shm_directory;
  const std::string size =
      shm.hard == 0 ? std::string("/dev/shm: there is none")
                    : fmt::format("/dev/shm: {} of {} free", bytes_text(shm.soft), bytes_text(shm.hard));
  // The library shares memory without it; NVIDIA's, to which libepccl-nccl passes CUDA memory on, does not.
  if (facts.gpus_seen > 0 && shm.soft < wanted)
    return {Verdict::hurts, "/dev/shm",
            size + ": EPCCL does without, but not the NCCL that libepccl-nccl passes CUDA memory to",
            "mount -o remount,size=1G /dev/shm; in a container: docker run --shm-size=1g"};
  return fine("/dev/shm", size + " (EPCCL does without it)");
}

Finding memory(const PreflightFacts& facts) {
  const uint64_t wanted = static_cast<uint64_t>(facts.ranks_per_node) * facts.scratch_bytes;
  const std::string found =
      fmt::format("{} for the scratch of {}", bytes_text(wanted), ranks_text(facts.ranks_per_node));
  if (facts.memory_bytes == 0) return fine("memory", found + "; how much is left is not known");
  const std::string left = fmt::format("{}, {} left", found, bytes_text(facts.memory_bytes));
  if (facts.memory_bytes >= 2 * wanted) return fine("memory", left);
  return {facts.memory_bytes < wanted ? Verdict::stops : Verdict::hurts, "memory", left,
          "EPCCL_SCRATCH_SIZE=4M, fewer ranks, or a larger memory limit (docker run --memory, Slurm --mem)"};
}

Finding device(const PreflightFacts& facts) {
  constexpr const char* give_gpus =
      "install NVIDIA's driver, give the container its GPUs (--gpus all), or set EPCCL_CUDA_LIB";
  if (facts.cuda_gpus.ok() && *facts.cuda_gpus > 0 && !facts.device_host)
    return fine("device", fmt::format("CUDA: {} GPUs; copies by their copy engines", *facts.cuda_gpus));
  std::string found = "host memory; copies by cores, copy engines are threads";
  if (facts.device_host) return fine("device", found + " (EPCCL_DEVICE=host)");
  const std::string why = facts.cuda_gpus.ok() ? "the driver has no GPU" : facts.cuda_gpus.status().message();
  if (facts.device_cuda)
    return {Verdict::stops, "device",
            fmt::format("EPCCL_DEVICE=cuda, but: {}; epcclMemAlloc would give no memory", why),
            fmt::format("unset EPCCL_DEVICE; for GPUs: {}", give_gpus)};
  if (facts.gpus_seen == 0) return fine("device", fmt::format("{} ({})", found, why));
  return {Verdict::hurts, "device",
          fmt::format("{}; {} GPUs are on the bus, but: {}", found, facts.gpus_seen, why),
          fmt::format("{}; AMD's and Intel's GPUs are not used", give_gpus)};
}

bool uses_rdma(const PreflightFacts& facts) {
  return facts.network == "verbs" || facts.network == "ucx";
}

bool sends_gpu_memory(const PreflightFacts& facts) {
  return facts.nodes > 1 && uses_rdma(facts) && !facts.device_host && facts.cuda_gpus.ok() &&
         *facts.cuda_gpus > 0;
}

Finding gpu_memory(const PreflightFacts& facts) {
  constexpr const char* topic = "GPU memory";
  if (facts.gpu_direct.ok())
    return fine(topic, fmt::format("RDMA ports reach it where it lies (by {})", *facts.gpu_direct));
  const std::string& why = facts.gpu_direct.status().message();
  const std::string found = "between nodes it goes through host memory: " + why;
  if (why == "EPCCL_GPU_DIRECT=0") return {Verdict::hurts, topic, found, "unset EPCCL_GPU_DIRECT"};
  return {Verdict::hurts, topic, found,
          std::string("for dma-buf: NVIDIA's open kernel modules, Linux 5.12 and rdma-core 34 or newer") +
              (facts.peer_memory_module ? "" : "; without it: modprobe nvidia_peermem")};
}

Finding ranks(const PreflightFacts& facts) {
  const std::string found =
      fmt::format("{} on {}; at most {} are supported", ranks_text(facts.ranks_per_node), node_text(facts),
                  transports::node_max_ranks);
  if (facts.ranks_per_node <= transports::node_max_ranks) return fine("ranks", found);
  return {Verdict::stops, "ranks", found, "spread them over several nodes, or start fewer"};
}

Finding cores(const PreflightFacts& facts) {
  double cores = facts.cores;
  std::string found = fmt::format("{} on {} core{}", ranks_text(facts.ranks_per_node), facts.cores,
                                  facts.cores == 1 ? "" : "s");
  if (facts.cpu_quota > 0 && facts.cpu_quota < cores) {
    cores = facts.cpu_quota;
    found += fmt::format(", with a quota of {:.1f} cores' time", facts.cpu_quota);
  }
  if (facts.ranks_per_node <= cores) return fine("cores", found);
  return {Verdict::hurts, "cores", found + ": ranks take turns, and a wait costs a context switch",
          fmt::format(
              "run {} ranks a node, or give more cores (taskset, Slurm --cpus-per-task, docker run --cpus)",
              std::max(1, static_cast<int>(cores)))};
}

Finding locked_memory(const PreflightFacts& facts) {
  constexpr const char* topic = "locked memory";
  const std::string found =
      fmt::format("locked memory (RLIMIT_MEMLOCK): {}", bytes_text(facts.locked_bytes.soft));
  if (facts.may_lock_all) return fine(topic, found + ", and this process may pass it (CAP_IPC_LOCK)");
  const bool rdma = uses_rdma(facts);
  if (facts.locked_bytes.soft >= enough_locked) return fine(topic, found);
  if (!rdma) return fine(topic, found + " (only RDMA needs it)");
  return {facts.locked_bytes.soft < least_locked ? Verdict::stops : Verdict::hurts, topic,
          found + ": RDMA registers every buffer that it sends from or receives into",
          "ulimit -l unlimited; for good: \"* - memlock unlimited\" in /etc/security/limits.conf, "
          "LimitMEMLOCK=infinity for a "
          "service, docker run --ulimit memlock=-1"};
}

Finding open_files(const PreflightFacts& facts) {
  const uint64_t ranks = facts.all_ranks();
  const bool over_sockets = facts.network == "tcp" && facts.nodes > 1;
  const uint64_t peers = over_sockets ? ranks - facts.ranks_with_rank_0() : 0;
  const uint64_t wanted = own_descriptors + peers + ranks;
  const Limit& limit = facts.open_files;
  const auto text = [](uint64_t of) { return of == Limit::unlimited ? "unlimited" : fmt::format("{}", of); };
  std::string found = "open files (RLIMIT_NOFILE): " + text(limit.soft);
  if (limit.hard > limit.soft)
    found += fmt::format(", and the library raises it to {} at most", text(limit.hard));
  found += fmt::format("; rank 0 needs about {}: ", wanted);
  if (over_sockets) found += fmt::format("sockets to {} ranks of other nodes and ", peers);
  found += fmt::format("a rendezvous of {}", ranks);
  if (limit.hard >= wanted) return fine("open files", found);
  const uint64_t enough = std::max<uint64_t>(wanted, 65536);
  return {Verdict::stops, "open files", found,
          fmt::format("raise the hard limit of {}: \"* - nofile {}\" in /etc/security/limits.conf, "
                      "LimitNOFILE={} for a service, docker run --ulimit nofile={}",
                      limit.hard, enough, enough, enough)};
}

}  // namespace

uint64_t PreflightFacts::all_ranks() const {
  uint64_t sum = 0;
  for (const int ranks : ranks_of_nodes) sum += static_cast<uint64_t>(ranks);
  return ranks_of_nodes.empty() ? static_cast<uint64_t>(nodes) * static_cast<uint64_t>(ranks_per_node) : sum;
}

uint64_t PreflightFacts::ranks_with_rank_0() const {
  return static_cast<uint64_t>(ranks_of_nodes.empty() ? ranks_per_node : ranks_of_nodes.front());
}

const char* to_string(Verdict verdict) {
  constexpr const char* names[] = {"fine", "hurts", "stops"};
  return names[static_cast<size_t>(verdict)];
}

std::vector<Finding> judge(const PreflightFacts& facts) {
  // What the library would take depends on them.
  if (!facts.settings.ok())
    return {settings(facts),      address(facts), host_name(facts), launcher(facts), shared_memory(facts),
            shm_directory(facts), device(facts),  ranks(facts),     cores(facts)};
  std::vector<Finding> findings{
      settings(facts),      network(facts),     address(facts),       host_name(facts), launcher(facts),
      shared_memory(facts), peer_memory(facts), shm_directory(facts), memory(facts),    device(facts)};
  if (sends_gpu_memory(facts)) findings.push_back(gpu_memory(facts));
  for (const Finding& finding : {ranks(facts), cores(facts), locked_memory(facts), open_files(facts)})
    findings.push_back(finding);
  return findings;
}

int exit_code(const std::vector<Finding>& findings) {
  Verdict worst = Verdict::fine;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return static_cast<int>(worst);
}

std::string format_findings(const PreflightFacts& facts, const std::vector<Finding>& findings) {
  std::string text = facts.ranks_of_nodes.empty()
                         ? fmt::format("Preflight for {} x {}\n", topology::counted(facts.nodes, "node"),
                                       ranks_text(facts.ranks_per_node))
                         : fmt::format("Preflight for {} of {} nodes: {} of {}\n", node_text(facts),
                                       facts.nodes, ranks_text(facts.ranks_per_node), facts.all_ranks());
  int hurts = 0, stops = 0;
  for (const Finding& finding : findings) {
    text += fmt::format("  {:<5}  {:<13}  {}\n", to_string(finding.verdict), finding.topic, finding.found);
    if (!finding.mend.empty()) text += fmt::format("         {:<13}  -> {}\n", "", finding.mend);
    hurts += finding.verdict == Verdict::hurts ? 1 : 0;
    stops += finding.verdict == Verdict::stops ? 1 : 0;
  }
  if (stops > 0)
    return text + fmt::format("A run cannot work: {} to mend; {} more will hurt\n", stops, hurts);
  return text + (hurts > 0 ? fmt::format("A run works; {} will hurt\n", hurts) : std::string("Fine\n"));
}

nlohmann::ordered_json findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Finding& it : findings)
    json.push_back(
        {{"verdict", to_string(it.verdict)}, {"topic", it.topic}, {"found", it.found}, {"mend", it.mend}});
  return json;
}

}  // namespace epccl::tools
