#include "runtime/bootstrap/launch_env.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "runtime/bootstrap/ancestors.hpp"

namespace epccl::runtime {
namespace {

/// The variables of one launcher; nullptr where it has none.
struct Launcher {
  const char* name;
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* local_ranks;
  const char* nodes;
  const char* also;  // must be set too, for names that others use as well
};

// In this order: mpirun inside a Slurm allocation starts its daemons by srun, whose variables the ranks inherit.
constexpr Launcher launchers[] = {
    {"epccl-run", "EPCCL_RANK", "EPCCL_WORLD_SIZE", "EPCCL_LOCAL_RANK", nullptr, nullptr, nullptr},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr, "MASTER_ADDR"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr},
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, "MPI_LOCALRANKID"},
    // Of a batch script Slurm says that it is task 0 of SLURM_NTASKS, too; the size of a step is told to what srun started.
    {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_STEP_NUM_NODES",
     nullptr},
    {"pmi", "PMI_RANK", "PMI_SIZE", nullptr, nullptr, nullptr, nullptr},
    {"pmix", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE", nullptr, nullptr},
};

const char* variable(const char* name) {
  const char* value = name ? std::getenv(name) : nullptr;
  return value && *value ? value : nullptr;
}

Result<int> number(const Launcher& launcher, const char* name) {
  const std::string_view text = variable(name);
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < 0)
    return error(Code::invalid_usage, "environment of {}: {}=\"{}\" is not a number", launcher.name, name,
                 text);
  return value;
}

Status read_optional(const Launcher& launcher, const char* name, int& into) {
  if (!variable(name)) return {};
  EPCCL_ASSIGN(into, number(launcher, name));
  return {};
}

Result<LaunchEnv> read(const Launcher& launcher) {
  for (const auto& [present, absent] :
       {std::pair(launcher.rank, launcher.ranks), std::pair(launcher.ranks, launcher.rank)}) {
    if (variable(present) && !variable(absent))
      return error(Code::invalid_usage, "environment of {}: {} is set but {} is not", launcher.name, present,
                   absent);
  }
  LaunchEnv env;
  env.launcher = launcher.name;
  EPCCL_ASSIGN(env.rank, number(launcher, launcher.rank));
  EPCCL_ASSIGN(env.ranks, number(launcher, launcher.ranks));
  if (env.rank >= env.ranks)
    return error(Code::invalid_usage, "environment of {}: {}={} is not below {}={}", launcher.name,
                 launcher.rank, env.rank, launcher.ranks, env.ranks);
  EPCCL_TRY(read_optional(launcher, launcher.local_rank, env.local_rank));
  EPCCL_TRY(read_optional(launcher, launcher.local_ranks, env.local_ranks));
  EPCCL_TRY(read_optional(launcher, launcher.nodes, env.nodes));
  if (variable("MASTER_ADDR") && variable("MASTER_PORT")) {
    const std::string host = variable("MASTER_ADDR");
    const bool literal_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
    env.rendezvous = fmt::format("{}{}{}:{}", literal_ipv6 ? "[" : "", host, literal_ipv6 ? "]" : "",
                                 variable("MASTER_PORT"));
  }
  return env;
}

/// A batch script that a task submits (sbatch) has all variables of the task, and is none: what stands above it says so.
bool is_in_batch_script() {
  if (!proc_has_our_numbers()) return false;
  for (const Ancestor& each : ancestors())
    if (each.name == "slurmstepd") return title_of(each.pid).find(".batch]") != std::string::npos;
  return false;
}

bool complete(const Launcher& launcher) {
  if (launcher.also && !variable(launcher.also)) return false;
  if (!variable(launcher.rank) || !variable(launcher.ranks)) return false;
  return std::string_view(launcher.name) != "slurm" || !is_in_batch_script();
}

bool present(const Launcher& launcher) {
  if (complete(launcher)) return true;
  if (launcher.also && !variable(launcher.also)) return false;
  // A batch script of Slurm's has a rank. PMIx servers need not put the size into the environment, and PMI_SIZE alone says
  // nothing; one of the two is a contradiction only where the launcher is known to set both, and nobody else either.
  const std::string_view name = launcher.name;
  if (name == "slurm" || name.starts_with("pmi")) return false;
  if (!variable(launcher.rank) && !variable(launcher.ranks)) return false;
  // Batch scripts of Slurm set WORLD_SIZE beside MASTER_ADDR, for programs that take their rank from SLURM_PROCID.
  return name != "torchrun" || std::ranges::none_of(launchers, complete);
}

/// Where torchrun's variables make this another rank than the task of Slurm's that it is, and may be left over from a process that
/// all tasks come from. Ranks that torchrun starts in a task are at least as many as there are tasks, and may be numbered otherwise.
Result<std::string> contradiction_of(const LaunchEnv& env) {
  const auto* slurm = std::ranges::find(launchers, std::string_view("slurm"), &Launcher::name);
  if (env.launcher != "torchrun" || !complete(*slurm)) return std::string();
  EPCCL_ASSIGN(const int task, number(*slurm, slurm->rank));
  EPCCL_ASSIGN(const int tasks, number(*slurm, slurm->ranks));
  if (env.ranks > tasks || tasks == 1 || (env.rank == task && env.ranks == tasks)) return std::string();
  return fmt::format(
      "RANK={} and WORLD_SIZE={} went before SLURM_PROCID={} and {}={}: where all tasks have one RANK, unset "
      "it and WORLD_SIZE before srun",
      env.rank, env.ranks, task, slurm->ranks, tasks);
}

}  // namespace

Result<std::optional<LaunchEnv>> launch_environment() {
  for (const Launcher& launcher : launchers) {
    if (!present(launcher)) continue;
    EPCCL_ASSIGN(LaunchEnv env, read(launcher));
    if (auto contradiction = contradiction_of(env); contradiction.ok())
      env.contradiction = *std::move(contradiction);
    return std::optional(std::move(env));
  }
  // Each rank would be taken for a job of one, and compute on without the others.
  const char *rank = variable("RANK"), *ranks = variable("WORLD_SIZE");
  if (rank && ranks && std::string_view(ranks) != "1")
    return error(
        Code::invalid_usage,
        "RANK={} and WORLD_SIZE={} are set, but MASTER_ADDR is not: set it to the host of rank 0, and "
        "MASTER_PORT to a port there",
        rank, ranks);
  return std::optional<LaunchEnv>();
}

}  // namespace epccl::runtime
