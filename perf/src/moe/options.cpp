#include "perf/src/moe/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "perf/src/moe/token_data.hpp"
#include "perf/src/names.hpp"
#include "perf/src/operation_first.hpp"

namespace epccl::perf::moe {
namespace {

constexpr uint32_t default_tokens = 128;
constexpr long largest = std::numeric_limits<long>::max() - 1;  // what is larger is read as one more
constexpr long most_tokens = 1L << 26, most_experts = 1L << 20, most_hidden = 1L << 20, most_slots = 1L << 14;

/// What is typed, before it means anything.
struct Typed {
  std::string operation, tokens, shape, type = "bfloat16", routing, layout = "flat", strategy = "auto",
                                        matrix, copies = "rank";
  long hidden = 0, experts = 0, topk = 0, ranks = 0, slots = 0;
  long seed = 1, step = 0, layer = 0;
  bool fp8 = false, fixed = false, undefined_padding = false, weights = false, sockets = false;
  CLI::Option *slots_option = nullptr, *hidden_option = nullptr, *experts_option = nullptr,
              *topk_option = nullptr, *ranks_option = nullptr, *copies_option = nullptr,
              *step_option = nullptr, *layer_option = nullptr;
};

void add_shape_options(CLI::App& app, Typed& typed) {
  app.add_option(
         "--tokens", typed.tokens,
         fmt::format(
             "Tokens of a rank; several, separated by commas, are a row each (default {}, or those of "
             "the trace)",
             default_tokens))
      ->option_text("N[,N...]");
  app.add_option("--shape", typed.shape,
                 "Experts, top-k, hidden size and routing of a model, by name; see below")
      ->option_text("NAME");
  typed.hidden_option = app.add_option("--hidden", typed.hidden, "Elements of a token (default 2048)");
  typed.experts_option = app.add_option("--experts", typed.experts, "Experts of all ranks (default 64)");
  typed.topk_option = app.add_option("--topk", typed.topk, "Experts of a token (default 8, or the trace's)");
  for (CLI::Option* option : {typed.hidden_option, typed.experts_option, typed.topk_option})
    option->option_text("N");
  app.add_option(
         "--routing", typed.routing,
         "uniform, zipf:<exponent>, groups:<chosen>/<groups>, hot:<experts>, trace:<path> (default uniform)")
      ->option_text("RULE");
  typed.step_option =
      app.add_option("--trace-step", typed.step, "Step of the trace (default: its first record's)");
  typed.layer_option = app.add_option("--trace-layer", typed.layer, "Layer of the trace (likewise)");
  for (CLI::Option* option : {typed.step_option, typed.layer_option}) option->option_text("N");
  typed.slots_option = app.add_option(
      "--slots", typed.slots,
      "Slots of a rank: experts and copies of those that have most to do, as epcclEpPlaceExperts places them "
      "for this routing (default: each expert once, in blocks)");
  typed.slots_option->option_text("N");
  app.add_option("--seed", typed.seed, "Of the routing (default 1)")->option_text("N");
}

void add_call_options(CLI::App& app, Typed& typed) {
  app.add_option("-d,--type,--datatype", typed.type, "bfloat16, float16 or float32 (default bfloat16)")
      ->option_text("TYPE");
  app.add_flag("--fp8", typed.fp8,
               "Dispatch as FP8 with a scale for each 128 elements; combine stays --type");
  app.add_flag("--weights", typed.weights,
               "Dispatch top-k weights too; an expert-major combine is then weighted by them");
  app.add_option("--layout", typed.layout,
                 "Of the received rows: flat, expert-major or rank-major (default flat)")
      ->option_text("NAME");
  app.add_flag("--static", typed.fixed,
               "Static mode: all sizes from the largest of --tokens; with --layout rank-major, or "
               "expert-major, where every expert has room for all tokens of all ranks");
  app.add_flag("--undefined-padding", typed.undefined_padding,
               "With --static and expert-major: rows that only pad are not cleared");
  app.add_option("--ep-strategy", typed.strategy,
                 "flat, gather, dedup, auto, several of them separated by commas, or all (default auto)")
      ->option_text("NAMES");
  app.add_flag("--overlap-sockets", typed.sockets,
               "With --overlap, two ranks on two nodes: also the same bytes by one bare TCP socket");
}

void add_matrix_options(CLI::App& app, Typed& typed) {
  app.add_option(
         "--write-matrix", typed.matrix,
         "Run nothing; write how many tokens each rank sends to each, a line for every source, to this file")
      ->option_text("FILE");
  typed.ranks_option = app.add_option("--ranks", typed.ranks, "Ranks of that matrix");
  typed.ranks_option->option_text("N");
  typed.copies_option = app.add_option(
      "--copies", typed.copies, "A token goes once to each expert, or once to each rank (default rank)");
  typed.copies_option->option_text("expert|rank");
}

Status set_tokens(const Typed& typed, Options& options) {
  if (typed.tokens.empty()) {
    if (options.shape.routing.kind != RoutingRule::Kind::trace) options.tokens = {default_tokens};
    return {};
  }
  for (const std::string_view part : split(typed.tokens)) {
    uint32_t tokens = 0;
    const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), tokens);
    const bool number = code == std::errc() && end == part.data() + part.size();
    if (!number || tokens == 0 || tokens > most_tokens) {
      return error(Code::invalid_argument, "--tokens {}: want numbers from 1 to {}, separated by commas",
                   typed.tokens, most_tokens);
    }
    options.tokens.push_back(tokens);
  }
  return {};
}

