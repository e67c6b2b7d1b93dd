// --check: what is made of each fact, and the exit code. Facts are given; that they can be gathered is tested last.
#include "topo/preflight.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "run_tool.hpp"
#include "topo/preflight_facts.hpp"

namespace epccl::tools {
namespace {

constexpr uint64_t mib = 1 << 20, gib = 1 << 30;

/// A machine on which nothing is wrong: 4 nodes x 8 ranks over sockets.
PreflightFacts good() {
  PreflightFacts facts;
  facts.nodes = 4;
  facts.ranks_per_node = 8;
  facts.network = "tcp";
  facts.network_why = "as the test says";
  facts.verbs = error(Code::system_error, "no libibverbs");
  facts.address = std::string("10.0.0.1");
  facts.host = std::string("nid001");
  facts.shm_directory = {gib, 2 * gib};
  facts.scratch_bytes = 8 * mib;
  facts.memory_bytes = 64 * gib;
  facts.cuda_gpus = error(Code::device_error, "no CUDA driver");
  facts.cores = 16;
  facts.open_files = {1024, 4096};
  return facts;
}

PreflightFacts over_rdma() {
  PreflightFacts facts = good();
  facts.network = "verbs";
  facts.verbs = Status();
  facts.rdma_devices = true;
  return facts;
}

Finding about(const PreflightFacts& facts, const std::string& topic) {
  const auto findings = judge(facts);
  const auto found = std::ranges::find(findings, topic, &Finding::topic);
  EXPECT_NE(found, findings.end()) << topic;
  return found == findings.end() ? Finding{} : *found;
}

void expect_finding(const PreflightFacts& facts, const std::string& topic, Verdict verdict,
                    const std::string& found, const std::string& mend) {
  const Finding finding = about(facts, topic);
  EXPECT_STREQ(to_string(finding.verdict), to_string(verdict)) << topic << ": " << finding.found;
  expect_says(finding.found, found);
  expect_says(finding.mend, mend);
  EXPECT_EQ(exit_code(judge(facts)), static_cast<int>(verdict)) << "nothing else is wrong";
}

TEST(Preflight, AGoodMachineIsFineAndNothingIsToBeMended) {
  for (const PreflightFacts& facts : {good(), over_rdma()}) {
    for (const Finding& finding : judge(facts)) {
      EXPECT_EQ(finding.verdict, Verdict::fine) << finding.topic << ": " << finding.found;
      EXPECT_EQ(finding.mend, "") << finding.topic;
      EXPECT_NE(finding.found, "") << finding.topic;
    }
    EXPECT_EQ(exit_code(judge(facts)), 0);
  }
}

TEST(Preflight, LockedMemoryMattersToRdmaOnly) {
  PreflightFacts facts = good();
  facts.locked_bytes = {8 * mib, 8 * mib};
  EXPECT_EQ(about(facts, "locked memory").verdict, Verdict::fine);
  facts = over_rdma();
  facts.locked_bytes = {8 * mib, 8 * mib};
  expect_finding(facts, "locked memory", Verdict::stops, "(RLIMIT_MEMLOCK): 8 MiB", "ulimit -l unlimited");
  facts.locked_bytes = {512 * mib, 512 * mib};
  expect_finding(facts, "locked memory", Verdict::hurts, "512 MiB", "ulimit -l unlimited");
  facts.may_lock_all = true;
  EXPECT_EQ(about(facts, "locked memory").verdict, Verdict::fine);
}

TEST(Preflight, SocketsAndTheRendezvousMustFitTheDescriptorsThatCanBeHad) {
  PreflightFacts facts = good();
  facts.nodes = 200;
  facts.open_files = {1024, 4096};
  expect_finding(facts, "open files", Verdict::fine,
                 "1024, and the library raises it to 4096 at most; rank 0 needs about 3256: sockets to 1592 "
                 "ranks of other nodes "
                 "and a rendezvous of 1600",
                 "");
  facts.open_files = {1024, 2048};
  expect_finding(facts, "open files", Verdict::stops, "to 2048 at most",
                 "raise the hard limit of 2048: \"* - nofile 65536\"");
  facts.open_files = {4096, 4096};
  EXPECT_EQ(about(facts, "open files").verdict, Verdict::fine);
  facts.nodes = 1000;
  expect_finding(facts, "open files", Verdict::stops, "4096; rank 0 needs about 16056", "hard limit of 4096");
}

TEST(Preflight, OverRdmaTheRendezvousNeedsDescriptors) {
  PreflightFacts facts = over_rdma();
  facts.nodes = 200;
  facts.open_files = {1024, 2048};
  expect_finding(facts, "open files", Verdict::fine, "rank 0 needs about 1664: a rendezvous of 1600", "");
  facts.open_files = {1024, 1024};
  expect_finding(facts, "open files", Verdict::stops, "1024; rank 0 needs about 1664", "hard limit of 1024");
}

TEST(Preflight, PeersMemoryThatMayNotBeReadNamesTheSwitch) {
  PreflightFacts facts = good();
  facts.peer_memory =
      error(Code::system_error, "process_vm_readv between two processes: Operation not permitted");
  facts.ptrace_scope = 1;
  expect_finding(facts, "peers' memory", Verdict::hurts, "ptrace_scope is 1",
                 "sysctl -w kernel.yama.ptrace_scope=0");
  facts.ptrace_scope = 0;
  expect_finding(facts, "peers' memory", Verdict::hurts, "not permitted", "--cap-add=SYS_PTRACE");
  facts = good();
  facts.later_user_namespace = true;
  expect_finding(facts, "peers' memory", Verdict::fine, "this user namespace", "");
  facts = good();
  facts.peer_memory_wanted = false;
  expect_finding(facts, "peers' memory", Verdict::hurts, "EPCCL_CMA=0", "unset EPCCL_CMA");
}

TEST(Preflight, FewerCoresThanRanksHurtAlsoByQuota) {
  PreflightFacts facts = good();
  facts.cores = 4;
  expect_finding(facts, "cores", Verdict::hurts, "8 ranks on 4 cores", "run 4 ranks a node");
  facts.cores = 64;
  facts.cpu_quota = 2.5;
  expect_finding(facts, "cores", Verdict::hurts, "8 ranks on 64 cores, with a quota of 2.5 cores' time",
                 "run 2 ranks a node");
}

TEST(Preflight, MemoryForScratch) {
  PreflightFacts facts = good();
  facts.memory_bytes = 100 * mib;
  expect_finding(facts, "memory", Verdict::hurts, "64 MiB for the scratch of 8 ranks, 100 MiB left",
                 "EPCCL_SCRATCH_SIZE");
  facts.memory_bytes = 10 * mib;
  expect_finding(facts, "memory", Verdict::stops, "10 MiB left", "EPCCL_SCRATCH_SIZE");
}

TEST(Preflight, ASmallShmDirectoryHurtsOnlyWhereNcclIsUsed) {
  PreflightFacts facts = good();
  facts.shm_directory = {60 * mib, 64 * mib};
  EXPECT_EQ(about(facts, "/dev/shm").verdict, Verdict::fine);
  expect_says(about(facts, "/dev/shm").found, "60 MiB of 64 MiB free");
  facts.gpus_seen = 8;
  facts.cuda_gpus = 8;
  expect_finding(facts, "/dev/shm", Verdict::hurts, "60 MiB of 64 MiB free", "--shm-size=1g");
}

TEST(Preflight, GpusWithoutADriverAreNamed) {
  PreflightFacts facts = good();
  facts.gpus_seen = 8;
  expect_finding(facts, "device", Verdict::hurts, "8 GPUs are on the bus, but: no CUDA driver", "--gpus all");
  facts.device_host = true;
  EXPECT_EQ(about(facts, "device").verdict, Verdict::fine) << "as EPCCL_DEVICE=host wants it";
}

TEST(Preflight, MemoryOfAGpuThatIsAskedForAndNotThereStops) {
  PreflightFacts facts = good();
  facts.device_cuda = true;
  expect_finding(facts, "device", Verdict::stops, "EPCCL_DEVICE=cuda, but: no CUDA driver",
                 "unset EPCCL_DEVICE");
  facts.gpus_seen = 8;
  expect_finding(facts, "device", Verdict::stops, "EPCCL_DEVICE=cuda, but: no CUDA driver", "--gpus all");
  facts.cuda_gpus = 0;
  expect_finding(facts, "device", Verdict::stops, "but: the driver has no GPU", "--gpus all");
  facts.cuda_gpus = 8;
  EXPECT_EQ(about(facts, "device").verdict, Verdict::fine);
}

TEST(Preflight, MoreRanksThanANodeHoldsStop) {
  PreflightFacts facts = good();
  facts.ranks_per_node = facts.cores = 125;
  expect_finding(facts, "ranks", Verdict::fine, "125 ranks on a node; at most 125 are supported", "");
  facts.ranks_per_node = facts.cores = 126;
  expect_finding(facts, "ranks", Verdict::stops, "126 ranks on a node; at most 125 are supported",
                 "several nodes");
}

TEST(Preflight, GpuMemoryThatRdmaPortsCannotReachHurts) {
  PreflightFacts facts = over_rdma();
  facts.cuda_gpus = 8;
  facts.gpu_direct = std::string("dma-buf");
  expect_finding(facts, "GPU memory", Verdict::fine, "where it lies (by dma-buf)", "");
  facts.gpu_direct =
      error(Code::system_error, "by dma-buf: refused; by address (nvidia_peermem): refused too");
  expect_finding(facts, "GPU memory", Verdict::hurts, "through host memory: by dma-buf: refused; by address",
                 "modprobe nvidia_peermem");
  facts.peer_memory_module = true;
  EXPECT_EQ(about(facts, "GPU memory").mend.find("modprobe"), std::string::npos);
  facts.gpu_direct = error(Code::invalid_usage, "EPCCL_GPU_DIRECT=0");
  expect_finding(facts, "GPU memory", Verdict::hurts, "EPCCL_GPU_DIRECT=0", "unset EPCCL_GPU_DIRECT");
  const auto is_said = [](const PreflightFacts& of) {
    return std::ranges::count(judge(of), "GPU memory", &Finding::topic) > 0;
  };
  facts.nodes = 1;
  EXPECT_FALSE(is_said(facts)) << "one node has no network";
  facts.nodes = 2;
  facts.device_host = true;
  EXPECT_FALSE(is_said(facts));
  EXPECT_FALSE(is_said(over_rdma())) << "there is no GPU";
}

TEST(Preflight, RdmaDevicesThatAreNotUsedHurt) {
  PreflightFacts facts = good();
  facts.rdma_devices = true;
  facts.verbs = error(Code::system_error, "mlx5_0 port 1 is down");
  expect_finding(facts, "network", Verdict::hurts, "mlx5_0 port 1 is down", "epccl-topo --nics");
  facts.network = "verbs";
  facts.network_why = "as EPCCL_NET says";
  expect_finding(facts, "network", Verdict::stops, "as EPCCL_NET says; but: mlx5_0 port 1 is down",
                 "epccl-topo --nics");
}

TEST(Preflight, WhatMakesARunImpossible) {
  PreflightFacts facts = good();
  facts.network = "none";
  expect_finding(facts, "network", Verdict::stops, "none between nodes", "unset EPCCL_NET");
  facts = good();
  facts.settings = error(Code::invalid_argument, "EPCCL_CHUNK_SIZE=x is no size");
  expect_finding(facts, "settings", Verdict::stops, "EPCCL_CHUNK_SIZE=x", "unset that variable");
  facts = good();
  facts.address = error(Code::invalid_usage, "EPCCL_SOCKET_IFNAME=eth9 matches none of lo, eth0");
  expect_finding(facts, "address", Verdict::stops, "eth9 matches none", "EPCCL_SOCKET_IFNAME");
  facts = good();
  facts.address = std::string("127.0.0.1");
  facts.loopback_only = true;
  expect_finding(facts, "address", Verdict::stops, "127.0.0.1: nobody outside", "ip link set");
  facts.nodes = 1;
  EXPECT_EQ(about(facts, "address").verdict, Verdict::fine) << "one node needs no address";
  facts = good();
  facts.shared_memory = error(Code::system_error, "memfd_create: Operation not permitted");
  expect_finding(facts, "shared memory", Verdict::stops, "memfd_create", "seccomp");
  facts = good();
  facts.host = error(Code::system_error, "gethostname: Function not implemented");
  expect_finding(facts, "host name", Verdict::stops, "gethostname", "hostname NAME");
}

TEST(Preflight, RankThatIsDoubtedHurts) {
  PreflightFacts facts = good();
  facts.launcher = std::string("torchrun, as rank 0 of 4");
  facts.meeting_place = std::string("port 29501 of node1");
  facts.contradiction = "RANK=0 went before SLURM_PROCID=3";
  expect_finding(facts, "launcher", Verdict::hurts,
                 "port 29501 of node1; but RANK=0 went before SLURM_PROCID=3", "a torchrun in each task");
  facts.meeting_doubt = "node1 is elsewhere";
  expect_finding(facts, "launcher", Verdict::hurts, "SLURM_PROCID=3; but node1 is elsewhere", "translated");
  facts.meeting_place = error(Code::invalid_usage, "no place");
  expect_finding(facts, "launcher", Verdict::stops, "SLURM_PROCID=3; no place", "README.md");
  facts.alone = true;
  expect_finding(facts, "launcher", Verdict::hurts, "rank 0 of 4; but RANK=0 went",
                 "a torchrun in each task");
}

TEST(Preflight, LauncherIsJudgedAlsoWhereSettingsCannotBeRead) {
  PreflightFacts facts = good();
  facts.settings = error(Code::invalid_argument, "EPCCL_CHUNK_SIZE=x is no size");
  facts.launcher = error(Code::invalid_usage, "RANK is set but WORLD_SIZE is not");
  EXPECT_EQ(about(facts, "launcher").verdict, Verdict::stops);
}

TEST(Preflight, MemoryThatCannotBeSharedNamesWhatIsInTheWay) {
  PreflightFacts facts = good();
  facts.shared_memory = error(Code::system_error, "no file may have more than 1024 (ulimit -f)");
  facts.file_bytes = {1024, 1024};
  expect_finding(facts, "shared memory", Verdict::stops, "more than 1024", "ulimit -f unlimited");
  facts = good();
  facts.peers_open_it = error(Code::system_error, "open of /proc/7/fd/3: No such file or directory");
  expect_finding(facts, "shared memory", Verdict::fine,
                 "open of /proc/7/fd/3: No such file or directory), and is handed it by a socket", "");
  facts.peers_are_handed_it = error(Code::system_error, "no sockets here");
  expect_finding(facts, "shared memory", Verdict::stops, "; nor is it handed over: no sockets here",
                 "mount -t proc proc /proc");
  expect_finding(facts, "shared memory", Verdict::stops, "/proc/7/fd/3", "mount -t proc proc /proc");
  facts.ranks_per_node = 1;
  expect_finding(facts, "shared memory", Verdict::hurts, "several ranks could not run on one node",
                 "mount -t proc proc /proc");
}

TEST(Preflight, OfUnequalNodesItIsAboutTheFullest) {
  PreflightFacts facts = good();
  facts.nodes = 2;
  facts.ranks_per_node = 200;
  facts.ranks_of_nodes = {3, 200};
  expect_says(format_findings(facts, judge(facts)),
              "Preflight for node 1, the fullest of 2 nodes: 200 ranks of 203\n");
  expect_says(about(facts, "ranks").found, "200 ranks on node 1, the fullest; at most 125");
  expect_says(about(facts, "open files").found,
              "rank 0 needs about 467: sockets to 200 ranks of other nodes and a rendezvous of 203");
}

TEST(Preflight, TheTextSumsUp) {
  PreflightFacts facts = good();
  expect_says(format_findings(facts, judge(facts)), "Preflight for 4 nodes x 8 ranks\n");
  expect_says(format_findings(facts, judge(facts)), "\nFine\n");
  facts.cores = 4;
  expect_says(format_findings(facts, judge(facts)), "\nA run works; 1 will hurt\n");
  facts.network = "none";
  expect_says(format_findings(facts, judge(facts)), "\nA run cannot work: 1 to mend; 1 more will hurt\n");
  EXPECT_EQ(findings_json(judge(facts))[1]["verdict"], "stops");
}

TEST(PreflightFacts, CachedFilesAreMemoryThatIsLeft) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) / ("epccl-memory-" + std::to_string(getpid()));
  fs::create_directories(root / "inner");
  const std::vector<std::string> groups = {root / "inner", root};
  const uint64_t machine = memory_left(groups);  // no files: all that the machine has
  EXPECT_GT(machine, 8 * mib);
  std::ofstream(root / "memory.max") << "8388608\n";
  std::ofstream(root / "memory.current") << "8388608\n";
  EXPECT_EQ(memory_left(groups), 0u) << "also of the group above";
  std::ofstream(root / "memory.stat") << "anon 1048576\nfile 7340032\ninactive_file 6291456\n";
  EXPECT_EQ(memory_left(groups), 6 * mib);
  std::ofstream(root / "memory.max") << "max\n";
  EXPECT_GT(memory_left(groups), 8 * mib) << "no limit";
  std::ofstream(root / "inner/memory.limit_in_bytes") << "9223372036854771712\n";
  std::ofstream(root / "inner/memory.usage_in_bytes") << "4194304\n";
  EXPECT_GT(memory_left(groups), 8 * mib) << "version 1's way to say so";
  std::ofstream(root / "inner/memory.limit_in_bytes") << "8388608\n";
  std::ofstream(root / "inner/memory.stat") << "inactive_file 1\ntotal_inactive_file 1048576\n";
  EXPECT_EQ(memory_left(groups), 5 * mib);
  fs::remove_all(root);
}

