#include "perf/src/exchange_job.hpp"

#include <algorithm>
#include <optional>

#include "base/settings.hpp"
#include "perf/src/buffers.hpp"
#include "perf/src/exchange.hpp"
#include "perf/src/measure.hpp"
#include "perf/src/output.hpp"
#include "perf/src/report.hpp"
#include "perf/src/session.hpp"
#include "perf/src/wire.hpp"

namespace epccl::perf {
namespace {

/// What a run is to do, known before it joins.
struct Job {
  runtime::LaunchEnv environment;
  Options options;
  std::optional<CountMatrix> matrix;  // of the pattern's file
  RunInfo info;
};

/// One line of the table to be: an exchange of one datatype.
struct Case {
  DataType type;
  CountMatrix counts;
};

std::vector<Case> cases_of(const Job& job) {
  const Options& options = job.options;
  const int ranks = job.environment.ranks;
  std::vector<Case> cases;
  for (const DataType& type : options.datatypes) {
    if (job.matrix && !options.sizes_given) {
      cases.push_back({type, *job.matrix});
      continue;
    }
    for (const uint64_t size : sweep_sizes(options.sweep)) {
      const uint64_t count = pair_count(size, options.per_pair, ranks, type.bytes);
      if (job.matrix) {
        cases.push_back({type, scaled_counts(*job.matrix, count * static_cast<uint64_t>(ranks))});
      } else if (options.pattern.kind == Pattern::Kind::zipf) {
        cases.push_back({type, zipf_counts(ranks, count, options.pattern.exponent)});
      } else {
        cases.push_back({type, uniform_counts(ranks, count)});
      }
    }
  }
  return cases;
}

Row row_of(const Job& job, const Exchange& exchange, const std::vector<int>& node_of,
           const std::string& algorithm, const Measurement& measured) {
  Row row;
  row.type = exchange.type();
  row.ranks = job.environment.ranks;
  row.size = exchange.counts().largest_sent() * row.type.bytes;
  row.count = exchange.counts().largest_sent() / static_cast<uint64_t>(row.ranks);
  row.algorithm = algorithm;
  row.seconds = measured.seconds;
  row.iterations = measured.iterations;
  row.wrong = measured.wrong;
  const uint64_t bytes = busiest_link_bytes(exchange.counts(), row.type.bytes, node_of);
  if (job.options.link_rate && bytes > 0 && row.seconds.median > 0)
    row.wire_fraction = ideal_seconds(bytes, *job.options.link_rate) / row.seconds.median;
  return row;
}

/// Room for the largest case.
struct Memory {
  Buffer input, output;
  std::vector<Registration> registrations;
};

Result<Memory> allocate(const Job& job, const std::vector<Case>& cases, Session& session) {
  uint64_t sent = 0, received = 0;
  for (const Case& each : cases) {
    sent = std::max(sent, each.counts.sent_by(session.rank()) * each.type.bytes);
    received = std::max(received, each.counts.received_by(session.rank()) * each.type.bytes);
  }
  Memory memory;
  EPCCL_ASSIGN(memory.input, Buffer::allocate(sent, job.options.registered));
  EPCCL_ASSIGN(memory.output, Buffer::allocate(received, job.options.registered));
  if (!job.options.registered) return memory;
  for (Communicator& communicator : session.communicators()) {
    for (const Buffer* buffer : {&memory.input, &memory.output}) {
      EPCCL_ASSIGN(Registration registration, Registration::make(communicator, *buffer));
      memory.registrations.push_back(std::move(registration));
    }
  }
  return memory;
}

/// Measures every case on every communicator and adds its row. Collective.
Status measure_cases(const Job& job, const std::vector<Case>& cases, Session& session, Meter& meter,
                     Output& output, std::vector<Row>& rows) {
  const std::vector<int> node_of = session.node_of();
  for (const Case& each : cases) {
    const Exchange exchange(job.options.operation, each.type, each.counts, session.rank());
    for (Communicator& communicator : session.communicators()) {
      EPCCL_ASSIGN(const Measurement measured, meter.run(communicator, exchange));
      rows.push_back(row_of(job, exchange, node_of, communicator.algorithm(), measured));
      output.print(table_row(rows.back()));
    }
  }
  return {};
}

Status measure_all(const Job& job, Session& session, Output& output, std::vector<Row>& rows) {
  const std::vector<Case> cases = cases_of(job);
  EPCCL_ASSIGN(const Memory memory, allocate(job, cases, session));
  Stream stream;
  if (job.options.stream) {
    EPCCL_ASSIGN(stream, Stream::create());
  }
  Meter meter(session.coordinator(), job.options, memory.input, memory.output, stream.get());
  Status status = measure_cases(job, cases, session, meter, output, rows);
  if (!status.ok()) session.abort();  // before the memory goes that unfinished work may still use
  return status;
}

/// Equal on ranks that are about to do the same.
uint64_t fingerprint(const Job& job) {
  std::string text = describe(job.options);
  for (int s = 0; job.matrix && s < job.matrix->ranks(); ++s) {
    for (int d = 0; d < job.matrix->ranks(); ++d) text += fmt::format(" {}", job.matrix->at(s, d));
  }
  return hash_text(text);
}

/// True unless a file was to be written and could not be.
bool write_report(Output& output, RunInfo& info, const std::vector<Row>& rows,
                  const std::vector<std::string>& errors) {
  if (!output.wants_json()) return true;
  info.end_time = time_of_day();
  return output.write_json(json_report(info, rows, errors));
}

/// Runs the job on all ranks and reports it on rank 0.
int run(Job& job, Output& output) {
  std::vector<Row> rows;
  const SessionSettings settings{job.options.timeout, job.options.algorithms};
  auto session = Session::join(job.environment, settings, fingerprint(job));
  Status status;
  if (session.ok()) {
    job.info.ranks = (*session)->ranks();
    job.info.nodes = (*session)->nodes();
    output.print(table_header(job.info));
    status = measure_all(job, **session, output, rows);
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

/// Everything that can be wrong before other ranks are involved. `help`: what --help prints, if it was asked
/// for.
Status prepare(int argc, char** argv, Job& job, std::string& help) {
  EPCCL_ASSIGN(const std::optional<runtime::LaunchEnv> environment, runtime::launch_environment());
  if (environment) job.environment = *environment;
  EPCCL_ASSIGN(CommandLine line, parse_command_line(argc, argv, settings::get("EPCCL_LINK_RATE")));
  help = std::move(line.help);
  if (!help.empty()) return {};
  job.options = std::move(line.options);
  if (job.options.pattern.kind == Pattern::Kind::file) {
    EPCCL_ASSIGN(job.matrix, load_counts(job.options.pattern.path, job.environment.ranks));
  }
  EPCCL_ASSIGN(static_cast<RunFacts&>(job.info), facts_before_joining(argc, argv));
  job.info.options = job.options;
  return {};
}

}  // namespace

int run_exchanges(int argc, char** argv) {
  Job job;
  std::string help;
  const Status status = prepare(argc, argv, job, help);
  if (!status.ok()) {
    complain(job.environment.rank, status);
    return exit_usage;
  }
  if (!help.empty()) {
    if (job.environment.rank == 0) fmt::print("{}\n", help);
    return 0;
  }
  auto output = Output::open(job.environment.rank, job.options.output_file);
  if (!output.ok()) {
    complain(job.environment.rank, output.status());
    return exit_usage;
  }
  return run(job, *output);
}

}  // namespace epccl::perf
