// The course of a run, whatever it measures: the command line, joining, the table, the JSON file, the exit status.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fnv1a.hpp"
#include "perf/src/for_want_of_memory.hpp"
#include "perf/src/gpu.hpp"
#include "perf/src/output.hpp"
#include "perf/src/session.hpp"

namespace epccl::perf {

/// What is known before the ranks join, and what they find. `Options` begin with MeasuringOptions.
template <class Options, class RunInfo, class Row>
struct JobState {
  runtime::LaunchEnv environment;
  Options options;
  RunInfo info;
  std::vector<Row> rows;
};

/// True unless a file was to be written and could not be.
template <class Job>
bool write_report(Job& job, Output& output, const std::vector<std::string>& errors) {
  if (!output.wants_json()) return true;
  job.info.end_time = time_of_day();
  return output.write_json(json_report(job.info, job.rows, errors));
}

/// Prints a row, and adds it to what the file has: of a run that is killed, too, what it has measured is kept.
template <class Job, class Row>
void add_row(Job& job, Output& output, Row row, const std::string& text) {
  output.print(text);
  job.rows.push_back(std::move(row));
  if (!output.wants_interim_json()) return;
  job.info.end_time = time_of_day();
  output.write_interim_json(json_report(job.info, job.rows, {"the run was not over when this was written"}));
}

/// Runs the job on all ranks and reports it on rank 0.
template <class Job>
int measure_and_report(Job& job, Output& output) {
  Gpu::load_driver(job.options);
  const auto make_gpu_current = [&job](const std::vector<RankInfo>& ranks, int rank) {
    return Gpu::make_current(job.options, ranks, rank).take_status();
  };
  auto session = Session::join(job.environment, {job.options.timeout, job.algorithms(), make_gpu_current},
                               fnv1a64(job.identity()));
  Status status;
  if (session.ok()) {
    job.info.ranks = (*session)->ranks();
    job.info.nodes = (*session)->nodes();
    output.print(table_header(job.info));
    status = with_memory_for("the run", [&] { return job.measure(**session, output); });
    if (status.ok()) status = (*session)->close();
  } else {
    status = std::move(session).take_status();
  }
  if (!status.ok()) {
    if (session.ok()) (*session)->abort();
    complain(job.environment.rank, status);
    write_report(job, output, {status.message()});
    return exit_failed;
  }
  output.print(table_footer(job.info, job.rows));
  const bool written = write_report(job, output, {});
  return written && output.printed() && total_wrong(job.rows) == 0 ? 0 : exit_failed;
}

/// Everything that can be wrong before other ranks are involved. `exit_status`: there is nothing to measure. `is_typed`: what is wrong
/// stands in the command line.
template <class Job>
Status prepare(Job& job, int argc, char** argv, std::optional<int>& exit_status, bool& is_typed) {
  const Result<std::optional<runtime::LaunchEnv>> environment = runtime::launch_environment();
  if (environment.ok() && *environment) job.environment = **environment;
  is_typed = !Job::check_typed(argc, argv).ok();
  EPCCL_ASSIGN(std::string help, job.read(argc, argv));
  if (!help.empty()) {
    exit_status = job.environment.rank != 0 || write_out(help + "\n") ? 0 : exit_failed;
    return {};
  }
  EPCCL_TRY(environment.status());  // only now: --help needs none
  Status ranks = job.check_ranks();
  is_typed = !ranks.ok();
  EPCCL_TRY(std::move(ranks));
  EPCCL_ASSIGN(const bool was_all, job.load());
  if (was_all) {
    exit_status = 0;
    return {};
  }
  EPCCL_ASSIGN(static_cast<RunFacts&>(job.info), facts_before_joining(argc, argv));
  job.info.options = job.options;
  job.info.device = job.options.device;
  job.info.ranks_per_gpu = job.options.ranks_per_gpu;
  return {};
}

/// The process's exit status. Beside what JobState has, a Job has
///   Result<std::string> read(argc, argv)         the command line into `options`; the text of --help, if it is asked for
///   static Status check_typed(argc, argv)        the same of the command line alone, whatever the environment has
///   Status check_ranks() const                   what is wrong with it for so many ranks
///   Result<bool> load()                          what files they name; true: that was all
///   std::vector<std::string> algorithms() const  a communicator for each
///   std::string identity() const                 what must be equal on all ranks
///   Status measure(Session&, Output&)            collective; adds to `rows`, by add_row()
/// and its results have table_header(), table_footer(), json_report() and total_wrong().
template <class Job>
int run_job(Job& job, int argc, char** argv) {
  std::optional<int> exit_status;
  bool is_typed = false;
  const Status status = prepare(job, argc, argv, exit_status, is_typed);
  if (!status.ok()) {
    // What was typed is the same on all ranks: one of them says what is wrong with it. Of its environment and its files each speaks.
    if (job.environment.rank == 0 || !is_typed) complain(job.environment.rank, status);
    return exit_usage;
  }
  if (exit_status) return *exit_status;
  auto output = Output::open(job.environment.rank, job.options.output_file);
  if (!output.ok()) {
    complain(job.environment.rank, output.status());
    return exit_usage;
  }
  return measure_and_report(job, *output);
}

}  // namespace epccl::perf
