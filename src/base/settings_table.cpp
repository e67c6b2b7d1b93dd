// The one table of settings. A new setting is a row here; docs/configuration.md and the warning about unknown
// names follow from it.
#include "base/settings.hpp"

namespace epccl::settings {

const std::vector<Entry>& table() {
  using enum Scope;
  static const std::vector<Entry> rows = {
      {"EPCCL_ALGO", "auto", "flat|two_stage|auto", all_ranks,
       "Algorithm of alltoall and alltoallv, and form of the other collectives (`two_stage`: the two-level "
       "one). `auto` chooses by cost model, the same on every rank."},
      {"EPCCL_TIMEOUT", "30", "seconds above 0", local,
       "How long a rank waits for a peer that shows no sign of life, in joining and in collectives, before "
       "it gives up with an error that names the peer. A machine that answers nothing at all is given up "
       "after about three quarters of it. Within a call time does not count in which the process itself did "
       "not run, as that of a suspended job."},
      {"EPCCL_WAIT_WARNING", "60", "seconds", local,
       "A rank that has waited so long for others, in joining or in a collective, says at WARN for whom, and "
       "what is known of them; again whenever it has been twice as long. 0: it says nothing before it gives "
       "up. It takes EPCCL_DEBUG=WARN, and a timeout that is longer."},
      {"EPCCL_STRAGGLERS", "0", "integer 0..1000000000", all_ranks,
       "After so many calls that all ranks wait for, a communicator's ranks compare how long each has waited "
       "in them (in the last 1024, if there are more), and rank 0 says at WARN who keeps the others waiting, "
       "by how much, and whether it computes longer or has more to do in the calls (docs/stragglers.md). It "
       "takes EPCCL_DEBUG=WARN. Calls are measured then, so that EPCCL_CUDA_AHEAD does nothing. 0: never."},

      {"EPCCL_DEBUG", "NONE", "NONE|VERSION|WARN|INFO|TRACE", local,
       "What is logged. Nothing is printed unless this asks for it, or, where it is not set, NCCL_DEBUG "
       "(with NCCL_DEBUG_SUBSYS). INFO has what a call says of itself (its algorithm, who moves its data) "
       "once for each rank of a process, and not again for an equal call, on another communicator neither; "
       "TRACE has it for every call."},
      {"EPCCL_DEBUG_SUBSYS", "ALL", "list of INIT,TOPO,COLL,NET,SHM,PLAN,ENV,P2P,ALL", local,
       "Which parts log at INFO and TRACE. A leading `^` means all but these. Warnings always show."},
      {"EPCCL_DEBUG_FILE", "", "path", local,
       "Where log lines go; `%h` is replaced by the host name, `%p` by the process id, `%%` by a percent "
       "sign. Unset: standard error, for which a descriptor 2 that closes on exec is not taken (what "
       "Python's `os.open` returns after `os.close(2)`, say), unless it did when the program was started."},
      {"EPCCL_CONF_FILE", "", "path", local,
       "File of `KEY=VALUE` lines to read instead of `~/.epccl.conf`. `/etc/epccl.conf` is read after it. "
       "Only from the environment."},

      {"EPCCL_HOSTID", "", "text up to 255 bytes", local,
       "Name of the node this process counts itself to, instead of host name and boot id: one machine can "
       "stand for several nodes. Processes that it makes one must be in one PID namespace."},
      {"EPCCL_COMM_ID", "", "host:port", local,
       "Address that the rendezvous binds and advertises; `[address]:port` for IPv6. A name that this "
       "machine's own hosts file gives a loopback address (not `localhost`) means the address of "
       "EPCCL_SOCKET_IFNAME. Without a port the system chooses one; a fixed port serves one communicator at "
       "a time, and what the process makes meanwhile gets one from the system. It is rank 0's, so all ranks "
       "may have it: an id that another rank makes (as its launcher tells, or where that address is not of "
       "its machine) is at the address of EPCCL_SOCKET_IFNAME. Ranks of several nodes that share no other "
       "means of meeting also use it to find rank 0, at one of the eight ports after it. Jobs at one time "
       "need a port each; MASTER_ADDR and MASTER_PORT (README.md, Several nodes) serve several."},
      {"EPCCL_SOCKET_IFNAME", "", "list of interface name prefixes", local,
       "Network interfaces for the rendezvous and the tcp transport, first match wins: `eth,ib` by prefix, "
       "`=eth0` exactly, `^docker,lo` all but these. Unset: NCCL_SOCKET_IFNAME, which is written alike; and "
       "without that the first interface that is up, while there are others not a bridge (`br0`), one with "
       "an address of 169.254.0.0/16, one whose link is not running, those of containers (`docker0`, "
       "`flannel.1`) or, last, loopback. Of those that are named, too, one that is not running is the last."},

      {"EPCCL_DEVICE", "auto", "auto|host|cuda", local,
       "`cuda`: epcclMemAlloc gives memory of the current GPU. To libepccl-nccl, `auto`: it makes "
       "communicators of the real NCCL where every rank has a GPU, and passes CUDA memory on to them; `host` "
       "and `cuda`, also of one rank alone: it makes none, and takes host memory only."},
      {"EPCCL_STAGE_SIZE", "8M", "bytes above 0", all_ranks,
       "Pinned host memory through which a call on GPU memory goes where nothing moves that directly: a "
       "slice of one buffer, two of which are under way. (Messages inside a node, and alltoallv, take as "
       "much as they are long.)"},
      {"EPCCL_CUDA_LIB", "", "path", local, "The CUDA driver. Unset: the dynamic linker's `libcuda.so.1`."},
      {"EPCCL_CUDA_STUCK", "20", "seconds", local,
       "Longest time a library thread may block inside one driver call while a GPU stream waits for it. Then "
       "the stream is released and the communicator fails. Also how long, at most, a call that fails waits "
       "for queues of the node's other ranks that use its buffers. Less where the communicator's timeout is "
       "less."},
      {"EPCCL_CUDA_FIRST_CALLS", "1000", "integer 0..1000000000", local,
       "So many calls of each communicator on GPU memory, and all on the NULL stream, have no stream wait "
       "for a thread: a program loads its kernels in that time, and a driver that loads some waits for all "
       "streams, and lets nobody in. They return when all ranks have called and queues of the GPU have all "
       "of the call (one node, outside of groups), or when they are over. A call whose ranks come later than "
       "10 s after it (or a quarter of the timeout) returns all the same, and its stream waits. 0: none. Nor "
       "do calls of communicators that are not blocking wait, if epcclConfig_t.firstCalls is not 1."},
      {"EPCCL_CUDA_AHEAD", "0", "0|1", local,
       "When queues of a GPU are given calls for which streams wait, on one node: `0`: when the stream has "
       "come; `1`: once all ranks have called and the communicator's call before is over. Ranks may differ."},
      {"EPCCL_CUDA_SIGNALS", "auto", "auto|driver", local,
       "How queues of a GPU wait for each other at the end of a call whose stream waits. `auto`: where the "
       "ranks of one node share a GPU that runs their work at once, by kernels of one warp, which look into "
       "its memory; else, and with `driver`, by the driver's waits for words of the host's memory. Ranks may "
       "differ."},
      {"EPCCL_CUDA_SHARE", "auto", "auto|descriptor|ipc", local,
       "How GPU memory of epcclMemAlloc is shared with other processes: as virtual memory whose descriptor "
       "is handed over, or by CUDA IPC. `auto`: by descriptor where GPU and driver can."},
      {"EPCCL_TORCH_BLOCKING", "0", "0|1", local,
       "`1`: a call of torch.distributed on CUDA tensors returns when it is over, asynchronous ones too, so "
       "that the program queues nothing behind a stream that waits. Only from the environment."},
      {"EPCCL_NCCL_LIB", "", "path", local,
       "NVIDIA's libnccl.so.2, or its folder, for the calls that libepccl-nccl passes on. Unset: the first "
       "that is not EPCCL's own of LD_LIBRARY_PATH, of loaded Python packages, of the dynamic linker and of "
       "the usual folders."},
      {"EPCCL_NCCL_TIMEOUT", "1800", "seconds above 0", local,
       "EPCCL_TIMEOUT of NCCL programs (libnccl.so.2 of EPCCL), where that is not set itself: NCCL waits "
       "without a limit for ranks that come late, because they load weights first, say. A rank that has died "
       "is told of at once."},
      {"EPCCL_NCCL_ALLTOALL", "auto", "auto|native|real", local,
       "Who runs ncclAlltoAll with CUDA memory in libepccl-nccl. `auto`: EPCCL, where copy engines can "
       "(every rank maps the memory of its node's GPUs, and the network between nodes reaches it), else "
       "NVIDIA's library. `native`: EPCCL, between nodes also through pinned host memory. `real`: NVIDIA's. "
       "Where ranks differ, NVIDIA's unless all can do without."},
      {"EPCCL_NCCL_COLLECTIVES", "auto", "auto|native|real", local,
       "Who runs the collectives other than ncclAlltoAll with CUDA memory in libepccl-nccl. `auto`: NVIDIA's "
       "library; where a rank has none, EPCCL if copy engines can. `native`: EPCCL. With `native` for all "
       "three on all ranks, NVIDIA's library makes no communicators. `real`: NVIDIA's. Where ranks differ, "
       "as EPCCL_NCCL_ALLTOALL."},
      {"EPCCL_NCCL_GROUPS", "auto", "auto|native|real", local,
       "Who runs ncclSend and ncclRecv with CUDA memory in libepccl-nccl, in groups and alone. As "
       "EPCCL_NCCL_ALLTOALL. `real`: for programs whose allocator maps pages itself (PyTorch's "
       "expandable_segments), since copy engines of peers do not reach such memory."},
      {"EPCCL_NET", "auto", "auto|measured|tcp|ucx|verbs|none", all_ranks,
       "Transport between nodes. `auto`: `verbs` where every rank has an RDMA port that is up, else `ucx` "
       "where every rank has an RDMA device, else `tcp`, plain sockets. `measured`: as `auto`, but where "
       "both work the one that two ranks find faster when a communicator is made. `none`: ranks of one node "
       "only."},
      {"EPCCL_UCX_LIB", "", "path", local,
       "libucp of UCX, opened where `ucx` may be taken. Unset: the dynamic linker's `libucp.so.0`. A process "
       "that has loaded another UCX (its MPI's) must have it of the same version."},
      {"EPCCL_VERBS_LIB", "", "path", local, "libibverbs. Unset: the dynamic linker's `libibverbs.so.1`."},
      {"EPCCL_VERBS_DEVICES", "", "list of RDMA devices", local,
       "Ports for `verbs`: `mlx5_0,mlx5_3` by prefix, `=mlx5_1` exactly, `mlx5_1:2` with a port, `^mlx5_9` "
       "all but these. `%n` is the number that EPCCL_HOSTID ends with: virtual nodes can have devices of "
       "their own. Unset: every port that is up."},
      {"EPCCL_VERBS_GID_INDEX", "auto", "integer 0..255|auto", local,
       "Which address of a port `verbs` uses. `auto`: RoCE v2, IPv4 before IPv6 before link-local; "
       "InfiniBand's first."},
      {"EPCCL_VERBS_EAGER_LIMIT", "8K", "bytes up to 64K", all_ranks,
       "Messages up to this size are sent without asking, with a copy at each end; larger ones are written "
       "straight into the receiver's memory."},
      {"EPCCL_VERBS_TIMEOUT", "5", "seconds above 0", local,
       "How long a connection of `verbs` tries without an answer, at least, before it counts as broken."},
      {"EPCCL_RAILS", "auto", "integer 1..4|auto", local,
       "RDMA ports that a rank uses at once with `verbs`. `auto`: those that the rail plan gives it "
       "(`epccl-topo --cluster`), 2 where EPCCL_VERBS_DEVICES names the devices."},
      {"EPCCL_RAIL_FAILOVER", "0", "0|1", all_ranks,
       "`1`: what goes over an RDMA port that fails goes over the rank's others, and nothing is lost. `0`: "
       "it ends the communicator's calls with an error that names peer and port."},
      {"EPCCL_GPU_DIRECT", "auto", "auto|dmabuf|peermem|0", local,
       "How RDMA devices reach GPU memory where it lies: by dma-buf, or through the kernel's module "
       "nvidia_peermem. `auto`: the first of both that works, else through host memory. `0`: always through "
       "host memory."},
      {"EPCCL_CMA", "auto", "0|1|auto", all_ranks,
       "Whether memory that peers cannot map is read with process_vm_readv, where it does not fit into "
       "staging memory. `auto`: where the kernel permits it."},
      {"EPCCL_STAGING", "auto", "auto|always|never", local,
       "How peers come by inputs that they cannot map, of 32 KiB and more a rank of the node: from a copy in "
       "staging memory (`always`; as far as it fits), or by process_vm_readv where they lie (`never`). "
       "`auto`: a communicator tries both in the first calls of an operation and size, now and then again, "
       "and takes the faster way. Ranks may differ."},
      {"EPCCL_LINK_RATE", "", "bits per second", local,
       "Rate of a node's network link for the cost model and for %wire: `4gbit`, `100mbit`, `25e9`. Unset: "
       "the cost model takes 10 GB/s, whatever the network device says, and there is no %wire."},

      {"EPCCL_CHUNK_SIZE", "auto", "bytes above 0|auto", all_ranks,
       "Pipeline chunk: the second hop of one chunk runs under the first hop of the next. `auto`: 128K, and "
       "1M where copy engines, or queues of a GPU, run the plan."},
      {"EPCCL_SCRATCH_SIZE", "8M", "bytes up to 1T", all_ranks,
       "Staging memory of a rank for one call half; calls that need more are cut into rounds, but no token "
       "of a dispatch or combine between nodes (epccl/ep.h, max_token_bytes). Inputs that peers cannot map "
       "(not of epcclMemAlloc) are copied there for them, as far as they fit and where that is faster."},
      {"EPCCL_EAGER_LIMIT", "8K", "bytes up to 1T", all_ranks,
       "Blocks up to this size go through staging memory inside a node."},
      {"EPCCL_VARIANT", "auto", "plain|alone|tree|relay|split|together|auto", all_ranks,
       "How collectives are made that have the variant; others, and all with EPCCL_ALGO=flat, as the cost "
       "model chooses. `plain`: none of these. allreduce: `alone` (one node: each rank adds up all of it), "
       "and between more than two nodes `tree` (recursive doubling) or `split` (each node finishes a part). "
       "broadcast and reduce there: `tree` (binomial) or `relay` (from node to node). reduce_scatter: "
       "`together` (small blocks of a node in one message)."},
      {"EPCCL_CARRIERS", "0", "integer 0..125", all_ranks,
       "Ranks of a node that carry the traffic of one node pair in `two_stage`, and that share what a node "
       "adds up in allreduce and reduce (on GPUs at least so many). 0: the cost model decides."},
      {"EPCCL_GROUP_AGGREGATE", "auto", "0|1|auto", local,
       "Whether small sends of a group to many ranks of other nodes are carried by neighbours, so that a "
       "node's messages for one rank cross the network as one (tcp only). `auto`: where the cost model says "
       "that it pays, and as long as it does. `1`: whenever it can be done."},
      {"EPCCL_EP_STRATEGY", "auto", "auto|flat|gather|dedup", local,
       "How dispatch and combine cross the network where the group's configuration does not say: one copy of "
       "a token for each rank, every token to every node, or one copy for each node. `auto`: by the cost "
       "model, for each routing."},
      {"EPCCL_COPY_ENGINE", "auto", "auto|always|never", all_ranks,
       "Whether copy engines move the data of collectives, and compute cores only add up. `auto`: where the "
       "device has such engines, and GPUs of a node reach each other's memory, but large copies inside a GPU "
       "are made as its driver likes; the host's are threads, for tests and studies. `always`: those inside "
       "a GPU, too. `never`: compute cores do, or where they cannot the host, by way of pinned memory. See "
       "docs/copy-engines.md."},
      {"EPCCL_MAX_CTAS", "0", "integer 0..65536", local,
       "Blocks that a reduction beside copy engines, and a copy by compute cores, uses at most. 0: the "
       "fewest that should keep up with the GPU's memory, or with the link to other GPUs "
       "(docs/copy-engines.md). The host has one."},
      {"EPCCL_HOST_ENGINES", "2", "integer 1..64", local,
       "Copy engines that the host device emulates in a process, each by a thread, where collectives use "
       "them."},
      {"EPCCL_HOST_ENGINE_CORES", "", "list of cores", local,
       "Cores that emulated copy engines run on, as `2,3`, so that a core can stand for an engine beside "
       "cores that compute. Unset, or where the process may use none of them (a WARN line says so): wherever "
       "the program runs."},
      {"EPCCL_HOST_REDUCTION_CORES", "", "list of cores", local,
       "As EPCCL_HOST_ENGINE_CORES, for the worker that adds up beside emulated copy engines: they stand for "
       "the part of a GPU that EPCCL_MAX_CTAS sets aside."},
      {"EPCCL_HOST_ENGINE_GBPS", "", "10^9 bytes per second above 0", local,
       "Bandwidth that each emulated copy engine keeps to. Unset: as fast as it can. See "
       "docs/copy-engines.md."},
      {"EPCCL_STREAMING_SIZE", "auto", "bytes|auto", local,
       "Collectives whose output on a rank is at least this large are written past the cache. `auto`: 8 MiB, "
       "or more, as long as the last-level cache keeps what all ranks read and write."},
      {"EPCCL_SPIN", "auto", "microseconds|auto", local,
       "How long a waiting rank spins before it starts to yield its core. `auto`: by ranks and cores of the "
       "node."},
      {"EPCCL_YIELD", "auto", "microseconds|auto", local,
       "How long a waiting rank yields before it sleeps until an event. `auto`: longer for the network than "
       "for peers of the node that wait for it."},

      {"EPCCL_LIB", "", "path", local,
       "The libepccl.so that the Python package loads, and no other. Unset: the one installed beside it, "
       "then the system's."},

      {"EPCCL_RANK", "", "integer", local,
       "This process's rank. Set by epccl-run; may be set by hand, with MASTER_ADDR and MASTER_PORT, "
       "EPCCL_STORE or EPCCL_COMM_ID."},
      {"EPCCL_WORLD_SIZE", "", "integer", local, "Number of ranks of the job. Set together with EPCCL_RANK."},
      {"EPCCL_LOCAL_RANK", "", "integer", local,
       "This process's place among the ranks of its node. Set by epccl-run."},
      {"EPCCL_STORE", "", "directory", local,
       "Private directory, shared by all ranks of one job, through which they find rank 0. Set by epccl-run; "
       "on several machines a directory of a shared file system, which is asked four times a second what has "
       "changed, past what a machine remembers of it (NFS's acdirmin). Jobs that their launcher tells apart "
       "(by Slurm's step, Open MPI's, PMIx's, PALS's or Flux's number, torchrun's `--rdzv-id`, where it is "
       "given), or EPCCL_JOB_KEY, do not meet in one directory; those of MPICH in one allocation, and ranks "
       "that are started by hand, need one for each job. Unset, and without MASTER_ADDR and MASTER_PORT, "
       "ranks of one machine meet by what their launcher gives to one job only: its number for the job "
       "(Slurm, Open MPI, PMIx), or its process above them (MPICH); where they see neither (started by hand, "
       "or under MPICH each in a container), an error asks for this. They meet in a directory "
       "`epccl-UID-...` under TMPDIR, which stays where they are killed meanwhile, until a run of this user "
       "removes it after a day."},
      {"EPCCL_MASTER_PORT", "", "port", local,
       "Port at MASTER_ADDR on which rank 0 hands out the id of the rendezvous, whatever launcher has set "
       "that, or who. Unset: the first free one of the eight after MASTER_PORT."},
      {"EPCCL_JOB_KEY", "", "text", local,
       "Mixed into what tells jobs apart, and into the key under which rank 0 hands out the id over TCP (at "
       "any address of its machine, where the others know that by a name). Equal on all ranks and known to "
       "nobody else, it keeps other users of the network out. Long and random (`openssl rand -hex 16`): "
       "files in EPCCL_STORE are named after a hash of it, and what rank 0 hands out is encrypted with one."},
  };
  return rows;
}

}  // namespace epccl::settings