/// The named shape, and what else is typed in place of its parts.
Status set_shape(const Typed& typed, Options& options) {
  Shape& shape = options.shape;
  options.shape_name = typed.shape;
  if (!typed.shape.empty()) {
    EPCCL_ASSIGN(shape, find_shape(typed.shape));
  }
  const auto replace = [](const CLI::Option* option, const char* name, long value, long most,
                          uint32_t& part) -> Status {
    if (option->count() == 0) return {};
    EPCCL_TRY(check_range(name, value, 1, most));
    part = static_cast<uint32_t>(value);
    return {};
  };
  EPCCL_TRY(replace(typed.hidden_option, "--hidden", typed.hidden, most_hidden, shape.hidden));
  EPCCL_TRY(replace(typed.experts_option, "--experts", typed.experts, most_experts, shape.experts));
  EPCCL_TRY(replace(typed.slots_option, "--slots", typed.slots, most_slots, options.slots));
  if (!typed.routing.empty()) {
    EPCCL_ASSIGN(shape.routing, parse_routing(typed.routing));
  }
  const bool traced = shape.routing.kind == RoutingRule::Kind::trace;
  if (traced && typed.topk_option->count() == 0) shape.topk = 0;  // the trace knows
  EPCCL_TRY(replace(typed.topk_option, "--topk", typed.topk, EPCCL_EP_MAX_TOPK, shape.topk));
  EPCCL_TRY(check_range("--trace-step", typed.step, -largest, largest));
  EPCCL_TRY(check_range("--trace-layer", typed.layer, -largest, largest));
  if (typed.step_option->count() > 0) options.trace.step = typed.step;
  if (typed.layer_option->count() > 0) options.trace.layer = typed.layer;
  if (!traced && (options.trace.step || options.trace.layer))
    return error(Code::invalid_argument, "--trace-step and --trace-layer need --routing trace:<path>");
  return check_routing(shape.routing, shape.experts, shape.topk);
}

Status set_calls(const Typed& typed, Options& options) {
  const auto name_of = [](auto value) { return to_string(value); };
  const auto types = parse_datatypes(typed.type);
  const auto known = {epcclBfloat16, epcclFloat16, epcclFloat32};
  const bool one = types.ok() && types->size() == 1;
  if (!one || std::find(known.begin(), known.end(), types->front().id) == known.end())
    return error(Code::invalid_argument, "--type {}: want bfloat16, float16 or float32", typed.type);
  options.type = types->front();
  options.fp8 = typed.fp8;
  options.beside_sockets = typed.sockets;
  options.weights = typed.weights;
  EPCCL_TRY(check_range("--seed", typed.seed, 0, largest));
  options.seed = static_cast<uint64_t>(typed.seed);
  EPCCL_ASSIGN(options.layout, find_name("--layout", typed.layout,
                                         {Layout::flat, Layout::expert_major, Layout::rank_major}, name_of));
  options.fixed = typed.fixed;
  if (options.fixed && options.layout == Layout::flat)
    return Status(Code::invalid_argument,
                  "--static needs --layout rank-major or expert-major, whose sizes are fixed");
  options.undefined_padding = typed.undefined_padding;
  if (options.undefined_padding && (!options.fixed || options.layout != Layout::expert_major))
    return Status(Code::invalid_argument, "--undefined-padding is for --static --layout expert-major");
  const auto strategies = {EPCCL_EP_STRATEGY_FLAT, EPCCL_EP_STRATEGY_GATHER, EPCCL_EP_STRATEGY_DEDUP,
                           EPCCL_EP_STRATEGY_AUTO};
  EPCCL_ASSIGN(options.strategies,
               parse_names<epcclEpStrategy_t>("--ep-strategy", typed.strategy, strategies, name_of));
  return {};
}

