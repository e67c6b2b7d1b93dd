// What tells jobs of one machine apart, and that ranks who do not know refuse to guess: those of two jobs that met would compute with
// each other's data.
#include "runtime/bootstrap/launcher_job.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "../base/environment.hpp"
#include "ranks.hpp"
#include "runtime/bootstrap/ancestors.hpp"

namespace epccl::test {
namespace {

using namespace runtime;

constexpr const char* hydra = "hydra_pmi_proxy";
constexpr const char* refusal = "nothing tells this job of mpich's from others";

/// A process of that name, with ranks below it.
struct Parent {
  const char* name;
  bool own_pid_namespaces = false;  // one for each rank, as a container's
  bool own_proc = false;            // mounted there
  bool shell_between = false;
};

class LauncherJob : public testing::Test {
 protected:
  LauncherJob() {
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT", "PMIX_NAMESPACE",
          "PMI_JOBID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "OMPI_MCA_ess_base_jobid",
          "OMPI_MCA_orte_precondition_transports", "PALS_APID", "FLUX_JOB_ID", "TORCHELASTIC_RUN_ID",
          "PRTE_LAUNCHED", "EPCCL_JOB_KEY", "EPCCL_STORE", "EPCCL_COMM_ID"})
      environment_.unset(name);
  }

  void SetUp() override {
    for (const char* launcher : {"mpich", "openmpi", "slurm", "pmi"})
      if (local_job_identity(env(launcher)).ok())
        GTEST_SKIP() << "these tests are themselves a job of " << launcher;
  }

  static LaunchEnv env(const std::string& launcher, int rank = 0) {
    LaunchEnv out;
    out.launcher = launcher;
    out.rank = rank;
    out.ranks = 2;
    return out;
  }

  static std::string identity(const std::string& launcher, int rank = 0) {
    const auto text = local_job_identity(env(launcher, rank));
    return text.ok() ? *text : "refused: " + text.status().message();
  }

  /// What two ranks below such a process say; nothing where this machine does not let it be.
  static std::vector<std::string> below(const Parent& parent, const std::string& launcher = "mpich") {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return {};
    const pid_t pid = fork();
    if (pid == 0) {
      close(pipe_ends[0]);
      prctl(PR_SET_NAME, parent.name);
      for (int rank = 0; rank < 2; ++rank) start_rank(parent, launcher, rank, pipe_ends[1]);
      _exit(0);
    }
    close(pipe_ends[1]);
    std::string text;
    char bytes[4096];
    for (ssize_t got; (got = read(pipe_ends[0], bytes, sizeof bytes)) > 0;)
      text.append(bytes, static_cast<size_t>(got));
    close(pipe_ends[0]);
    waitpid(pid, nullptr, 0);
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  Environment environment_;

 private:
  static void start_rank(const Parent& parent, const std::string& launcher, int rank, int to) {
    const int of_others = geteuid() == 0 ? 0 : CLONE_NEWUSER;
    if (parent.own_pid_namespaces && unshare(CLONE_NEWPID | CLONE_NEWNS | (rank == 0 ? of_others : 0)) != 0)
      return;
    // Once unshared the next child begins the namespace, and only one can.
    const pid_t pid = fork();
    if (pid == 0) {
      if (parent.shell_between) {
        prctl(PR_SET_NAME, "sh");
        if (const pid_t rank_pid = fork(); rank_pid != 0) {
          waitpid(rank_pid, nullptr, 0);
          _exit(0);
        }
      }
      prctl(PR_SET_NAME, "program");
      if (parent.own_proc && (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                              mount("proc", "/proc", "proc", 0, nullptr) != 0))
        _exit(1);
      const std::string line = identity(launcher, rank) + "\n";
      EXPECT_EQ(write(to, line.data(), line.size()), static_cast<ssize_t>(line.size()));
      _exit(0);
    }
    waitpid(pid, nullptr, 0);
  }
};

TEST_F(LauncherJob, IsThatOfTheLaunchersProcess) {
  if (!proc_has_our_numbers()) GTEST_SKIP() << "/proc is not that of this process's PID namespace";
  const auto ours = below({hydra}), theirs = below({hydra});
  ASSERT_EQ(ours.size(), 2u);
  ASSERT_EQ(theirs.size(), 2u);
  EXPECT_EQ(ours[0], ours[1]);
  EXPECT_EQ(theirs[0], theirs[1]);
  EXPECT_NE(ours[0], theirs[0]);
  for (const auto& each : {ours[0], theirs[0]}) EXPECT_EQ(each.find("refused"), std::string::npos) << each;
}

TEST_F(LauncherJob, IsThatOfALauncherBehindAShell) {
  if (!proc_has_our_numbers()) GTEST_SKIP() << "/proc is not that of this process's PID namespace";
  const auto ranks = below({.name = hydra, .shell_between = true});
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0], ranks[1]);
  EXPECT_CONTAINS(ranks[0], "in PID namespace ");
}

