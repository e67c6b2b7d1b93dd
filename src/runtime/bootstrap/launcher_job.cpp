#include "runtime/bootstrap/launcher_job.hpp"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/settings.hpp"

namespace epccl::runtime {
namespace {

// Equal on all ranks of a job, on every node. Those of batch systems, among others, do not tell two jobs of one allocation apart.
constexpr const char* job_variables[] = {"SLURM_JOB_ID",        "SLURM_STEP_ID", "SLURM_RESTART_COUNT",
                                         "PMIX_NAMESPACE",      "PMI_JOBID",     "PBS_JOBID",
                                         "LSB_JOBID",           "JOB_ID",        "OMPI_MCA_ess_base_jobid",
                                         "TORCHELASTIC_RUN_ID", "PRTE_LAUNCHED"};

// Equal on all ranks of a job on one node: some are where the launcher's process there listens. Open MPI makes its job's number of
// its host's name and its process's, which containers have in common; its key for transports is random.
constexpr const char* local_variables[] = {"OMPI_MCA_orte_precondition_transports",
                                           "PMIX_SERVER_URI2",
                                           "PMIX_SERVER_URI3",
                                           "PMIX_SERVER_URI4",
                                           "PMIX_SERVER_URI41",
                                           "PMI_PORT",
                                           "PALS_APID",
                                           "FLUX_JOB_ID",
                                           "FLUX_URI"};

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

/// What tells the jobs of a launcher apart: one of these variables, or a process.
struct Traces {
  std::string_view launcher;
  std::span<const JobId> ids;
  std::span<const std::string_view> processes;
};
constexpr Traces all_traces[] = {
    {"epccl-run", {}, processes_of_epccl},
    {"torchrun", {}, processes_of_torch},
    {"openmpi", ids_of_openmpi, processes_of_openmpi},
    {"mpich",
     {},
     processes_of_hydra},  // it gives its ranks nothing that tells jobs apart, but open descriptors
    {"slurm", ids_of_slurm, processes_of_slurm},
    {"pmi", ids_of_pmi, processes_of_hydra},
    {"pmix", ids_of_pmix, processes_of_pmix},
};

Traces traces_of(const LaunchEnv& env) {
  const auto found = std::ranges::find(all_traces, env.launcher, &Traces::launcher);
  return found != std::end(all_traces) ? *found : Traces{env.launcher, {}, {}};
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

bool is_there(const JobId& id) {
  return is_set(id.variable) && (id.beside == nullptr || is_set(id.beside));
}

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string name;
  std::string start_time;  // clock ticks since boot
};

/// From /proc/PID/stat: "pid (name) state ppid ... starttime(22)". The name may hold anything, even ") ".
bool read_process(pid_t pid, Process& process) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return false;
  process.pid = pid;
  process.name = line.substr(open + 1, close - open - 1);
  std::istringstream rest(line.substr(close + 1));
  std::string field;
  for (int index = 3; index <= 22 && rest >> field; ++index) {
    if (index == 4) process.parent = static_cast<pid_t>(std::atoi(field.c_str()));
    if (index == 22) process.start_time = field;
  }
  return !process.start_time.empty();
}

/// Whether /proc has the numbers that processes have here: it may be that of the PID namespace around this one.
bool proc_has_our_numbers() {
  std::ifstream file("/proc/self/status");
  const std::string own = std::to_string(getpid());
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream numbers(line.substr(6));  // one for each namespace, from /proc's to the process's own
    std::string first, next;
    return numbers >> first && first == own && !(numbers >> next);
  }
  return false;
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
  constexpr size_t most = 64;
  for (pid_t pid = getppid(); pid > 0 && seen.size() < most;) {
    Process process;
    if (!read_process(pid, process)) break;
    if (std::ranges::find(wanted, process.name) != wanted.end())
      return fmt::format("process {} started {} in PID namespace {} of boot {}", pid, process.start_time,
                         name_space.st_ino, first_line("/proc/sys/kernel/random/boot_id"));
    seen.push_back(fmt::format("{} ({})", process.name, pid));
    pid = process.parent;
  }
  if (seen.empty()) return error(Code::invalid_usage, "its parent is in another PID namespace, or hidden");
  return error(Code::invalid_usage, "above it are only {}", fmt::join(seen, ", "));
}

std::string with_variables(std::string text, std::span<const char* const> variables) {
  for (const char* name : variables) {
    if (const char* value = std::getenv(name)) text += fmt::format(", {}={}", name, value);
  }
  return text;
}

std::string common_identity(const LaunchEnv& env) {
  return with_variables(fmt::format("user {}, {} ranks by {}", geteuid(), env.ranks, env.launcher),
                        job_variables);
}

Status nothing_tells(const LaunchEnv& env, const Traces& traces, const Status& no_process) {
  std::vector<std::string> looked_for;
  for (const JobId& id : traces.ids)
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
  if (!process.ok() && std::ranges::none_of(traces.ids, is_there))
    return nothing_tells(env, traces, process.status());
  return fmt::format("{}, {}", with_variables(job_identity(env), local_variables),
                     process.ok() ? *process : "no process");
}

std::string job_identity(const LaunchEnv& env) {
  return fmt::format("{}, key {}", common_identity(env), settings::get("EPCCL_JOB_KEY"));
}

bool on_one_node(const LaunchEnv& env) {
  if (env.nodes > 0) return env.nodes == 1;
  if (env.local_ranks > 0) return env.local_ranks == env.ranks;
  return true;
}

}  // namespace epccl::runtime
