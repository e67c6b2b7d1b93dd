#include "perf/src/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/settings.hpp"

namespace epccl::perf {
namespace {

constexpr long largest_factor = 1'000'000;

/// What is typed, before it means anything.
struct Typed {
  std::string operation, first, last, step, datatypes = "float", algorithm = "auto", pattern = "uniform";
  long factor = 0;
  bool per_pair = false;
  CLI::Option* factor_option = nullptr;
  CLI::Option* step_option = nullptr;
};

void add_size_options(CLI::App& app, Typed& typed) {
  app.add_option("-b,--minbytes", typed.first, "Size to start with: 8, 4K, 1M, 4G (default 32M)")
      ->option_text("SIZE");
  app.add_option("-e,--maxbytes", typed.last, "Size to end at (default 32M)")->option_text("SIZE");
  typed.factor_option =
      app.add_option("-f,--stepfactor", typed.factor, "Multiply sizes by this")->option_text("N");
  typed.step_option = app.add_option("-i,--stepbytes", typed.step, "Or add this to them (default 1M)");
  typed.step_option->option_text("SIZE")->excludes(typed.factor_option);
  app.add_flag("--per-pair", typed.per_pair, "Sizes are bytes per rank pair instead of bytes per rank");
  app.add_option("-d,--datatype", typed.datatypes, "all, or names separated by commas (default float)")
      ->option_text("TYPES");
}

void add_choice_options(CLI::App& app, Typed& typed) {
  app.add_option("--algo", typed.algorithm,
                 "flat, two_stage, auto, or all: one row of each per size (default auto)")
      ->option_text("NAME");
  app.add_option("--pattern", typed.pattern,
                 "Counts of alltoallv: uniform, zipf:<exponent>, file:<matrix of counts> (default uniform)")
      ->option_text("PATTERN");
}

Status parse_size(const char* option, const std::string& text, uint64_t& size) {
  constexpr uint64_t largest = uint64_t{1} << 44;
  auto parsed = settings::parse_bytes(text);
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
  if (sweep.step == 0) return error(Code::invalid_argument, "--stepbytes 0: sizes would never grow");
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
    EPCCL_TRY(check_range("--stepfactor", typed.factor, 2, largest_factor));
  sweep.factor = static_cast<uint64_t>(typed.factor);
  return {};
}

Status set_choices(const Typed& typed, Options& options) {
  if (typed.operation != "alltoall" && typed.operation != "alltoallv") {
    return error(Code::invalid_argument,
                 "unknown operation \"{}\": want alltoall or alltoallv; or, as the first argument, dispatch, "
                 "combine or moe",
                 typed.operation);
  }
  options.operation = typed.operation == "alltoall" ? Operation::alltoall : Operation::alltoallv;
  EPCCL_ASSIGN(options.datatypes, parse_datatypes(typed.datatypes));
  EPCCL_ASSIGN(options.pattern, parse_pattern(typed.pattern));
  if (options.operation == Operation::alltoall && options.pattern.kind != Pattern::Kind::uniform) {
    return error(Code::invalid_argument, "--pattern {}: only alltoallv has one", typed.pattern);
  }
  if (typed.algorithm == "all") {
    options.algorithms = {"flat", "two_stage", "auto"};
  } else if (typed.algorithm == "flat" || typed.algorithm == "two_stage" || typed.algorithm == "auto") {
    options.algorithms = {typed.algorithm};
  } else {
    return error(Code::invalid_argument, "--algo {}: want flat, two_stage, auto or all", typed.algorithm);
  }
  return {};
}

}  // namespace

const char* to_string(Operation operation) {
  return operation == Operation::alltoall ? "alltoall" : "alltoallv";
}

std::string describe(const Options& o) {
  std::string text =
      fmt::format("{} {}..{} step {} factor {} pair {} given {} ", to_string(o.operation), o.sweep.first,
                  o.sweep.last, o.sweep.step, o.sweep.factor, o.per_pair, o.sizes_given);
  text += describe(static_cast<const MeasuringOptions&>(o));
  text += fmt::format(" pattern {} {}", static_cast<int>(o.pattern.kind), o.pattern.exponent);
  for (const DataType& type : o.datatypes) text += fmt::format(" {}", type.name);
  for (const std::string& algorithm : o.algorithms) text += " " + algorithm;
  return text;
}

Result<CommandLine> parse_command_line(int argc, const char* const* argv,
                                       const std::string& environment_rate) {
  CommandLine line;
  Typed typed;
  MeasuringFlags measuring(false);
  CLI::App app(
      "Times and checks EPCCL's collectives, as nccl-tests does NCCL's. Start it on every rank: under "
      "epccl-run,\n"
      "torchrun, srun or mpirun; alone it is a communicator of one rank.",
      "epccl-perf");
  app.add_option("operation", typed.operation,
                 "alltoall or alltoallv; dispatch, combine and moe have options of their own: moe --help")
      ->required()
      ->option_text("OPERATION");
  add_size_options(app, typed);
  measuring.add_to(app);
  add_choice_options(app, typed);
  app.footer(help_footer());
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
    return line;
  } catch (const CLI::ParseError& parse_error) {
    return error(Code::invalid_argument, "{} (--help lists what there is)", parse_error.what());
  }
  EPCCL_TRY(measuring.read(environment_rate, line.options));
  EPCCL_TRY(set_choices(typed, line.options));
  EPCCL_TRY(set_sweep(typed, line.options));
  return line;
}

}  // namespace epccl::perf
