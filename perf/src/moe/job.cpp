#include "perf/src/moe/job.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/settings.hpp"
#include "perf/src/moe/count_file.hpp"
#include "perf/src/moe/measure.hpp"
#include "perf/src/moe/overlap_meter.hpp"
#include "perf/src/moe/report.hpp"
#include "perf/src/output.hpp"
#include "perf/src/session.hpp"
#include "perf/src/wire.hpp"

namespace epccl::perf::moe {
namespace {

/// What a run is to do, known before it joins.
struct Job {
  runtime::LaunchEnv environment;
  Options options;
  std::unique_ptr<Routing> routing;
  uint64_t trace_hash = 0;
  RunInfo info;
};

/// Reads the trace, and takes from it what the command line leaves open.
Status load_trace(Job& job) {
  Options& options = job.options;
  const int ranks = options.matrix ? options.matrix->ranks : job.environment.ranks;
  EPCCL_ASSIGN(RoutingTrace trace,
               RoutingTrace::load(options.shape.routing.path, options.trace, ranks, options.shape.experts));
  if (options.shape.topk != 0 && options.shape.topk != trace.topk())
    return error(Code::invalid_argument, "--topk {}: the trace has {}", options.shape.topk, trace.topk());
  options.shape.topk = trace.topk();
  options.trace = {trace.step(), trace.layer()};
  if (options.tokens.empty()) options.tokens = {trace.most_tokens()};
  const uint32_t most = *std::max_element(options.tokens.begin(), options.tokens.end());
  if (most > trace.most_tokens())
    return error(Code::invalid_argument, "--tokens {}: no rank of the trace has more than {}", most,
                 trace.most_tokens());
  job.trace_hash = trace.hash();
  job.routing = std::make_unique<RoutingTrace>(std::move(trace));
  return {};
}

Status load_routing(Job& job) {
  const Shape& shape = job.options.shape;
  if (shape.routing.kind == RoutingRule::Kind::trace) return load_trace(job);
  job.routing = make_routing(shape.routing, shape.experts, shape.topk, job.options.seed);
  return {};
}

uint32_t most_tokens(const Options& options) {
  return *std::max_element(options.tokens.begin(), options.tokens.end());
}

/// A group and its handle for each strategy, in the options' order.
class Strategies {
 public:
  static Result<Strategies> create(const Options& options, Communicator& communicator, epcclStream_t stream) {
    Strategies made;
    for (const epcclEpStrategy_t strategy : options.strategies) {
      epcclEpGroupConfig_t config = EPCCL_EP_GROUP_CONFIG_INIT;
      config.num_experts = options.shape.experts;
      config.max_send_tokens_per_rank = most_tokens(options);
      config.max_token_bytes = std::max(options.dispatched_token_bytes(), options.combined_token_bytes());
      config.strategy = strategy;
      EPCCL_ASSIGN(EpGroup group, EpGroup::create(communicator, config));
      made.groups_.push_back(std::make_unique<EpGroup>(std::move(group)));
      EPCCL_ASSIGN(EpHandle handle, EpHandle::create(*made.groups_.back(), options.layout,
                                                     options.fixed ? options.shape.topk : 0, stream));
      made.handles_.push_back(std::move(handle));
    }
    return made;
  }

  EpHandle& handle(size_t index) { return handles_[index]; }