// A shell, or whatever else starts programs, may have started several jobs.
TEST_F(LauncherJob, IsNotThatOfJustAnyParent) {
  if (!proc_has_our_numbers()) GTEST_SKIP() << "/proc is not that of this process's PID namespace";
  const auto ranks = below({"bash"});
  ASSERT_EQ(ranks.size(), 2u);
  for (const char* part :
       {refusal, "hydra_pmi_proxy", "bash (", "Set EPCCL_STORE", "EPCCL_COMM_ID to host:port"})
    EXPECT_CONTAINS(ranks[1], part);
  EXPECT_CONTAINS(ranks[1], "rank 1: ");
}

// As of `mpiexec docker run`: the parents of all ranks of all jobs have the number 0.
TEST_F(LauncherJob, IsNotGuessedInAPidNamespaceOfTheRanksOwn) {
  bool any = false;
  for (const auto& [own_proc, why] : {std::pair(true, "its parent is in another PID namespace"),
                                      std::pair(false, "/proc is not there, or ")}) {
    const auto ranks = below({.name = hydra, .own_pid_namespaces = true, .own_proc = own_proc});
    if (ranks.empty()) continue;  // no such namespace, or no /proc of its own, is to be had here
    any = true;
    EXPECT_CONTAINS(ranks[0], refusal);
    EXPECT_CONTAINS(ranks[0], why);
  }
  if (!any) GTEST_SKIP() << "no namespaces here";
}

// A key may be a user's for years.
TEST_F(LauncherJob, HasTheKeyInItAndTheKeyAloneIsNone) {
  environment_.set("EPCCL_JOB_KEY", "ours");
  EXPECT_CONTAINS(identity("mpich"), refusal);
  environment_.set("PMIX_NAMESPACE", "job-7");
  const std::string ours = identity("pmix");
  environment_.set("EPCCL_JOB_KEY", "theirs");
  EXPECT_NE(identity("pmix"), ours);
  EXPECT_EQ(identity("pmix", 0), identity("pmix", 1));
}

TEST_F(LauncherJob, IsThatOfTheLaunchersNumberForIt) {
  for (const auto& [launcher, variable] :
       {std::pair("openmpi", "PMIX_NAMESPACE"), std::pair("openmpi", "OMPI_MCA_orte_precondition_transports"),
        std::pair("pmix", "PMIX_NAMESPACE"), std::pair("pmi", "PALS_APID")}) {
    EXPECT_CONTAINS(identity(launcher), "refused: ");
    environment_.set(variable, "job-7");
    const std::string ours = identity(launcher);
    EXPECT_EQ(ours.find("refused"), std::string::npos) << ours;
    environment_.set(variable, "job-8");
    EXPECT_NE(identity(launcher), ours);
    environment_.unset(variable);
  }
}

