#include "runtime/bootstrap/launch_env.hpp"

#include <unistd.h>

#include <filesystem>

#include "../base/environment.hpp"
#include "ranks.hpp"
#include "runtime/bootstrap/ancestors.hpp"

namespace epccl::test {
namespace {

using namespace runtime;

class Launch : public testing::Test {
 protected:
  Launch() {
    for (const char* name : {"EPCCL_RANK",
                             "EPCCL_WORLD_SIZE",
                             "EPCCL_LOCAL_RANK",
                             "RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_STEP_NUM_NODES",
                             "PMIX_RANK",
                             "PMIX_SIZE",
                             "PMIX_LOCAL_RANK",
                             "PMIX_LOCAL_SIZE"})
      environment_.unset(name);
  }

  void set(const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const auto& [name, value] : variables) environment_.set(name, value);
  }
  static LaunchEnv read() {
    const auto env = launch_environment();
    EXPECT_TRUE(env.ok()) << env.status().message();
    EXPECT_TRUE(env.ok() && env->has_value()) << "no launcher seen";
    return env.ok() && env->has_value() ? **env : LaunchEnv{};
  }
  static bool is_alone() {
    const auto env = launch_environment();
    EXPECT_TRUE(env.ok()) << env.status().message();
    return env.ok() && !env->has_value();
  }
  void expect_error(const std::string& part) {
    const auto env = launch_environment();
    ASSERT_FALSE(env.ok());
    EXPECT_CONTAINS(env.status().message(), part);
  }

  Environment environment_;
};

TEST_F(Launch, NothingWithoutALauncher) {
  EXPECT_TRUE(is_alone());
}

struct Case {
  const char* launcher;
  std::vector<std::pair<const char*, const char*>> variables;
  int local_rank;
};

TEST_F(Launch, EveryLauncherIsRead) {
  const std::vector<Case> cases = {
      {"epccl-run", {{"EPCCL_RANK", "3"}, {"EPCCL_WORLD_SIZE", "8"}, {"EPCCL_LOCAL_RANK", "1"}}, 1},
      {"torchrun",
       {{"RANK", "3"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"MASTER_ADDR", "node1"},
        {"MASTER_PORT", "29500"}},
       1},
      {"openmpi",
       {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}},
       1},
      {"mpich", {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}}, 1},
      {"slurm", {{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "1"}}, 1},
      {"pmi", {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}, -1},
      {"pmix", {{"PMIX_RANK", "3"}, {"PMIX_SIZE", "8"}}, -1},
  };
  for (const Case& each : cases) {
    Environment only_here;
    for (const auto& [name, value] : each.variables) only_here.set(name, value);
    const LaunchEnv env = read();
    EXPECT_EQ(env.launcher, each.launcher);
    EXPECT_EQ(env.rank, 3) << each.launcher;
    EXPECT_EQ(env.ranks, 8) << each.launcher;
    EXPECT_EQ(env.local_rank, each.local_rank) << each.launcher;
  }
}

TEST_F(Launch, MpirunInsideASlurmAllocationIsNotTakenForSrun) {
  set({{"SLURM_PROCID", "0"},
       {"SLURM_STEP_NUM_TASKS", "2"},
       {"OMPI_COMM_WORLD_RANK", "5"},
       {"OMPI_COMM_WORLD_SIZE", "8"}});
  EXPECT_EQ(read().launcher, "openmpi");
  EXPECT_EQ(read().rank, 5);
}

