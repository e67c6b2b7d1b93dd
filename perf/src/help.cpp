#include "perf/src/options.hpp"

namespace epccl::perf {

const char* help_footer() {
  return R"(
Sizes
  1.5K is 1536: any part of a unit that is whole bytes. Sizes are rounded down to whole elements (of every rank or rank pair that
  has some of its own): one of less than that is measured as 0 bytes, and sizes of a sweep that become the same are one row. From
  0 a factor goes on with the size of one such element.
  alltoall: bytes per rank = ranks x count x size of the datatype, as in nccl-tests; the count column is
  that of one rank pair, rounded down. With --per-pair, -b and -e are bytes of one rank pair.
  alltoallv: the bytes of the rank that sends most. uniform is alltoall's counts; zipf:<s> splits the same
  total of every rank over the destinations d in proportion 1/(1+d)^s (rank 0 receives most); file:<path>
  has a line of counts (elements) for every source and a column for every destination, separated by spaces,
  commas or semicolons; '#' starts a comment. The file's counts are taken as they are, one row, unless -b or -e ask for
  sizes: then they are scaled.
  allgather, reduce_scatter, gather, scatter: bytes of all ranks' parts; count is that of one part, rounded down. allreduce,
  broadcast, reduce, sendrecv: bytes of the buffer that every rank has. sendrecv sends to the next rank and receives from the
  one before, in a group.

Timing
  Every iteration: a barrier, then the call is timed on every rank; -a makes one time of the ranks'. With --in-a-row N an
  iteration is N calls and a barrier, divided by N, and begins where the one before ended: ranks that need not wait for
  others run ahead, as in nccl-tests. With -m M every call here is a group of M calls, made between epcclGroupStart and
  epcclGroupEnd; times are those of one of them, on average. `time` is the median over the iterations (of an even number the
  mean of the two in the middle), p50 the same, p99 the 99th percentile (nearest rank). algbw = size / time, in 1e9 bytes a
  second. busbw = algbw x (ranks - 1) / ranks; allreduce: twice that; broadcast, reduce and sendrecv: algbw.
  %wire is the time that the bytes on the busiest link need at least, over the time measured: of all nodes'
  egress and ingress, bytes between nodes only, at 95.4 % of --link-rate (what TCP over Ethernet leaves for
  payload). For alltoall the bytes are what has to cross; for the others what no algorithm can do without (allreduce: 2
  (nodes - 1) / nodes of the buffer). Ranks are on one node where EPCCL_HOSTID, or else host name and boot id, are equal.

  With -G N the -n iterations are captured into one CUDA graph (docs/cuda.md), which is launched N times, each after a barrier: a
  launch divided by n is one of N times. What is compared is a graph of one call.

Split
  With --split as many iterations more are measured, one by one after a barrier, and a line below the row says what their time
  went to, out of place if that was measured: kernel (a kernel of the rank ran; on the host, a reduction by the engines' worker), copy
  (else a copy engine copied), signal (else a queue or the call's thread waited for other ranks), host (else: all that the caller saw
  beside). Means over iterations and ranks, which add up. Measuring costs a GPU two events for each operation of a queue.
  epccl/profile.h has the same for any program.

Copy engines and overlap
  --copy-engine says who moves the data (docs/copy-engines.md); all: never, then always, a row each. With --overlap an iteration
  has three parts, each after a barrier, which take turns at being the first: the call alone on a stream, the matrix products
  alone, and both, where the call is started, then the products run, then the stream is waited for. `exposed` is overlapped -
  compute of the same iteration (the median of these), also in % of comm; `dilation` by how much the products beneath the call are slower than alone; `cpu` the core time
  of the process's other threads, in % of comm (emulated engines are such threads); `ideal` (comm + compute - overlapped) /
  (the shorter of comm and compute). With --device cuda the products are cuBLAS's, bfloat16 on the same GPU in a stream of their
  own (--gemm-size), and the calls are made in the NULL stream; where one product takes longer than --compute-ratio asks
  for, as many calls are queued as go on for as long (`calls` in the JSON; comm is the time of all of them). --overlap-copies adds a row: as many bytes copied by a thread of each rank that
  does nothing else (on EPCCL_HOST_ENGINE_CORES), in the same iterations beneath the same products; in the JSON overlap_copies.

Data
  With -c 1 outputs are poisoned, data differ by source, destination, position and exchange, and are
  compared on every rank: for a first call of every size, and for its last timed iteration; with --in-a-row or -m for one
  call more, by itself, not timed. #wrong counts elements of all ranks. Reductions are compared with sums of their own making, of
  numbers that do not have to be rounded (an average of floats over ranks that are no power of two may be off by the roundings of its partial sums). alltoall,
  alltoallv and sendrecv are never in place: N/A.

JSON
  The file takes the place of one of its name when the first row has been measured, and again after the next ones and at the end; one
  that cannot be written is refused at the start. What a run that was killed leaves says so in `errors`. With --budget `iterations` of
  `config` is null: each of `results` has its own.
  nccl-tests' fields; each of `results` also has algo, bytes_per_pair (of alltoall and alltoallv), time_us (median), p99_us,
  min_us, iterations (these out of place if that was measured), wrong, copy_engine where it was given, overlap (as of moe) with --overlap, split (as of moe) with --split, and
  wire_fraction where the link rate is known and bytes cross nodes.

Not supported
  nccl-tests' -N -p -y -C -S -x -D -V -M -u -I -K are errors: they are about CUDA, or ways of timing that
  do not apply. -t and -g only take 1, -R only 0 and 1.

Exit status: 0; 1 where a call failed or data were wrong; 2 for wrong arguments.)";
}

}  // namespace epccl::perf
