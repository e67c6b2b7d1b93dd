#include "runtime/bootstrap/launcher_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/settings.hpp"

namespace epccl::runtime {
namespace {

constexpr const char* job_id_variables[] = {
    "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE",          "PMI_JOBID",           "PBS_JOBID",
    "LSB_JOBID",    "JOB_ID",        "OMPI_MCA_ess_base_jobid", "TORCHELASTIC_RUN_ID", "PRTE_LAUNCHED"};

// Processes that stand right above the ranks on every node. A rank started through a shell or a profiler has
// those in between.
constexpr std::string_view launcher_processes[] = {
    "hydra_pmi_proxy", "mpiexec.hydra", "mpirun",     "mpiexec",  "orterun",   "orted",        "prte",
    "prterun",         "prted",         "slurmstepd", "torchrun", "epccl-run", "mpiexec.mpich"};

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

/// The nearest ancestor that is a launcher; the parent where there is none.
Process launcher_process() {
  Process parent;
  read_process(getppid(), parent);
  Process candidate = parent;
  for (int steps = 0; steps < 32 && candidate.pid > 1; ++steps) {
    if (std::find(std::begin(launcher_processes), std::end(launcher_processes), candidate.name) !=
        std::end(launcher_processes))
      return candidate;
    Process next;
    if (!read_process(candidate.parent, next)) break;
    candidate = std::move(next);
  }
  return parent;
}

std::string common_identity(const LaunchEnv& env) {
  std::string text = fmt::format("user {}, {} ranks by {}", geteuid(), env.ranks, env.launcher);
  for (const char* name : job_id_variables) {
    if (const char* value = std::getenv(name)) text += fmt::format(", {}={}", name, value);
  }
  return text;
}

}  // namespace

std::string local_job_identity(const LaunchEnv& env) {
  const Process launcher = launcher_process();
  return fmt::format("{}, process {} started {}", common_identity(env), launcher.pid, launcher.start_time);
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