// As salloc -n 4 sets it for a shell, and sbatch -n 4 for a script.
TEST_F(Launch, ProcessOfASlurmAllocationThatSrunDidNotStartIsAlone) {
  set({{"SLURM_NTASKS", "4"}});
  EXPECT_TRUE(is_alone());
  set({{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
  EXPECT_TRUE(is_alone());
}

// srun -n 2 within sbatch -n 8, with --preserve-env: the allocation's number of tasks stays what it was.
TEST_F(Launch, StepOfASlurmAllocationHasTheRanksOfTheStep) {
  set({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(read().launcher, "slurm");
  EXPECT_EQ(read().ranks, 2);
}

// As scripts for PyTorch do before srun: each program takes RANK from SLURM_PROCID.
TEST_F(Launch, SizeOfABatchScriptLeavesTheRanksToSrun) {
  set({{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}});
  expect_error("WORLD_SIZE is set but RANK is not");
  set({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_EQ(read().launcher, "slurm");
  EXPECT_EQ(read().rank, 3);
  EXPECT_EQ(read().rendezvous, "node1:29500");
  environment_.unset("WORLD_SIZE");
  set({{"RANK", "0"}});
  EXPECT_EQ(read().launcher, "slurm");
  set({{"WORLD_SIZE", "4"}, {"RANK", "2"}});
  EXPECT_EQ(read().launcher, "torchrun");
}

TEST_F(Launch, SizeOfABatchScriptIsNoExcuseForOthers) {
  set({{"EPCCL_RANK", "1"}, {"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  expect_error("EPCCL_RANK is set but EPCCL_WORLD_SIZE is not");
}

TEST_F(Launch, RankThatAllTasksHaveIsDoubted) {
  set({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node1"}});
  EXPECT_EQ(read().contradiction, "");
  set({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_EQ(read().rank, 0);
  EXPECT_CONTAINS(read().contradiction, "RANK=0 and WORLD_SIZE=4 went before SLURM_PROCID=3 and ");
  set({{"RANK", "3"}});
  EXPECT_EQ(read().contradiction, "");
  // A torchrun in each task.
  set({{"RANK", "5"}, {"WORLD_SIZE", "8"}});
  EXPECT_EQ(read().contradiction, "");
}

// A task that submits a script (sbatch) passes its variables on to it.
TEST_F(Launch, BatchScriptHasItsVariablesFromTheTaskThatSubmittedIt) {
  if (!proc_has_our_numbers()) GTEST_SKIP() << "/proc is not that of this process's PID namespace";
  set({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "3"}});
  constexpr const char* below =
      "EPCCL_TEST_BELOW_SLURM";  // this test again, below a process that is called so
  if (std::getenv(below) != nullptr) {
    fmt::print("launcher: {}\n", is_alone() ? "none" : read().launcher);
    return;
  }
  environment_.set(below, "1");
  namespace fs = std::filesystem;
  std::string directory = testing::TempDir() + "slurmXXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  fs::create_symlink("/bin/bash", directory + "/slurmstepd");
  const std::string test =
      fs::read_symlink("/proc/self/exe").string() + " --gtest_filter=Launch.BatchScript*";
  for (const auto& [title, launcher] :
       {std::pair("slurmstepd: [3.batch]", "none"), std::pair("slurmstepd: [3.0]", "slurm")}) {
    const std::string command =
        fmt::format("bash -c 'exec -a \"{}\" {}/slurmstepd -c \"{}; true\"'", title, directory, test);
    FILE* pipe = popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string said;
    for (int c = 0; (c = fgetc(pipe)) != EOF;) said += static_cast<char>(c);
    pclose(pipe);
    EXPECT_CONTAINS(said, fmt::format("launcher: {}\n", launcher));
  }
  fs::remove_all(directory);
}

TEST_F(Launch, EpcclRunGoesBeforeAllOthers) {
  set({{"EPCCL_RANK", "1"}, {"EPCCL_WORLD_SIZE", "2"}, {"PMI_RANK", "5"}, {"PMI_SIZE", "8"}});
  EXPECT_EQ(read().launcher, "epccl-run");
}

TEST_F(Launch, MasterAddressIsTheRendezvous) {
  set({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(read().rendezvous, "node1:29500");
  environment_.set("MASTER_ADDR", "fd00::1");
  EXPECT_EQ(read().rendezvous, "[fd00::1]:29500");
}

TEST_F(Launch, RanksThatNameNoMasterAreNotJobsOfOne) {
  set({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  expect_error("RANK=1 and WORLD_SIZE=2 are set, but MASTER_ADDR is not");
  set({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_TRUE(is_alone());
}

TEST_F(Launch, RankWithoutSizeIsAContradiction) {
  set({{"EPCCL_RANK", "1"}});
  expect_error("EPCCL_RANK is set but EPCCL_WORLD_SIZE is not");
}

TEST_F(Launch, SizeWithoutRankIsAContradiction) {
  set({{"OMPI_COMM_WORLD_SIZE", "4"}});
  expect_error("OMPI_COMM_WORLD_SIZE is set but OMPI_COMM_WORLD_RANK is not");
}

TEST_F(Launch, RankOutsideTheSizeIsAContradiction) {
  set({{"EPCCL_RANK", "4"}, {"EPCCL_WORLD_SIZE", "4"}});
  expect_error("EPCCL_RANK=4 is not below EPCCL_WORLD_SIZE=4");
}

TEST_F(Launch, WhatIsNoNumberIsNamed) {
  for (const char* wrong : {"x", "1x", "-1", "1.0", "99999999999"}) {
    set({{"EPCCL_RANK", wrong}, {"EPCCL_WORLD_SIZE", "4"}});
    expect_error(fmt::format("EPCCL_RANK=\"{}\" is not a number", wrong));
  }
}

}  // namespace
}  // namespace epccl::test
