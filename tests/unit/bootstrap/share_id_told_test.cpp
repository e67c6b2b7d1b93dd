// What is told where the id of rank 0 reaches nobody, and beforehand of where ranks would meet.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/bootstrap/handshake.hpp"
#include "runtime/bootstrap/id_exchange.hpp"
#include "share_id.hpp"
#include "taken_port.hpp"

namespace epccl::test {
namespace {

using namespace runtime;
namespace fs = std::filesystem;

class ShareIdTold : public ShareId {
 protected:
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(ShareIdTold, MissingRanksAreNamed) {
  environment_.set("EPCCL_STORE", directory_);
  const auto id = share_unique_id(env(0, 3), 0.3);
  ASSERT_FALSE(id.ok());
  EXPECT_CONTAINS(id.status().message(), "1 of 3 ranks came");
  EXPECT_CONTAINS(id.status().message(), "missing: 1, 2");
}

TEST_F(ShareIdTold, WhyNobodyAnsweredIsTold) {
  const TakenPort silent;
  const IdHandOut nobody{"127.0.0.1", {silent.endpoint().port}, "our job"};
  const auto taken = nobody.take(1, 0.1);
  ASSERT_FALSE(taken.ok());
  EXPECT_CONTAINS(taken.status().message(), "Connection refused");
}

TEST_F(ShareIdTold, DirectoryThatCannotBeWrittenIsNamed) {
  const auto taken = IdStore{"/proc", false}.take(1, 0, 0.1);
  ASSERT_FALSE(taken.ok());
  EXPECT_CONTAINS(taken.status().message(), "/proc");
}

TEST_F(ShareIdTold, SeveralNodesWithoutAPlaceToMeetIsAnErrorThatHelps) {
  LaunchEnv lost = env(1, 8);
  lost.local_ranks = 4;
  const auto id = share_unique_id(lost, patience);
  ASSERT_FALSE(id.ok());
  for (const char* part :
       {"pmix started 8 ranks on several nodes", "set MASTER_ADDR to the host of rank 0 and MASTER_PORT",
        "or EPCCL_STORE", "one for each job", "or EPCCL_COMM_ID", "a port for each job"})
    EXPECT_CONTAINS(id.status().message(), part);
  EXPECT_EQ(meeting_place(lost).status().message(), id.status().message());
  lost.launcher = "slurm";
  EXPECT_CONTAINS(share_unique_id(lost, patience).status().message(),
                  "(before srun: export MASTER_ADDR=$(scontrol show hostnames");
}

// What killed jobs left stays in a store for good, and has nothing to do with who is missing today.
TEST_F(ShareIdTold, WhatElseIsAskedForInAStoreIsToldTheYoungestFirst) {
  environment_.set("EPCCL_STORE", directory_);
  const auto yesterday = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (int rank = 1; rank < 9; ++rank) {
    const std::string old = fmt::format("{}/ask.7.{}", directory_, rank);
    std::ofstream(old) << std::string(sizeof(Nonce), 'x');
    fs::last_write_time(old, yesterday - std::chrono::hours(rank));
  }
  const std::string young = directory_ + "/ask.0.1";
  std::ofstream(young) << std::string(sizeof(Nonce), 'x');
  const auto said = [] { return share_unique_id(env(0, 2), 0.3).status().message(); };
  EXPECT_CONTAINS(said(), "missing: 1; ask.0.1 is there, and not one of ask.");
  fs::remove(young);
  EXPECT_CONTAINS(said(), "missing: 1; ask.7.1 is there, and not one of ask.");
  EXPECT_CONTAINS(said(), "perhaps left by one that was killed");
}

TEST_F(ShareIdTold, RankZeroThatIsNotAtTheHostThatIsNamedSaysSo) {
  const std::string elsewhere = "203.0.113.9";  // of no machine
  const LaunchEnv rank_0 = env(0, 2, fmt::format("{}:{}", elsewhere, quiet_port()));
  const auto id = share_unique_id(rank_0, 0.3);
  ASSERT_FALSE(id.ok());
  EXPECT_CONTAINS(id.status().message(),
                  "missing: 1; 203.0.113.9 is no address of this machine, where rank 0 is");
  EXPECT_CONTAINS(meeting_place(rank_0)->doubt, "203.0.113.9 is no address of this machine");
  EXPECT_EQ(meeting_place(env(1, 2, rank_0.rendezvous))->doubt, "") << "rank 0 may be there";
  const auto here = share_unique_id(env(0, 2, fmt::format("127.0.0.1:{}", quiet_port())), 0.3);
  EXPECT_EQ(here.status().message().find("is no address"), std::string::npos) << here.status().message();
}

TEST_F(ShareIdTold, WhatSpeaksAgainstTheRankIsToldWhenNobodyCame) {
  LaunchEnv doubtful = env(0, 2);
  doubtful.contradiction = "RANK=0 went before SLURM_PROCID=1";
  EXPECT_CONTAINS(share_unique_id(doubtful, 0.2).status().message(),
                  "missing: 1; RANK=0 went before SLURM_PROCID=1");
}

// Nobody will be missed: an id is made at once.
TEST_F(ShareIdTold, WhatSpeaksAgainstBeingAloneIsAWarning) {
  LaunchEnv doubtful = env(0, 1);
  environment_.set("EPCCL_DEBUG", "WARN");
  environment_.set("EPCCL_DEBUG_FILE", directory_ + "/log");
  EXPECT_TRUE(share_unique_id(doubtful, 1).ok());
  EXPECT_EQ(text_of(directory_ + "/log").find("a job of one rank"), std::string::npos);
  doubtful.contradiction = "RANK=0 and WORLD_SIZE=1 went before SLURM_PROCID=1";
  EXPECT_TRUE(share_unique_id(doubtful, 1).ok());
  EXPECT_CONTAINS(text_of(directory_ + "/log"), "a job of one rank: RANK=0 and WORLD_SIZE=1 went before");
}

TEST_F(ShareIdTold, TheStepThatTheRankWasTakenForIsToldWhenNobodyCame) {
  environment_.set("EPCCL_STORE", directory_);
  environment_.set("SLURM_STEP_NUM_TASKS", "2");
  environment_.set("SLURM_JOB_ID", "3");
  environment_.set("SLURM_STEP_ID", "0");
  LaunchEnv task = env(0, 2);
  task.launcher = "torchrun";
  EXPECT_CONTAINS(share_unique_id(task, 0.2).status().message(),
                  "; taken for a job of step 0 of Slurm's job 3");
  task.ranks = 3;
  EXPECT_EQ(share_unique_id(task, 0.2).status().message().find("taken for"), std::string::npos);
}

TEST_F(ShareIdTold, TheMeetingPlaceCanBeAskedFor) {
  EXPECT_CONTAINS(meeting_place(env(1, 2))->where, "directory " + directory_ + "/epccl-");
  EXPECT_EQ(meeting_place(env(1, 2, "127.0.0.1:29500"))->where,
            "port 29501 of 127.0.0.1, or one of the next");
  EXPECT_TRUE(meeting_place(env(0, 1)).ok());
  environment_.set("EPCCL_STORE", directory_);
  EXPECT_EQ(meeting_place(env(1, 2))->where, "directory " + directory_);
  EXPECT_TRUE(fs::is_empty(directory_));
  environment_.set("EPCCL_STORE", directory_ + "/missing");
  EXPECT_CONTAINS(meeting_place(env(1, 2)).status().message(), "/missing");
  environment_.unset("EPCCL_STORE");
  environment_.set("EPCCL_COMM_ID", "no-such-host.invalid:29500");
  EXPECT_CONTAINS(meeting_place(env(1, 2)).status().message(), "no-such-host.invalid");
}

TEST_F(ShareIdTold, AFolderThatIsNotThereIsNoMeetingPlace) {
  environment_.set("TMPDIR", directory_ + "/nowhere");
  EXPECT_CONTAINS(meeting_place(env(1, 2)).status().message(), directory_ + "/nowhere (TMPDIR)");
  EXPECT_FALSE(share_unique_id(env(0, 2), 1).ok());
}

}  // namespace
}  // namespace epccl::test
