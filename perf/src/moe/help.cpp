#include "perf/src/moe/options.hpp"

namespace epccl::perf::moe {

std::string help_footer() {
  const std::string shapes = "\nShapes\n" + describe_shapes() +
                             "  --experts, --topk, --hidden and --routing replace what the shape says.\n";
  return shapes + R"(
Routing
  Every rank's table follows from --seed and the rank. Experts of a token differ. Expert e of E is on rank
  e x ranks / E, rounded down.
  uniform        all experts alike
  zipf:<s>       in proportion 1/(1+i)^s, where i numbers the experts in an order drawn from the seed
  groups:<m>/<g> g groups of neighbouring experts, as many in each: a token draws m groups, and its experts
                 from these (DeepSeek-V3: groups:4/8)
  hot:<n>        one expert of n hot ones, which the seed draws; the others uniform
  trace:<path>   recorded: a line of JSON for each step, layer and rank, with step, layer, rank, num_tokens,
                 topk and top_indices (a list of experts for each token), as Megatron-LM's router tracer writes
                 it; or the directory of its router_trace_rank<n>.jsonl. Rank r takes the record of rank r:
                 of several (micro-batches) the first.

Timing
  Every iteration: a barrier, then the call is timed on every rank; -a makes one time of the ranks'. moe calls
  combine right after dispatch: `time` is that of both, and the columns dispatch and combine are the time in each
  call. Ranks do not end a dispatch together, so that the parts may add up to more. `layout` is the time of
  epcclEpUpdateHandle, apart from the others: the timed calls use one layout again and again. Medians over the
  iterations (of an even number the mean of the two in the middle); p95 and p99 by nearest rank.
  With -G N (and --static, --device cuda) the -n iterations are captured into one CUDA graph (docs/cuda.md), which is launched N
  times, each after a barrier: a launch divided by n is one of N times. `time`, dispatch, combine and `layout` are graphs of
  their own. What is compared is a graph of one update and call.
  size           bytes of a rank as if each (token, expert) were a copy of its own: tokens x topk x bytes of a
                 token, of dispatch (FP8 with its scales) and combine together for moe; weights do not count
  algbw          size / time, in 1e9 bytes a second
  tokens/s       tokens of all ranks / time, in thousands
  network        bytes that nodes send each other, of all ranks, as the library counts them (epcclEpGetStats)
  expected       the same, from the routing: a row for each remote rank of a token (flat), for each remote node of
                 it (dedup), or for each token and remote node (gather); a combine's rows are its dispatch's
  imbal          rows that the busiest rank receives, over the mean
  %wire          time that the busiest node's bytes (egress or ingress, weights included) need at least, at 95.4 %
                 of --link-rate, over the time measured

Split
  With --split as many iterations more are measured, one by one after a barrier, and a line below the row says what their time
  went to: kernel (a kernel of the rank ran), copy (else a copy engine copied), signal (else a queue or the call's thread
  waited for other ranks), host (else: all that the caller saw beside). Means over iterations and ranks, which add up. Measuring
  costs a GPU two events for each operation of a queue. epccl/profile.h has the same for any program.

Overlap
  With --overlap an iteration has three parts, each after a barrier, which take turns at being the first: the calls alone,
  each waited for; compute alone; and both. Compute is single-precision matrix products (64 x 512 times 512 x 256) by a
  BLAS, on one thread, the calling one: as many as take --compute-ratio times as long as the calls, found out at the start
  and the same on every rank. Both: the calls are started (send_only; with --stream on the created stream), then come the
  products, then they are waited for. A combine is queued behind its dispatch and does not wait for the products. Medians.
  comm, compute  of the calls alone, and of the products alone
  overlapped     of both
  serial         comm + compute
  exposed        overlapped - compute of the same iteration: what of the calls the products did not hide; also in % of comm
  dilation       how much longer the products take while the calls go on
  cpu            core time of the process's other threads meanwhile, over comm: what the calls take from a core that the
                 products have to themselves otherwise, as far as the library's own work goes; holds on a busy machine too
  ideal          (serial - overlapped) / (serial - the longer of comm and compute)
  Noise of a busy machine is larger than what remains exposed: give it two cores of its own, and many iterations.
  --overlap-sockets adds a row: as many bytes, there and back, by one bare TCP socket between the two ranks, in the same
  iterations beneath the same products, and nothing else: what the kernel takes from the products by itself.

Data
  With -c 1 tokens are small integers, so that sums are exact, and differ by source, token, element and exchange.
  After a dispatch every row must be the right token in the right place; combine gives the rows back as they are, and
  the result must be the token times the rows it had (or the sum of its weights). Compared on every rank, for a first
  call and for the last timed iteration. #wrong counts elements of all ranks.

JSON
  The file takes the place of one of its name when the first row has been measured, and again after the next ones and at the end; one
  that cannot be written is refused at the start. What a run that was killed leaves says so in `errors`. With --budget `iterations` of
  `config` is null: each of `results` has its own.
  nccl-tests' document; each of `results` has op, algo (strategy as asked), strategy (as used), tokens (of a rank),
  total_tokens, hidden, topk, experts, routing, slots (with --slots), type, fp8, weights, layout, static, undefined_padding, bytes_per_rank (size), us (median), p95_us,
  p99_us, min_us, dispatch_us, combine_us, layout_us, fresh_us (of the first operation after an update, which has its
  schedule to make), in_a_row_us (with --static on a GPU: of one of `iterations` that are queued behind each other, with one wait
  at the end, as a graph has them), iterations, tokens_per_s, algbw (GB/s), network_bytes, expected_network_bytes, the dispatch's
  bytes inside nodes and to a rank itself (dispatch_node_bytes, dispatch_local_bytes, and both expected), imbalance,
  wire_fraction and wrong (null where not known). With --split also split: time_us, and of that kernel_us, copy_us, signal_us and
  host_us, and iterations. With --overlap also overlap: communication_us, compute_us,
  overlapped_us, compute_beneath_us (of the products while the calls go on), exposed_us, exposed_fraction, dilation,
  background_us and background_fraction (cpu), fraction_of_ideal, products, calls and iterations; and overlap_sockets, the same
  of bare sockets, with --overlap-sockets.

Matrix
  --write-matrix FILE --ranks R [--copies expert|rank] writes what alltoallv --pattern file:FILE reads: line s, column
  d is the number of tokens that rank s sends to rank d. It needs no launcher.

Exit status: 0; 1 where a call failed or data were wrong; 2 for wrong arguments.)";
}

}  // namespace epccl::perf::moe