TEST(PreflightFacts, AreGatheredFromThisMachine) {
  const PreflightFacts facts = gather_facts({}, 2, 1);
  EXPECT_GE(facts.cores, 1);
  EXPECT_GT(facts.open_files.soft, 0u);
  EXPECT_GT(facts.memory_bytes, 0u);
  EXPECT_GT(facts.scratch_bytes, 0u);
  EXPECT_TRUE(facts.shared_memory.ok())
      << facts.shared_memory.message() << ": no test of this suite could run";
  EXPECT_TRUE(facts.peers_open_it.ok()) << facts.peers_open_it.message() << ": nor could any";
  EXPECT_TRUE(facts.host.ok());
  EXPECT_NE(facts.network, "");
  EXPECT_EQ(facts.nodes, 2);
}

TEST(CheckOption, ExitCodeIsTheVerdict) {
  const Outcome outcome = run_tool("--check --cluster 2 --ranks-per-node 1");
  expect_says(outcome.output, "Preflight for 2 nodes x 1 rank\n");
  expect_says(outcome.output, outcome.exit_code == 0   ? "\nFine\n"
                              : outcome.exit_code == 1 ? "A run works; "
                                                       : "A run cannot work: ");
}

// What srun -N2 -n 8 sets.
constexpr const char* by_srun =
    "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0 ";

