#include "perf/src/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "base/settings.hpp"

namespace epccl::perf {
namespace {

/// What is typed, before it means anything.
struct Typed {
  std::string operation, first, last, step, datatypes = "float", algorithm = "auto", pattern = "uniform",
                                            link_rate;
  long factor = 0;
  int iterations = 20, warmup = -1, check = 1, average = 3, blocking = 0, registered = 0, threads = 1,
      devices = 1;
  double budget = 0, timeout = 0;
  bool per_pair = false, stream = false;
  CLI::Option* budget_option = nullptr;
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

void add_measuring_options(CLI::App& app, Typed& typed) {
  app.add_option("-n,--iters", typed.iterations, "Timed iterations of a size (default 20)")->option_text("N");
  app.add_option("-w,--warmup_iters", typed.warmup,
                 "Iterations before them, not timed (default 5; 1 with --budget)")
      ->option_text("N");
  typed.budget_option = app.add_option(
      "--budget", typed.budget, "Seconds of timed iterations per size: runs 7 to 400 of them instead of -n");
  typed.budget_option->option_text("S");
  app.add_option("-c,--check", typed.check, "Check the data of every size (default 1)")->option_text("0|1");
  app.add_option(
         "-a,--average", typed.average,
         "The ranks' times of an iteration become one: 0 rank 0, 1 average, 2 minimum, 3 maximum (default 3)")
      ->option_text("0..3");
  app.add_option(
         "-z,--blocking", typed.blocking,
         "Accepted for nccl-tests' sake: every call is waited for and has a barrier before it in any case")
      ->option_text("0|1");
  app.add_option("-R,--local_register", typed.registered,
                 "1: buffers of epcclMemAlloc, registered; 0: ordinary memory, 64-byte aligned (default 0)")
      ->option_text("0|1");
  app.add_flag("--stream", typed.stream,
               "Issue the calls on a created stream and synchronize it (default: NULL stream)");
  app.add_option("-t,--nthreads", typed.threads, "Only 1: a rank is a process")->option_text("1");
  app.add_option("-g,--ngpus", typed.devices, "Only 1: a rank is a process")->option_text("1");
  app.add_option("-T,--timeout", typed.timeout, "Seconds to wait for a silent rank (default: EPCCL_TIMEOUT)")
      ->option_text("S");
}

void add_choice_options(CLI::App& app, Typed& typed, std::string& output_file) {
  app.add_option("--algo", typed.algorithm,
                 "flat, two_stage, auto, or all: one row of each per size (default auto)")
      ->option_text("NAME");
  app.add_option("--pattern", typed.pattern,
                 "Counts of alltoallv: uniform, zipf:<exponent>, file:<matrix of counts> (default uniform)")
      ->option_text("PATTERN");
  app.add_option(
         "--link-rate", typed.link_rate,
         "Rate of a node's network link for %wire: 4gbit, 100mbit, or none (default: EPCCL_LINK_RATE)")
      ->option_text("RATE");
  app.add_option("-J,--output_file", output_file, "Also write the results as JSON to this file")
      ->option_text("FILE");
}

Status between(const char* option, long value, long lowest, long highest) {
  if (value >= lowest && value <= highest) return {};
  if (lowest == highest)
    return error(Code::invalid_argument, "{} {}: only {} is supported", option, value, lowest);
  return error(Code::invalid_argument, "{} {}: want {} to {}", option, value, lowest, highest);
}

Status check_numbers(const Typed& typed) {
  constexpr int many = 1'000'000;
  EPCCL_TRY(between("--iters", typed.iterations, 1, many));
  if (typed.warmup != -1) EPCCL_TRY(between("--warmup_iters", typed.warmup, 0, many));
  EPCCL_TRY(between("--check", typed.check, 0, 1));
  EPCCL_TRY(between("--average", typed.average, 0, 3));
  EPCCL_TRY(between("--blocking", typed.blocking, 0, 1));
  EPCCL_TRY(between("--local_register", typed.registered, 0, 1));
  EPCCL_TRY(between("--nthreads", typed.threads, 1, 1));
  EPCCL_TRY(between("--ngpus", typed.devices, 1, 1));
  if (typed.factor_option->count() > 0) EPCCL_TRY(between("--stepfactor", typed.factor, 2, many));
  if (typed.budget_option->count() > 0 && !(typed.budget > 0 && std::isfinite(typed.budget))) {
    return error(Code::invalid_argument, "--budget {}: want seconds, more than 0", typed.budget);
  }
  if (!(typed.timeout >= 0 && std::isfinite(typed.timeout))) {
    return error(Code::invalid_argument, "--timeout {}: want seconds", typed.timeout);
  }
  return {};
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
  sweep.factor = static_cast<uint64_t>(typed.factor);
  return {};
}

Status set_choices(const Typed& typed, const std::string& environment_rate, Options& options) {
  if (typed.operation != "alltoall" && typed.operation != "alltoallv") {
    return error(Code::invalid_argument, "unknown operation \"{}\": want alltoall or alltoallv",
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
  const bool typed_rate = !typed.link_rate.empty();
  const std::string& rate = typed_rate ? typed.link_rate : environment_rate;
  if (rate.empty() || rate == "none") return {};
  auto parsed = settings::parse_rate(rate);
  if (!parsed.ok()) {
    return std::move(parsed).take_status().with_context(typed_rate ? "--link-rate" : "EPCCL_LINK_RATE");
  }
  options.link_rate = *parsed;
  return {};
}

Status set_measuring(const Typed& typed, Options& options) {
  EPCCL_TRY(check_numbers(typed));
  options.iterations = typed.iterations;
  if (typed.budget_option->count() > 0) options.budget = typed.budget;
  options.warmup = typed.warmup != -1 ? typed.warmup : options.budget ? 1 : 5;
  options.check = typed.check != 0;
  options.average = static_cast<Average>(typed.average);
  options.blocking = typed.blocking != 0;
  options.registered = typed.registered != 0;
  options.stream = typed.stream;
  options.timeout = typed.timeout;
  return {};
}

}  // namespace

const char* to_string(Operation operation) {
  return operation == Operation::alltoall ? "alltoall" : "alltoallv";
}

std::string describe(const Options& o) {
  std::string text =
      fmt::format("{} {}..{} step {} factor {} pair {} given {} iters {} warmup {} budget {} check {}",
                  to_string(o.operation), o.sweep.first, o.sweep.last, o.sweep.step, o.sweep.factor,
                  o.per_pair, o.sizes_given, o.iterations, o.warmup, o.budget.value_or(0), o.check);
  text += fmt::format(" pattern {} {}", static_cast<int>(o.pattern.kind), o.pattern.exponent);
  for (const DataType& type : o.datatypes) text += fmt::format(" {}", type.name);
  for (const std::string& algorithm : o.algorithms) text += " " + algorithm;
  return text;
}

Result<CommandLine> parse_command_line(int argc, const char* const* argv,
                                       const std::string& environment_rate) {
  CommandLine line;
  Typed typed;
  CLI::App app(
      "Times and checks EPCCL's collectives, as nccl-tests does NCCL's. Start it on every rank: under "
      "epccl-run,\n"
      "torchrun, srun or mpirun; alone it is a communicator of one rank.",
      "epccl-perf");
  app.add_option("operation", typed.operation, "alltoall or alltoallv")->required()->option_text("OPERATION");
  add_size_options(app, typed);
  add_measuring_options(app, typed);
  add_choice_options(app, typed, line.options.output_file);
  app.footer(help_footer());
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
    return line;
  } catch (const CLI::ParseError& parse_error) {
    return error(Code::invalid_argument, "{} (--help lists what there is)", parse_error.what());
  }
  EPCCL_TRY(set_measuring(typed, line.options));
  EPCCL_TRY(set_choices(typed, environment_rate, line.options));
  EPCCL_TRY(set_sweep(typed, line.options));
  return line;
}

}  // namespace epccl::perf