// Two mpiexec of one allocation have these in common.
TEST_F(LauncherJob, IsNotThatOfABatchJob) {
  for (const char* variable : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"})
    environment_.set(variable, "7");
  EXPECT_CONTAINS(identity("mpich"), refusal);
  EXPECT_CONTAINS(identity("slurm"), "SLURM_STEP_ID with SLURM_JOB_ID is not set");
  environment_.set("SLURM_STEP_ID", "0");
  EXPECT_EQ(identity("slurm").find("refused"), std::string::npos);
}

struct AcrossNodes {
  const char* launcher;
  std::vector<const char*> of_all_ranks;   // and of one job
  std::vector<const char*> of_some_ranks;  // or of several jobs
};

// mpirun forks the ranks of its node, and starts a daemon on each other one by srun, or by ssh; prterun, too. Ranks with torchrun's
// variables are started by one srun for each node, or by ssh.
TEST_F(LauncherJob, OfSeveralNodesIsOfWhatAllRanksHave) {
  const std::vector<const char*> of_batch_systems = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT",
                                                     "PBS_JOBID",    "LSB_JOBID",     "JOB_ID"};
  for (const AcrossNodes& each : {
           AcrossNodes{"openmpi",
                       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_precondition_transports"},
                       of_batch_systems},
           AcrossNodes{"pmix", {"PMIX_NAMESPACE"}, of_batch_systems},
           AcrossNodes{"torchrun", {"TORCHELASTIC_RUN_ID"}, of_batch_systems},
           AcrossNodes{"epccl-run", {}, of_batch_systems},
           AcrossNodes{"mpich", {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"}, {"SLURM_STEP_ID"}},
           AcrossNodes{"pmi", {"PMI_JOBID", "PALS_APID", "FLUX_JOB_ID", "PBS_JOBID"}, {"SLURM_STEP_ID"}},
       }) {
    EXPECT_FALSE(is_told_apart(env(each.launcher))) << each.launcher;
    const std::string bare = job_identity(env(each.launcher));
    for (const char* variable : each.of_some_ranks) {
      Environment here;
      here.set("SLURM_STEP_NUM_TASKS", "1");
      here.set(variable, "7");
      EXPECT_EQ(job_identity(env(each.launcher)), bare) << each.launcher << ", " << variable;
      EXPECT_FALSE(is_told_apart(env(each.launcher))) << each.launcher << ", " << variable;
    }
    for (const char* variable : each.of_all_ranks) {
      Environment here;
      here.set(variable, "7");
      const std::string ours = job_identity(env(each.launcher));
      EXPECT_TRUE(is_told_apart(env(each.launcher))) << each.launcher << ", " << variable;
      here.set(variable, "8");
      EXPECT_NE(job_identity(env(each.launcher)), ours) << each.launcher << ", " << variable;
    }
  }
}

// Whatever names their ranks: RANK=$SLURM_PROCID is what scripts for PyTorch set.
TEST_F(LauncherJob, OfTasksOfOneStepIsThatStep) {
  environment_.set("SLURM_STEP_NUM_TASKS", "2");
  for (const char* launcher : {"slurm", "torchrun", "epccl-run"}) {
    environment_.set("SLURM_JOB_ID", "7");
    environment_.set("SLURM_STEP_ID", "0");
    const std::string first = job_identity(env(launcher));
    EXPECT_TRUE(is_told_apart(env(launcher)));
    environment_.set("SLURM_STEP_ID", "1");
    const std::string second = job_identity(env(launcher));
    environment_.set("SLURM_JOB_ID", "8");
    EXPECT_NE(first, second) << launcher;
    EXPECT_NE(job_identity(env(launcher)), second) << launcher;
  }
}

// A torchrun in each task may number them otherwise, some of them as the tasks: all must say the same of their job.
TEST_F(LauncherJob, OfTasksThatAreNumberedOtherwiseIsThatStep) {
  environment_.set("SLURM_STEP_NUM_TASKS", "2");
  environment_.set("SLURM_JOB_ID", "7");
  environment_.set("SLURM_STEP_ID", "0");
  environment_.set("SLURM_PROCID", "1");
  EXPECT_EQ(job_identity(env("torchrun", 0)), job_identity(env("torchrun", 1)));
  EXPECT_TRUE(is_told_apart(env("torchrun", 0)));
}

TEST_F(LauncherJob, IsNotToldApartByWhatIsSetButEmpty) {
  const std::string bare = job_identity(env("pmi"));
  environment_.set("PMI_JOBID", "");
  EXPECT_FALSE(is_told_apart(env("pmi")));
  EXPECT_EQ(job_identity(env("pmi")), bare);
}

// What torchrun calls every job without --rdzv-id.
TEST_F(LauncherJob, IsNotToldApartByTheRunIdNone) {
  const std::string bare = job_identity(env("torchrun"));
  environment_.set("TORCHELASTIC_RUN_ID", "none");
  EXPECT_FALSE(is_told_apart(env("torchrun")));
  EXPECT_EQ(job_identity(env("torchrun")), bare);
  environment_.set("TORCHELASTIC_RUN_ID", "nonesuch");
  EXPECT_TRUE(is_told_apart(env("torchrun")));
}

TEST_F(LauncherJob, IsToldApartByAKey) {
  const std::string bare = job_identity(env("mpich"));
  EXPECT_FALSE(is_told_apart(env("mpich")));
  environment_.set("EPCCL_JOB_KEY", "ours");
  EXPECT_TRUE(is_told_apart(env("mpich")));
  EXPECT_NE(job_identity(env("mpich")), bare);
}

TEST_F(LauncherJob, ThatIsUnknownIsTheUsersToTell) {
  const auto id = share_unique_id(env("mpich", 1), patience);
  ASSERT_FALSE(id.ok());
  EXPECT_CONTAINS(id.status().message(), refusal);
}

}  // namespace
}  // namespace epccl::test
