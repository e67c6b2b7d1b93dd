// Ranks of epccl-run find each other: this binary is both the test and the rank it starts.
#include "run.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/bootstrap/launch_env.hpp"

namespace epccl::test {
namespace {

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

/// One rank: twice finds the others, exchanges ranks and leaves. 0 when all is right.
int be_a_rank() {
  const auto env = runtime::launch_environment();
  if (!env.ok() || !env->has_value()) return 10;
  const int rank = (*env)->rank, ranks = (*env)->ranks;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto id = runtime::share_unique_id(**env, patience, attempt);
    if (!id.ok()) return fmt::print(stderr, "{}\n", id.status().message()), 11;
    const auto line = runtime::Bootstrap::join(*id, rank, ranks, patience);
    if (!line.ok()) return fmt::print(stderr, "{}\n", line.status().message()), 12;
    const runtime::Blob mine(static_cast<size_t>(rank), static_cast<std::byte>(rank));
    const auto all = (*line)->allgather(mine);
    if (!all.ok() || (*all)[static_cast<size_t>(ranks - 1)].size() != static_cast<size_t>(ranks - 1))
      return 13;
    if (attempt == 1 && rank == ranks - 1 && std::getenv("DIE")) raise(SIGKILL);
    const Status together = (*line)->barrier();
    if (!together.ok()) return fmt::print(stderr, "{}\n", together.message()), 14;
    (*line)->leave(runtime::Bootstrap::any_call);
  }
  return 0;
}

TEST_F(Launcher, RanksFindEachOther) {
  EXPECT_EQ(run({"-n", "8", "--nodes", "2", "--env", "EPCCL_SOCKET_IFNAME=lo", own_path(), "--be-a-rank"}), 0)
      << err();
}

// Its number is that of one of the library's own descriptors then.
TEST_F(Launcher, RanksWithoutStandardErrorLogNowhere) {
  EXPECT_EQ(run({"-n", "4", "--nodes", "2", "--env", "EPCCL_DEBUG=INFO", "--env", "EPCCL_SOCKET_IFNAME=lo",
                 "sh", "-c", "exec " + own_path() + " --be-a-rank 2>&-"}),
            0)
      << err();
}

TEST_F(Launcher, SurvivorsNameTheRankThatDied) {
  EXPECT_EQ(run({"-n", "4", "--nodes", "2", "--grace", "30", "--env", "DIE=1", "--env",
                 "EPCCL_SOCKET_IFNAME=lo", own_path(), "--be-a-rank"}),
            128 + SIGKILL);
  std::istringstream text(err());
  int named = 0;
  for (std::string line; std::getline(text, line);)
    named += line.find("rank 3 (host node1, pid ") != std::string::npos;
  EXPECT_EQ(named, 3) << err();
}

}  // namespace
}  // namespace epccl::test

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--be-a-rank") return epccl::test::be_a_rank();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