TEST(CheckOption, RanksOfSeveralNodesThatAreToldNoPlaceToMeetEndWith2) {
  const Outcome nowhere = run_program(by_srun, "--check --cluster 2 --ranks-per-node 1");
  EXPECT_EQ(nowhere.exit_code, 2) << nowhere.output;
  expect_says(nowhere.output,
              "stops  launcher       started by slurm, as rank 0 of 8; rank 0: slurm started "
              "8 ranks on several nodes and names no place to meet: set MASTER_ADDR");
  const Outcome there = run_program(std::string(by_srun) + "MASTER_ADDR=localhost MASTER_PORT=29500 ",
                                    "--check --cluster 2 --ranks-per-node 1");
  expect_says(there.output,
              "fine   launcher       started by slurm, as rank 0 of 8; ranks meet at port 29501");
  const Outcome elsewhere = run_program(std::string(by_srun) + "MASTER_ADDR=203.0.113.9 MASTER_PORT=29500 ",
                                        "--check --cluster 2 --ranks-per-node 1");
  expect_says(elsewhere.output, "hurts  launcher ");
  expect_says(elsewhere.output, "but 203.0.113.9 is no address of this machine, where rank 0 is");
}

// Each task runs alone, or as rank 0 of a job of its own.
TEST(CheckOption, RankThatSlurmSpeaksAgainstHurts) {
  const Outcome alone =
      run_program(std::string(by_srun) + "RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 ",
                  "--check --cluster 1 --ranks-per-node 1");
  EXPECT_NE(alone.exit_code, 0) << alone.output;
  expect_says(alone.output,
              "hurts  launcher       started by torchrun, as rank 0 of 1; but RANK=0 and "
              "WORLD_SIZE=1 went before SLURM_PROCID=0");
}

