#include "runtime/bootstrap/launcher_job.hpp"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/settings.hpp"
#include "runtime/bootstrap/ancestors.hpp"

namespace epccl::runtime {
namespace {

// What each launcher gives to all ranks of one job alike, whatever brought them to their nodes, and to another job otherwise. Of the
// variables of a batch system that is so where its own launcher started the ranks, or one that sends its environment to all of them
// (Hydra does, unless it is told -genvnone). mpirun and prterun fork the ranks of their own node and have others started by srun, ssh or a batch system's way: some
// ranks have SLURM_STEP_ID then, or SLURM_JOB_ID, or PBS_JOBID, and some have not. The same goes for ranks with torchrun's variables,
// and for those that are started by hand.
constexpr const char* ids_by_torch[] = {"TORCHELASTIC_RUN_ID"};
// What that is without --rdzv-id: in all such jobs. MASTER_ADDR tells more of these apart, but is on each node what was typed there.
constexpr std::string_view no_id_by_torch = "none";
// Open MPI makes its job's number of its host's name and its process's, which containers have in common; its key for transports is
// random.
constexpr const char* ids_by_openmpi[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                          "OMPI_MCA_orte_precondition_transports"};
constexpr const char* ids_by_hydra[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"};
constexpr const char* ids_by_pmi[] = {"PMI_JOBID",    "PALS_APID", "FLUX_JOB_ID", "PMIX_NAMESPACE",
                                      "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID",   "JOB_ID"};
constexpr const char* ids_by_pmix[] = {"PMIX_NAMESPACE"};
// Of ranks that are the tasks of one step.
constexpr const char* ids_of_step[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"};

// Equal on all ranks of a job on one node: some are where the launcher's process there listens.
constexpr const char* local_variables[] = {"PMIX_SERVER_URI2",  "PMIX_SERVER_URI3", "PMIX_SERVER_URI4",
                                           "PMIX_SERVER_URI41", "PMI_PORT",         "PALS_APID",
                                           "FLUX_JOB_ID",       "FLUX_URI"};

/// A variable that is different for each job of a machine, where the one beside it is set, too.
struct JobId {
  const char* variable;
  const char* beside = nullptr;
};

constexpr JobId ids_of_openmpi[] = {
    {"PMIX_NAMESPACE"}, {"OMPI_MCA_ess_base_jobid"}, {"OMPI_MCA_orte_precondition_transports"}};
constexpr JobId ids_of_slurm[] = {{"SLURM_STEP_ID", "SLURM_JOB_ID"}};
constexpr JobId ids_of_pmi[] = {{"PMI_JOBID"}, {"PALS_APID"}, {"FLUX_JOB_ID"}, {"PMIX_NAMESPACE"}};
constexpr JobId ids_of_pmix[] = {{"PMIX_NAMESPACE"}};

// Processes that stand above the ranks of one job and of no other, by what the kernel keeps of their names: 15 characters. Daemons
// that may serve several (orted, prte) are none.
constexpr std::string_view processes_of_epccl[] = {"epccl-run"};
constexpr std::string_view processes_of_torch[] = {"torchrun"};
constexpr std::string_view processes_of_openmpi[] = {"mpirun",  "mpiexec",        "orterun",
                                                     "prterun", "mpirun.openmpi", "mpiexec.openmpi"};
constexpr std::string_view processes_of_hydra[] = {"hydra_pmi_proxy", "pmi_proxy", "mpiexec.hydra",
                                                   "mpiexec.mpich",   "mpiexec",   "mpiexec.gforker",
                                                   "mpirun.mpich",    "mpirun"};
constexpr std::string_view processes_of_slurm[] = {"slurmstepd"};
constexpr std::string_view processes_of_pmix[] = {"prterun", "mpirun"};

/// What tells the jobs of a launcher apart. On one machine: one of `local_ids`, or a process.
struct Traces {
  std::string_view launcher;
  std::span<const char* const> ids = {};
  std::span<const JobId> local_ids = {};
  std::span<const std::string_view> processes = {};
  bool may_be_a_step = false;  // its ranks may be tasks that srun started
};
constexpr Traces all_traces[] = {
    {"epccl-run", {}, {}, processes_of_epccl, true},
    {"torchrun", ids_by_torch, {}, processes_of_torch, true},
    {"openmpi", ids_by_openmpi, ids_of_openmpi, processes_of_openmpi},
    {"mpich", ids_by_hydra, {}, processes_of_hydra},  // else it gives its ranks open descriptors only
    {"slurm", {}, ids_of_slurm, processes_of_slurm, true},
    {"pmi", ids_by_pmi, ids_of_pmi, processes_of_hydra},
    {"pmix", ids_by_pmix, ids_of_pmix, processes_of_pmix},
};

Traces traces_of(const LaunchEnv& env) {
  const auto found = std::ranges::find(all_traces, env.launcher, &Traces::launcher);
  return found != std::end(all_traces) ? *found : Traces{.launcher = env.launcher};
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

bool is_there(const JobId& id) {
  return is_set(id.variable) && (id.beside == nullptr || is_set(id.beside));
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The launcher's process above this one, for ever and for all machines: its number alone means another in each PID namespace and
/// is used again. Without one an error that says what there is.
Result<std::string> launcher_process(std::span<const std::string_view> wanted) {
  if (!proc_has_our_numbers())
    return error(Code::invalid_usage, "/proc is not there, or not that of this process's PID namespace");
  struct stat name_space {};
  if (stat("/proc/self/ns/pid", &name_space) != 0)
    return error(Code::invalid_usage, "/proc/self/ns/pid cannot be read");
  std::vector<std::string> seen;
  for (const Ancestor& each : ancestors()) {
    if (std::ranges::find(wanted, each.name) != wanted.end())
      return fmt::format("process {} started {} in PID namespace {} of boot {}", each.pid, each.start_time,
                         name_space.st_ino, first_line("/proc/sys/kernel/random/boot_id"));
    seen.push_back(fmt::format("{} ({})", each.name, each.pid));
  }
  if (seen.empty()) return error(Code::invalid_usage, "its parent is in another PID namespace, or hidden");
  return error(Code::invalid_usage, "above it are only {}", fmt::join(seen, ", "));
}

/// Whether it says something: what is set but empty does not, here as in launch_env.cpp.
bool is_id(const char* variable) {
  return is_set(variable) &&
         !(variable == std::string_view(ids_by_torch[0]) && std::getenv(variable) == no_id_by_torch);
}

std::string with_variables(std::string text, std::span<const char* const> variables) {
  for (const char* name : variables) {
    if (is_id(name)) text += fmt::format(", {}={}", name, std::getenv(name));
  }
  return text;
}

/// Whether the ranks are the tasks of the Slurm step that this process is of: as many there are of them. A job of several steps, or of
/// steps whose tasks start ranks (torchrun), has more ranks than one of these has tasks. That SLURM_PROCID is the rank is not asked for:
/// a torchrun in each task may number them otherwise, some as the tasks and some not, and all ranks must come to one answer.
bool are_a_step(const LaunchEnv& env) {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return tasks != nullptr && tasks == std::to_string(env.ranks);
}

/// ", NAME=value" for each id that this job has.
std::string ids_of_job(const LaunchEnv& env) {
  const Traces traces = traces_of(env);
  std::string text = with_variables("", traces.ids);
  if (traces.may_be_a_step && are_a_step(env)) text = with_variables(std::move(text), ids_of_step);
  return text;
}

Status nothing_tells(const LaunchEnv& env, const Traces& traces, const Status& no_process) {
  std::vector<std::string> looked_for;
  for (const JobId& id : traces.local_ids)
    looked_for.push_back(id.beside ? fmt::format("{} with {}", id.variable, id.beside) : id.variable);
  const std::string variables =
      looked_for.empty() ? "" : fmt::format("{} is not set, and ", fmt::join(looked_for, " or "));
  return error(
      Code::invalid_usage,
      "rank {}: nothing tells this job of {}'s from others on this machine: {}no process above this one "
      "is {} ({}). Set EPCCL_STORE to a private directory that all ranks of this job share and no other "
      "job does, or EPCCL_COMM_ID to host:port of rank 0, a port for each job",
      env.rank, env.launcher, variables,
      traces.processes.empty() ? "its launcher" : fmt::format("{}", fmt::join(traces.processes, " or ")),
      no_process.message());
}

}  // namespace

Result<std::string> local_job_identity(const LaunchEnv& env) {
  const Traces traces = traces_of(env);
  const auto process = launcher_process(traces.processes);
  if (!process.ok() && std::ranges::none_of(traces.local_ids, is_there))
    return nothing_tells(env, traces, process.status());
  return fmt::format("{}, {}", with_variables(job_identity(env), local_variables),
                     process.ok() ? *process : "no process");
}

std::string job_identity(const LaunchEnv& env) {
  return fmt::format("user {}, {} ranks by {}{}, key {}", geteuid(), env.ranks, env.launcher, ids_of_job(env),
                     settings::get("EPCCL_JOB_KEY"));
}

std::string step_of_job(const LaunchEnv& env) {
  if (!traces_of(env).may_be_a_step || !are_a_step(env) || !is_set("SLURM_JOB_ID") ||
      !is_set("SLURM_STEP_ID"))
    return "";
  return fmt::format("step {} of Slurm's job {}", std::getenv("SLURM_STEP_ID"), std::getenv("SLURM_JOB_ID"));
}

bool is_told_apart(const LaunchEnv& env) {
  return !ids_of_job(env).empty() || !settings::get("EPCCL_JOB_KEY").empty();
}

bool on_one_node(const LaunchEnv& env) {
  if (env.nodes > 0) return env.nodes == 1;
  if (env.local_ranks > 0) return env.local_ranks == env.ranks;
  return true;
}

}  // namespace epccl::runtime