Status set_matrix(const Typed& typed, Options& options) {
  if (typed.matrix.empty()) {
    if (typed.ranks_option->count() + typed.copies_option->count() == 0) return {};
    return error(Code::invalid_argument,
                 "--ranks and --copies are for --write-matrix: a run has its launcher's ranks");
  }
  if (typed.ranks_option->count() == 0)
    return error(Code::invalid_argument, "--write-matrix: give the --ranks");
  EPCCL_TRY(check_range("--ranks", typed.ranks, 1, 100'000));
  if (typed.copies != "expert" && typed.copies != "rank")
    return error(Code::invalid_argument, "--copies {}: want expert or rank", typed.copies);
  if (options.tokens.size() > 1)
    return error(Code::invalid_argument, "--write-matrix: one number of --tokens, not {}",
                 options.tokens.size());
  options.matrix = MatrixRequest{typed.matrix, static_cast<int>(typed.ranks),
                                 typed.copies == "expert" ? Copies::expert : Copies::rank};
  return {};
}

Status check_overlap(const Typed& typed, const Options& options) {
  if (options.overlap && !typed.matrix.empty())
    return error(Code::invalid_argument, "--overlap measures, --write-matrix runs nothing");
  if (options.beside_sockets && !options.overlap)
    return error(Code::invalid_argument, "--overlap-sockets needs --overlap");
  return {};
}

Result<Options> options_of(const Typed& typed, const MeasuringFlags& measuring,
                           const std::string& environment_rate) {
  Options options;
  options.operation = parse_operation(typed.operation).value_or(Operation::moe);
  EPCCL_TRY(measuring.read(environment_rate, options));
  EPCCL_TRY(set_shape(typed, options));
  EPCCL_TRY(set_tokens(typed, options));
  EPCCL_TRY(set_calls(typed, options));
  if (options.graph_launches > 0 && !options.fixed)
    return error(Code::invalid_argument,
                 "--graph: only dispatch and combine of --static can be captured, whose sizes are fixed");
  EPCCL_TRY(set_matrix(typed, options));
  EPCCL_TRY(check_overlap(typed, options));
  return options;
}

/// The command line, what of it goes where, and what is typed.
struct Grammar {
  Typed typed;
  MeasuringFlags measuring{true, false};
  CLI::App app{
      "Times and checks the way of tokens to their experts (dispatch), back (combine), or both (moe). Start "
      "it on "
      "every\nrank: under epccl-run, torchrun, srun or mpirun; alone it is a communicator of one rank.",
      "epccl-perf"};
  Grammar();
};

Grammar::Grammar() {
  app.add_option("operation", typed.operation, "dispatch, combine or moe")
      ->required()
      ->option_text("OPERATION");
  add_shape_options(app, typed);
  add_call_options(app, typed);
  measuring.add_to(app);
  add_matrix_options(app, typed);
  app.set_version_flag("--version", "epccl-perf " EPCCL_VERSION_STRING);
  app.footer(help_footer());
}

}  // namespace

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::dispatch:
      return "dispatch";
    case Operation::combine:
      return "combine";
    default:
      return "moe";
  }
}

std::optional<Operation> parse_operation(std::string_view text) {
  for (const Operation operation : {Operation::dispatch, Operation::combine, Operation::moe}) {
    if (text == to_string(operation)) return operation;
  }
  return std::nullopt;
}

uint64_t Options::dispatched_token_bytes() const {
  return fp8 ? shape.hidden + scales_of(shape.hidden) * sizeof(float) : combined_token_bytes();
}

uint64_t Options::dispatch_row_bytes() const {
  return dispatched_token_bytes() + (weights ? shape.topk * sizeof(float) : 0);
}

const char* type_name(const DataType& type) {
  if (type.id == epcclFloat16) return "float16";
  return type.id == epcclFloat32 ? "float32" : type.name;
}

std::string describe(const Options& o) {
  const bool traced = o.shape.routing.kind == RoutingRule::Kind::trace;  // its path may differ
  std::string text = fmt::format(
      "{} hidden {} experts {} topk {} routing {} seed {} type {} fp8 {} weights {} layout {} static {}{} ",
      to_string(o.operation), o.shape.hidden, o.shape.experts, o.shape.topk,
      traced ? "trace" : to_string(o.shape.routing), o.seed, type_name(o.type), o.fp8, o.weights,
      to_string(o.layout), o.fixed, o.undefined_padding ? " undefined padding" : "");
  text += perf::describe(static_cast<const MeasuringOptions&>(o));
  if (o.slots > 0) text += fmt::format(" slots {}", o.slots);
  if (o.beside_sockets) text += " sockets";
  for (const uint32_t tokens : o.tokens) text += fmt::format(" {}", tokens);
  for (const epcclEpStrategy_t strategy : o.strategies) text += fmt::format(" {}", to_string(strategy));
  return text;
}

void add_value_names(ValueNames& names) {
  names.add(Grammar().app);
}

Result<CommandLine> parse_command_line(int argc, const char* const* argv,
                                       const std::string& environment_rate) {
  CommandLine line;
  Grammar grammar;
  auto& [typed, measuring, app] = grammar;
  const std::vector<const char*> words = operation_first(argc, argv);
  const std::string hint = std::string(words.size() > 1 ? words[1] : "moe") + " --help";
  EPCCL_ASSIGN(line.help, parse_arguments(app, words, hint));
  if (!line.help.empty()) return line;
  EPCCL_ASSIGN(line.options, options_of(typed, measuring, environment_rate));
  return line;
}

}  // namespace epccl::perf::moe