TEST(CheckOption, EnvironmentOfALauncherThatContradictsItselfEndsWith2) {
  const Outcome half = run_program("OMPI_COMM_WORLD_SIZE=4 ", "--check");
  EXPECT_EQ(half.exit_code, 2) << half.output;
  expect_says(half.output, "OMPI_COMM_WORLD_SIZE is set but OMPI_COMM_WORLD_RANK is not");
}

TEST(CheckOption, MemoryThatCannotBeMadeEndsWith2) {
  const Outcome small = run_program("ulimit -f 2048; ", "--check --cluster 1 --ranks-per-node 2");
  EXPECT_EQ(small.exit_code, 2) << small.output;
  expect_says(small.output, "no file of this process may have more than");
  expect_says(small.output, "-> ulimit -f unlimited\n");
}

TEST(CheckOption, MemoryIsHandedOverWhereThereIsNoProc) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer has its options, and the leaks, from /proc";
#endif
  const std::string without_proc =
      "unshare -m sh -c 'umount -l /proc && test ! -e /proc/1 && exec \"$@\"' - ";
  if (std::system((without_proc + "true 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "/proc cannot be taken away here";
  const Outcome none = run_program(without_proc, "--check --cluster 1 --ranks-per-node 2");
  expect_says(none.output, "and is handed it by a socket");
}

TEST(CheckOption, TellsOfAUserNamespaceThatIsNotTheFirst) {
  const std::string in_another = "unshare --user --map-current-user ";
  if (std::system((in_another + "true 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "no user namespace of one's own can be had here";
  const Outcome outcome = run_program(in_another, "--check --cluster 1 --ranks-per-node 2");
  expect_says(outcome.output,
              "between ranks of this user namespace, which is not the machine's first; where each rank has "
              "one of its "
              "own");
}

TEST(CheckOption, TellsUnequalNodesApart) {
  const std::string text = run_tool("--check --ranks 3,200").output;
  expect_says(text, "Preflight for node 1, the fullest of 2 nodes: 200 ranks of 203\n");
  expect_says(text, "a rendezvous of 203");
  expect_says(run_tool("--check --ranks 2,2").output, "Preflight for 2 nodes x 2 ranks\n");
}

TEST(CheckOption, ASettingThatCannotWorkEndsWith2AndIsNamed) {
  setenv("EPCCL_NET", "none", 1);
  const Outcome none = run_tool("--check --cluster 2 --ranks-per-node 1");
  setenv("EPCCL_NET", "carrier-pigeon", 1);
  const Outcome wrong = run_tool("--check");
  unsetenv("EPCCL_NET");
  EXPECT_EQ(none.exit_code, 2) << none.output;
  expect_says(none.output, "-> unset EPCCL_NET\n");
  EXPECT_EQ(wrong.exit_code, 2) << wrong.output;
  expect_says(wrong.output, "carrier-pigeon");
}

TEST(CheckOption, AGpuThatIsAskedForAndNotThereEndsWith2) {
  setenv("EPCCL_DEVICE", "cuda", 1);
  setenv("EPCCL_CUDA_LIB", "/nonexistent/libcuda.so", 1);
  const Outcome outcome = run_tool("--check");
  unsetenv("EPCCL_DEVICE");
  unsetenv("EPCCL_CUDA_LIB");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  expect_says(outcome.output, "EPCCL_DEVICE=cuda, but: ");
}

TEST(CheckOption, ASettingThatIsNotEvenTextIsNamedInJsonToo) {
  setenv("EPCCL_NET", "\xff", 1);
  const Outcome outcome = run_tool("--check --json");
  unsetenv("EPCCL_NET");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  expect_says(outcome.output, "EPCCL_NET");
}

}  // namespace
}  // namespace epccl::tools