 private:
  std::vector<std::unique_ptr<EpGroup>> groups_;  // handles keep their addresses
  std::vector<EpHandle> handles_;                 // destroyed before their groups
};

/// Bytes of all ranks, by what the library counts ...
LinkBytes measured_bytes(const Options& options, const epcclEpStats_t& stats) {
  return {stats.dispatch_bytes_local, stats.dispatch_bytes_node,
          (options.dispatches() ? stats.dispatch_bytes_network : 0) +
              (options.combines() ? stats.combine_bytes_network : 0)};
}

/// Bytes of a row, over the directions that the operation takes.
uint64_t bytes_both_ways(const Options& options) {
  return (options.dispatches() ? options.dispatch_row_bytes() : 0) +
         (options.combines() ? options.combine_row_bytes() : 0);
}

/// ... and by the routing.
LinkBytes expected_bytes(const Options& options, const Case& of, const Placement& placement,
                         epcclEpStrategy_t used) {
  const LinkRows rows = link_rows(of.tables, placement, used, options.layout);
  return {rows.local * options.dispatch_row_bytes(), rows.node * options.dispatch_row_bytes(),
          rows.network * bytes_both_ways(options)};
}

/// The share of the time that the busiest link needs at least. A combine takes the ways of its dispatch back:
/// what one sends, the other receives, and the busiest link is as busy.
std::optional<double> wire_fraction(const Options& options, const Case& of, const Placement& placement,
                                    const Row& row) {
  const uint64_t rows =
      busiest_link_bytes(network_rows(of.tables, placement, row.used), 1, placement.node_of());
  if (!options.link_rate || rows == 0 || row.seconds.median <= 0) return std::nullopt;
  return ideal_seconds(rows * bytes_both_ways(options), *options.link_rate) / row.seconds.median;
}

Row row_of(const Options& options, const Case& of, const Placement& placement, epcclEpStrategy_t asked,
           const Measurement& measured) {
  Row row;
  row.asked = asked;
  row.used = measured.stats.strategy;
  row.tokens = of.tokens;
  for (const TopkTable& table : of.tables) row.total_tokens += table.tokens;
  const uint64_t copy_bytes = (options.dispatches() ? options.dispatched_token_bytes() : 0) +
                              (options.combines() ? options.combined_token_bytes() : 0);
  row.bytes_per_rank = total_entries(of.tables) * copy_bytes / static_cast<uint64_t>(placement.ranks());
  row.seconds = measured.seconds;
  row.dispatch = measured.dispatch;
  row.combine = measured.combine;
  row.update = measured.update;
  row.fresh = measured.fresh;
  row.iterations = measured.iterations;
  row.bytes = measured_bytes(options, measured.stats);
  row.expected = expected_bytes(options, of, placement, row.used);
  row.imbalance = imbalance(of.copies);
  row.wire_fraction = wire_fraction(options, of, placement, row);
  row.wrong = measured.wrong;
  return row;
}

/// The measurements of a run that has joined.
class Measuring {
 public:
  Measuring(const Options& options, const Routing& routing, Session& session)
      : options_(options), session_(session), placement_(session.node_of(), options.shape.experts) {
    for (const uint32_t tokens : options.tokens) {
      cases_.push_back(
          Case::make(options, routing, placement_, session.rank(), tokens, most_tokens(options)));
    }
  }

  /// Adds a row for every case and strategy, and prints it. Collective.
  Status run(const Output& output, std::vector<Row>& rows) {
    EPCCL_ASSIGN(Memory memory, Memory::allocate(options_, cases_, session_.rank()));
    if (options_.registered) EPCCL_TRY(memory.register_with(communicator()));
    Stream stream;
    if (options_.stream) {
      EPCCL_ASSIGN(stream, Stream::create());
    }
    Status status = measure(memory, stream.get(), output, rows);
    if (!status.ok()) session_.abort();  // before the memory goes that unfinished work may still use
    return status;
  }

 private:
  Communicator& communicator() { return session_.communicators().front(); }

  Status measure(Memory& memory, epcclStream_t stream, const Output& output, std::vector<Row>& rows) {
    EPCCL_ASSIGN(Strategies strategies, Strategies::create(options_, communicator(), stream));
    Meter meter(session_.coordinator(), options_);
    for (const Case& each : cases_) {
      Exchange exchange(options_, placement_, each, memory, session_.rank());
      for (size_t i = 0; i < options_.strategies.size(); ++i) {
        const epcclEpStrategy_t strategy = options_.strategies[i];
        const std::string title =
            fmt::format("{} {} {} tokens", to_string(options_.operation), to_string(strategy), each.tokens);
        EPCCL_ASSIGN(const Measurement measured, meter.run(strategies.handle(i), exchange, title));
        Row row = row_of(options_, each, placement_, strategy, measured);
        if (options_.overlap) EPCCL_TRY(measure_overlap(strategies.handle(i), exchange, title, row));
        rows.push_back(std::move(row));
        output.print(table_row(options_, rows.back()));
      }
    }
    return {};
  }

