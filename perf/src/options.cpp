#include "perf/src/options.hpp"

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <functional>
#include <span>

#include "algorithms/alltoall/algorithm.hpp"
#include "perf/src/names.hpp"
#include "perf/src/operation_first.hpp"

namespace epccl::perf {
namespace {

constexpr long largest_factor = 1'000'000;

/// What is typed, before it means anything.
struct Typed {
  std::string operation, first, last, step, datatypes = "float", algorithm, pattern = "uniform",
                                            redops = "sum", root = "0", placement = "both";
  long factor = 0;
  bool per_pair = false, grouped = false, copies = false;
  int in_a_row = 1, group_calls = 1;
  CLI::Option* factor_option = nullptr;
};

void add_size_options(CLI::App& app, Typed& typed) {
  app.add_option("-b,--minbytes", typed.first, "Size to start with: 8, 4K, 1.5M, 4G (default 32M)")
      ->option_text("SIZE");
  app.add_option("-e,--maxbytes", typed.last, "Size to end at (default 32M)")->option_text("SIZE");
  typed.factor_option =
      app.add_option("-f,--stepfactor", typed.factor, "Multiply sizes by this")->option_text("N");
  app.add_option("-i,--stepbytes", typed.step, "Without -f, or with -f 1: add this to them (default 1M)")
      ->option_text("SIZE");
  app.add_flag("--per-pair", typed.per_pair, "Sizes are bytes per rank pair instead of bytes per rank");
  app.add_option("-d,--datatype", typed.datatypes, "all, or names separated by commas (default float)")
      ->option_text("TYPES");
  app.add_option(
         "-o,--op", typed.redops,
         "What reducing operations do: sum, prod, max, min, avg, mulsum, several separated by commas, or all "
         "(default sum)")
      ->option_text("OPS");
  app.add_option("-r,--root", typed.root,
                 "Root of broadcast, reduce, gather and scatter; all: each in turn (default 0)")
      ->option_text("RANK");
  app.add_option("--placement", typed.placement, "out (of place), in (place), or both (default both)")
      ->option_text("NAME");
}

std::vector<std::string> known_algorithms() {
  std::vector<std::string> known;
  for (const algorithms::Algorithm algorithm : algorithms::all_algorithms)
    known.emplace_back(to_string(algorithm));
  known.emplace_back("auto");
  return known;
}

void add_choice_options(CLI::App& app, Typed& typed) {
  app.add_option("--algo", typed.algorithm,
                 fmt::format("{}, several of them separated by commas, or all: one row of each per size "
                             "(default: EPCCL_ALGO, else auto)",
                             fmt::join(known_algorithms(), ", ")))
      ->option_text("NAMES");
  app.add_flag(
      "--overlap-copies", typed.copies,
      "With --overlap: a row more for as many bytes copied by a thread of each rank that does nothing else");
  app.add_flag("--grouped", typed.grouped,
               "Issue alltoall or alltoallv as a group of sends and receives, as PyTorch does with NCCL");
  app.add_option("--in-a-row", typed.in_a_row,
                 "Calls of a timed iteration, one behind the other; times are those of one call (default 1)")
      ->option_text("N");
  app.add_option(
         "-m,--agg_iters", typed.group_calls,
         "Calls of a group: an iteration issues so many between epcclGroupStart and epcclGroupEnd; times "
         "are those of one call (default 1: no group)")
      ->option_text("N");
  app.add_option("--pattern", typed.pattern,
                 "Counts of alltoallv: uniform, zipf:<exponent>, file:<matrix of counts> (default uniform)")
      ->option_text("PATTERN");
}

Status parse_size(const char* option, const std::string& text, uint64_t& size) {
  constexpr uint64_t largest = uint64_t{1} << 44;
  auto parsed = perf::parse_size(text);
  if (!parsed.ok()) return std::move(parsed).take_status().with_context(option);
  if (*parsed > largest) return error(Code::invalid_argument, "{} {}: more than 16T", option, text);
  size = *parsed;
  return {};
}

Status set_sweep(const Typed& typed, Options& options) {
  Sweep& sweep = options.sweep;
  options.per_pair = typed.per_pair;
  options.sizes_given = !typed.first.empty() || !typed.last.empty();
  if (!typed.first.empty()) EPCCL_TRY(parse_size("--minbytes", typed.first, sweep.first));
  if (!typed.last.empty()) EPCCL_TRY(parse_size("--maxbytes", typed.last, sweep.last));
  if (!typed.step.empty()) EPCCL_TRY(parse_size("--stepbytes", typed.step, sweep.step));
  if (sweep.step == 0 && typed.factor < 2)
    return error(Code::invalid_argument, "--stepbytes 0: sizes would never grow");
  if (typed.per_pair && !is_alltoall(options.operation)) {
    return error(Code::invalid_argument, "--per-pair: only alltoall and alltoallv have sizes of rank pairs");
  }
  if (typed.per_pair && !options.sizes_given) {
    return error(Code::invalid_argument, "--per-pair: give the sizes, with --minbytes or --maxbytes");
  }
  // One end alone, beyond the default of the other, is one size.
  if (typed.last.empty()) sweep.last = std::max(sweep.last, sweep.first);
  if (typed.first.empty()) sweep.first = std::min(sweep.last, sweep.first);
  if (sweep.first > sweep.last) {
    return error(Code::invalid_argument, "--minbytes {} is more than --maxbytes {}", typed.first, typed.last);
  }
  if (typed.factor_option->count() > 0)
    EPCCL_TRY(check_range("--stepfactor", typed.factor, 1, largest_factor));
  sweep.factor = static_cast<uint64_t>(typed.factor);
  return {};
}

Status set_root(const Typed& typed, Options& options) {
  options.root = Options::every_root;
  if (typed.root == "all" || typed.root == "-1") return {};
  const char* const end = typed.root.data() + typed.root.size();
  const auto [parsed, code] = std::from_chars(typed.root.data(), end, options.root);
  if (code == std::errc() && parsed == end && options.root >= 0) return {};
  return error(Code::invalid_argument, "--root {}: want a rank, or all", typed.root);
}

Status set_placement(const Typed& typed, Options& options) {
  options.out_of_place = typed.placement == "out" || typed.placement == "both";
  options.in_place = typed.placement == "in" || typed.placement == "both";
  if (!options.out_of_place && !options.in_place)
    return error(Code::invalid_argument, "--placement {}: want out, in or both", typed.placement);
  if (!options.out_of_place && !has_in_place(options.operation))
    return error(Code::invalid_argument, "--placement in: {} is never in place",
                 to_string(options.operation));
  return {};
}

/// The library is given an algorithm by name in any case, and would not look into the environment itself.
Status set_algorithms(const Typed& typed, const std::string& environment_algorithm, Options& options) {
  const bool is_typed = !typed.algorithm.empty();
  if (options.grouped && is_typed && typed.algorithm != "auto")
    return error(Code::invalid_argument, "--grouped: without --algo");
  const std::vector<std::string> known = known_algorithms();
  if (is_typed) {
    auto found = parse_names<std::string>("--algo", typed.algorithm, std::span(known), std::identity{});
    if (!found.ok())
      return error(Code::invalid_argument, "--algo {}: want some of {}, or all", typed.algorithm,
                   fmt::join(known, ", "));
    options.algorithms = std::move(found).value();
    return {};
  }
  if (std::ranges::find(known, environment_algorithm) == known.end())
    return error(Code::invalid_argument, "EPCCL_ALGO=\"{}\": want one of {}", environment_algorithm,
                 fmt::join(known, ", "));
  options.algorithms = {environment_algorithm};
  return {};
}

Status set_choices(const Typed& typed, Options& options) {
  EPCCL_ASSIGN(options.operation, parse_operation(typed.operation));
  EPCCL_ASSIGN(options.datatypes, parse_datatypes(typed.datatypes));
  EPCCL_ASSIGN(options.redops, parse_redops(typed.redops));
  EPCCL_TRY(set_root(typed, options));
  EPCCL_TRY(set_placement(typed, options));
  EPCCL_ASSIGN(options.pattern, parse_pattern(typed.pattern));
  if (options.operation != Operation::alltoallv && options.pattern.kind != Pattern::Kind::uniform) {
    return error(Code::invalid_argument, "--pattern {}: only alltoallv has one", typed.pattern);
  }
  EPCCL_TRY(check_range("--in-a-row", typed.in_a_row, 1, 1'000'000));
  options.in_a_row = typed.in_a_row;
  EPCCL_TRY(check_range("--agg_iters", typed.group_calls, 1, 1'000'000));
  options.group_calls = typed.group_calls;
  options.grouped = typed.grouped;
  options.beside_copies = typed.copies;
  if (options.graph_launches > 0 && (options.in_a_row > 1 || options.group_calls > 1))
    return error(Code::invalid_argument, "--graph: its calls are -n, so not with --in-a-row or --agg_iters");
  if (options.group_calls > 1 && (options.overlap || options.split))
    return error(Code::invalid_argument,
                 "--agg_iters: not with --overlap or --split, which are about one call");
  if (options.in_a_row > 1 && (options.overlap || options.split))
    return error(Code::invalid_argument,
                 "--in-a-row: not with --overlap or --split, which are about one call");
  const bool only_copies = is_alltoall(options.operation) || options.operation == Operation::allgather;
  if (options.beside_copies && (!options.overlap || options.device != "host" || !only_copies))
    return error(Code::invalid_argument,
                 "--overlap-copies: with --overlap, of host memory, for alltoall, alltoallv and allgather");
  if (options.grouped && !is_alltoall(options.operation))
    return error(Code::invalid_argument, "--grouped: only alltoall and alltoallv");
  return {};
}

/// The command line, what of it goes where, and what is typed.
struct Grammar {
  Typed typed;
  MeasuringFlags measuring{false, true};
  CLI::App app{
      "Times and checks EPCCL's collectives, as nccl-tests does NCCL's. Start it on every rank: under "
      "epccl-run,\n"
      "torchrun, srun or mpirun; alone it is a communicator of one rank.",
      "epccl-perf"};
  Grammar();
};

Grammar::Grammar() {
  app.add_option(
         "operation", typed.operation,
         "alltoall, alltoallv, allgather, reduce_scatter, allreduce, broadcast, reduce, gather, scatter or "
         "sendrecv; dispatch, combine, moe and links have options of their own: moe --help, links --help")
      ->option_text("OPERATION");
  add_size_options(app, typed);
  measuring.add_to(app);
  add_choice_options(app, typed);
  app.set_version_flag("--version", "epccl-perf " EPCCL_VERSION_STRING);
  app.footer(help_footer());
}

}  // namespace

uint64_t Options::size_of_one(const DataType& type, int ranks) const {
  return (per_pair ? 1 : size_of_count(operation, 1, ranks)) * type.bytes;
}

std::string describe(const Options& o) {
  std::string text = fmt::format(
      "{} {}..{} step {} factor {} pair {} given {} grouped {} in a row {} calls of a group {} copies {} ",
      to_string(o.operation), o.sweep.first, o.sweep.last, o.sweep.step, o.sweep.factor, o.per_pair,
      o.sizes_given, o.grouped, o.in_a_row, o.group_calls, o.beside_copies);
  text += describe(static_cast<const MeasuringOptions&>(o));
  text += fmt::format(" pattern {} {}", static_cast<int>(o.pattern.kind), o.pattern.exponent);
  text += fmt::format(" root {} place {} {}", o.root, o.out_of_place, o.in_place);
  for (const RedOp op : o.redops) text += fmt::format(" {}", to_string(op));
  for (const DataType& type : o.datatypes) text += fmt::format(" {}", type.name);
  for (const std::string& algorithm : o.algorithms) text += " " + algorithm;
  return text;
}

void add_value_names(ValueNames& names) {
  names.add(Grammar().app);
}

Result<CommandLine> parse_command_line(int argc, const char* const* argv, const std::string& environment_rate,
                                       const std::string& environment_algorithm) {
  CommandLine line;
  Grammar grammar;
  auto& [typed, measuring, app] = grammar;
  EPCCL_ASSIGN(line.help, parse_arguments(app, operation_first(argc, argv), "--help"));
  if (!line.help.empty()) return line;
  // Not CLI11's to require: it would say so before it names an option that is unknown.
  if (typed.operation.empty())
    return error(Code::invalid_argument, "which operation? (--help lists what there is)");
  EPCCL_TRY(measuring.read(environment_rate, line.options));
  EPCCL_TRY(set_choices(typed, line.options));
  EPCCL_TRY(set_algorithms(typed, environment_algorithm, line.options));
  EPCCL_TRY(set_sweep(typed, line.options));
  return line;
}

}  // namespace epccl::perf
