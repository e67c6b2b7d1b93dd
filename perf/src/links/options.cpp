#include "perf/src/links/options.hpp"

#include <CLI/CLI.hpp>
#include <cmath>

#include "perf/src/operation_first.hpp"
#include "perf/src/sizes.hpp"

namespace epccl::perf::links {
namespace {

/// What is typed, before it means anything.
struct Typed {
  std::string operation, size = "4M", pairs = "rails,nodes", device = "host", file;
  int iterations = 20, warmup = 5, registered = 0, ranks_per_gpu = 1;
  double threshold = 0.75, timeout = 0;
  CLI::Option* sharing_option = nullptr;
};

constexpr const char* footer = R"(
What is measured
  rails: each rank with those of other nodes at its local position, which are whom two-stage collectives send to. nodes: ranks of one
  node with each other. all: each rank with those of other nodes, whatever their positions. Each rank has one partner at a time; in a round
  all pairs measure side by side, and share what they have in common (a NIC of several ranks, a node's memory); in the next round they
  have other partners, until all have met.

  latency        half of the time in which 8 bytes go there and back
  rate           a message of --size there and 8 bytes back: size / (that time - latency), one direction at a time, in 1e9 bytes a second
  Medians over the iterations, of which there are fewer where they would take more than two seconds. A link is slow whose rate is below
  --threshold times what is usual: the upper quartile of all links of its kind. Where every link out of (into) a rank or a node is slow,
  and they lead to several others, that is said of it, and not of each link. Where more than three quarters are slow nothing is.

JSON
  nccl-tests' document; `results` has an object for rails, nodes or all: kind, links (from, to: ranks; latency_us, rate in GB/s), median_rate,
  usual_rate, median_latency_us, and slow (what: node_sends, node_receives, rank_sends, rank_receives or link; from, to: nodes of node_...,
  else ranks, null where it is all; rate).

Exit status: 0, also where links are slow; 1 where a call failed, or there are no such pairs; 2 for wrong arguments.)";

struct Grammar {
  Typed typed;
  CLI::App app{
      "Measures the links between pairs of ranks, and names those that are slow. Start it on "
      "every\n"
      "rank: under epccl-run, torchrun, srun or mpirun.",
      "epccl-perf"};
  Grammar();
};

Grammar::Grammar() {
  app.add_option("operation", typed.operation, "links")->required()->option_text("OPERATION");
  app.add_option("-b,--size", typed.size, "Bytes of a message (default 4M)")->option_text("SIZE");
  app.add_option("--pairs", typed.pairs, "rails, nodes, rails,nodes or all (default rails,nodes)")
      ->option_text("WHICH");
  app.add_option("--threshold", typed.threshold,
                 "Links below so much of what is usual are slow (default 0.75)")
      ->option_text("X");
  app.add_option("-n,--iters", typed.iterations, "Timed iterations of a link (default 20)")->option_text("N");
  app.add_option("-w,--warmup_iters", typed.warmup, "Iterations before them, not timed (default 5)")
      ->option_text("N");
  app.add_option("-R,--local_register", typed.registered,
                 "1: buffers of epcclMemAlloc, registered; 0: ordinary memory (default 0)")
      ->option_text("0|1");
  app.add_option("-T,--timeout", typed.timeout, "Seconds to wait for a silent rank (default: EPCCL_TIMEOUT)")
      ->option_text("S");
  app.add_option("--device", typed.device, "Whose memory: host or cuda (default host)")
      ->option_text("host|cuda");
  typed.sharing_option = app.add_option("--ranks-per-gpu", typed.ranks_per_gpu,
                                        "With --device cuda: ranks of a node that share a GPU (default 1)");
  typed.sharing_option->option_text("N");
  app.add_option("-J,--output_file", typed.file, "Also write the results as JSON to this file")
      ->option_text("FILE");
  app.set_version_flag("--version", "epccl-perf " EPCCL_VERSION_STRING);
  app.footer(footer);
}

Status read_device(const Typed& typed, Options& options) {
  if (typed.device != "host" && typed.device != "cuda")
    return error(Code::invalid_argument, "--device {}: want host or cuda", typed.device);
  EPCCL_TRY(check_range("--ranks-per-gpu", typed.ranks_per_gpu, 1, 1024));
  if (typed.device == "host" && typed.sharing_option->count() > 0)
    return {Code::invalid_argument, "--ranks-per-gpu needs --device cuda"};
  options.device = typed.device;
  options.ranks_per_gpu = typed.ranks_per_gpu;
  return {};
}

Result<Options> options_of(const Typed& typed) {
  constexpr int many = 1'000'000;
  Options options;
  EPCCL_TRY(check_range("--iters", typed.iterations, 1, many));
  EPCCL_TRY(check_range("--warmup_iters", typed.warmup, 0, many));
  EPCCL_TRY(check_range("--local_register", typed.registered, 0, 1));
  auto bytes = parse_size(typed.size);
  if (!bytes.ok()) return std::move(bytes).take_status().with_context("--size");
  if (*bytes == 0) return error(Code::invalid_argument, "--size {}: a message needs bytes", typed.size);
  const std::optional<Pairs> pairs = parse_pairs(typed.pairs);
  if (!pairs)
    return error(Code::invalid_argument, "--pairs {}: want rails, nodes, rails,nodes or all", typed.pairs);
  if (!(typed.threshold > 0 && typed.threshold <= 1))
    return error(Code::invalid_argument, "--threshold {}: want more than 0, and 1 at most", typed.threshold);
  if (!(typed.timeout >= 0 && std::isfinite(typed.timeout)))
    return error(Code::invalid_argument, "--timeout {}: want seconds", typed.timeout);
  EPCCL_TRY(read_device(typed, options));
  options.bytes = *bytes;
  options.pairs = *pairs;
  options.threshold = typed.threshold;
  options.iterations = typed.iterations;
  options.warmup = typed.warmup;
  options.registered = typed.registered != 0;
  options.timeout = typed.timeout;
  options.output_file = typed.file;
  return options;
}

}  // namespace

std::string describe(const Options& o) {
  return fmt::format("links {} size {} threshold {} ", to_string(o.pairs), o.bytes, o.threshold) +
         perf::describe(static_cast<const MeasuringOptions&>(o));
}

void add_value_names(ValueNames& names) {
  names.add(Grammar().app);
}

Result<CommandLine> parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  Grammar grammar;
  EPCCL_ASSIGN(line.help, parse_arguments(grammar.app, operation_first(argc, argv), "links --help"));
  if (!line.help.empty()) return line;
  EPCCL_ASSIGN(line.options, options_of(grammar.typed));
  return line;
}

}  // namespace epccl::perf::links