  Status measure_overlap(EpHandle& handle, Exchange& exchange, const std::string& title, Row& row) {
    OverlapMeter meter(session_.coordinator(), options_);
    EPCCL_ASSIGN(const OverlapMeasurement measured, meter.run(handle, exchange, row.seconds.median, title));
    row.overlap = measured.overlap;
    if (row.wrong) *row.wrong += measured.wrong.value_or(0);
    return {};
  }

  const Options& options_;
  Session& session_;
  const Placement placement_;
  std::vector<Case> cases_;
};

/// True unless a file was to be written and could not be.
bool write_report(Output& output, RunInfo& info, const std::vector<Row>& rows,
                  const std::vector<std::string>& errors) {
  if (!output.wants_json()) return true;
  info.end_time = time_of_day();
  return output.write_json(json_report(info, rows, errors));
}

/// Runs the job on all ranks and reports it on rank 0.
int measure_and_report(Job& job, Output& output) {
  std::vector<Row> rows;
  const uint64_t fingerprint = hash_text(describe(job.options) + fmt::format(" trace {}", job.trace_hash));
  auto session = Session::join(job.environment, {job.options.timeout, {"auto"}}, fingerprint);
  Status status;
  if (session.ok()) {
    job.info.ranks = (*session)->ranks();
    job.info.nodes = (*session)->nodes();
    output.print(table_header(job.info));
    status = Measuring(job.options, *job.routing, **session).run(output, rows);
    if (status.ok()) status = (*session)->close();
  } else {
    status = std::move(session).take_status();
  }
  if (!status.ok()) {
    if (session.ok()) (*session)->abort();
    complain(job.environment.rank, status);
    write_report(output, job.info, rows, {status.message()});
    return exit_failed;
  }
  output.print(table_footer(job.info, rows));
  const bool written = write_report(output, job.info, rows, {});
  return written && total_wrong(rows) == 0 ? 0 : exit_failed;
}

/// The counts alone: there is one node, and no rank of it but this process.
Status write_matrix(const Job& job) {
  const MatrixRequest& request = *job.options.matrix;
  if (job.environment.rank != 0) return {};
  const Placement placement(std::vector<int>(static_cast<size_t>(request.ranks)), job.options.shape.experts);
  const auto tables = all_tables(*job.routing, request.ranks, job.options.tokens.front());
  return write_counts(token_copies(tables, placement, request.copies), request.file);
}

/// Everything that can be wrong before other ranks are involved. `help`: what --help prints, if it was asked
/// for.
Status prepare(int argc, char** argv, Job& job, std::string& help) {
  EPCCL_ASSIGN(const std::optional<runtime::LaunchEnv> environment, runtime::launch_environment());
  if (environment) job.environment = *environment;
  EPCCL_ASSIGN(CommandLine line, parse_command_line(argc, argv, settings::get("EPCCL_LINK_RATE")));
  help = std::move(line.help);
  if (!help.empty()) return {};
  job.options = std::move(line.options);
  if (job.options.overlap) EPCCL_TRY(ExpertCompute::available());
  EPCCL_TRY(load_routing(job));
  if (job.options.matrix) return write_matrix(job);
  EPCCL_ASSIGN(static_cast<RunFacts&>(job.info), facts_before_joining(argc, argv));
  job.info.options = job.options;
  job.info.blas = ExpertCompute::library();
  return {};
}

}  // namespace

int run(int argc, char** argv) {
  Job job;
  std::string help;
  const Status status = prepare(argc, argv, job, help);
  if (!status.ok()) {
    complain(job.environment.rank, status);
    return exit_usage;
  }
  if (!help.empty() || job.options.matrix) {
    if (!help.empty() && job.environment.rank == 0) fmt::print("{}\n", help);
    return 0;
  }
  auto output = Output::open(job.environment.rank, job.options.output_file);
  if (!output.ok()) {
    complain(job.environment.rank, output.status());
    return exit_usage;
  }
  return measure_and_report(job, *output);
}

}  // namespace epccl::perf::moe
