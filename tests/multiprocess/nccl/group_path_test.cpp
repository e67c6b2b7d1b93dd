// An alltoallv as NCCL programs write it, between nodes: neighbours carry its small messages.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace nccl_programs {
namespace {

constexpr int group_path_ranks = 8, group_path_node = 4, group_path_calls = 50;
constexpr size_t group_path_values = 1000;  // 8000 bytes: by default they go directly

void run_alltoallv(const RankContext& context, ncclComm_t comm, int call) {
  std::vector<std::vector<uint64_t>> in, out;
  const auto value = [&](int from, int to) { return static_cast<uint64_t>(call * 1000 + from * 10 + to); };
  for (int peer = 0; peer < context.ranks; ++peer) {
    in.emplace_back(group_path_values, value(context.rank, peer));
    out.emplace_back(group_path_values);
  }
  NCCL_OK(ncclGroupStart());
  for (int peer = 0; peer < context.ranks; ++peer) {
    const auto at = static_cast<size_t>(peer);
    NCCL_OK(ncclSend(in[at].data(), group_path_values, ncclUint64, peer, comm, nullptr));
    NCCL_OK(ncclRecv(out[at].data(), group_path_values, ncclUint64, peer, comm, nullptr));
  }
  NCCL_OK(ncclGroupEnd());
  for (int peer = 0; peer < context.ranks; ++peer)
    EXPECT_EQ(out[static_cast<size_t>(peer)],
              std::vector<uint64_t>(group_path_values, value(peer, context.rank)));
}

/// What the ranks' communicators have said of what was carried, added up.
struct CarriedInAll {
  uint64_t carried = 0, by_lane = 0;
  int ranks = 0;
};

CarriedInAll carried_in_all(const std::string& path) {
  CarriedInAll all;
  const std::regex said("([0-9]+) messages carried .* ([0-9]+) messages came by lane");
  std::ifstream file(path);
  std::smatch found;
  for (std::string line; std::getline(file, line);) {
    if (!std::regex_search(line, found, said)) continue;
    ++all.ranks;
    all.carried += std::stoull(found[1]);
    all.by_lane += std::stoull(found[2]);
  }
  return all;
}

CarriedInAll run_group_path(const char* aggregate) {
  const std::string log = testing::TempDir() + "nccl_group_path." + std::to_string(getpid()) + ".log";
  Job job{As::processes, group_path_ranks, group_path_node};
  job.environment = {{"EPCCL_NET", "tcp"},
                     {"EPCCL_GROUP_AGGREGATE", aggregate},
                     {"EPCCL_DEBUG", "INFO"},
                     {"EPCCL_DEBUG_SUBSYS", "NET"},
                     {"EPCCL_DEBUG_FILE", log}};
  run_ranks(job, [](const RankContext& context) {
    Comm comm(context);
    for (int call = 0; call < group_path_calls; ++call) run_alltoallv(context, comm, call);
  });
  const CarriedInAll all = carried_in_all(log);
  std::filesystem::remove(log);
  return all;
}

// How many depends on who is late: on a busy machine a rank does not wait for its neighbour for long.
TEST(GroupPath, OfSmallMessagesIsByNeighbours) {
  const CarriedInAll all = run_group_path("1");
  EXPECT_EQ(all.ranks, group_path_ranks);
  EXPECT_GT(all.carried, 0U);
  EXPECT_EQ(all.by_lane, all.carried) << "what was carried came";
}

TEST(GroupPath, IsDirectWhereTheSettingSaysSo) {
  const CarriedInAll all = run_group_path("0");
  EXPECT_EQ(all.ranks, 0) << "nobody can carry";
}

}  // namespace
}  // namespace nccl_programs
