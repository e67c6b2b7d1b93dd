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

constexpr int group_path_ranks = 8, group_path_node = 4;
constexpr size_t mid_sized = 1000, small = 12;  // values; 8000 bytes go directly by default

void run_alltoallv(const RankContext& context, ncclComm_t comm, int call, size_t values) {
  std::vector<std::vector<uint64_t>> in, out;
  const auto value = [&](int from, int to) { return static_cast<uint64_t>(call * 1000 + from * 10 + to); };
  for (int peer = 0; peer < context.ranks; ++peer) {
    in.emplace_back(values, value(context.rank, peer));
    out.emplace_back(values);
  }
  NCCL_OK(ncclGroupStart());
  for (int peer = 0; peer < context.ranks; ++peer) {
    const auto at = static_cast<size_t>(peer);
    NCCL_OK(ncclSend(in[at].data(), values, ncclUint64, peer, comm, nullptr));
    NCCL_OK(ncclRecv(out[at].data(), values, ncclUint64, peer, comm, nullptr));
  }
  NCCL_OK(ncclGroupEnd());
  for (int peer = 0; peer < context.ranks; ++peer)
    EXPECT_EQ(out[static_cast<size_t>(peer)], std::vector<uint64_t>(values, value(peer, context.rank)));
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

/// `aggregate` null: as it is where nobody has set it.
CarriedInAll run_group_path(const char* aggregate, size_t values, int calls) {
  const std::string log = testing::TempDir() + "nccl_group_path." + std::to_string(getpid()) + ".log";
  Job job{As::processes, group_path_ranks, group_path_node};
  job.environment = {{"EPCCL_NET", "tcp"},
                     {"EPCCL_DEBUG", "INFO"},
                     {"EPCCL_DEBUG_SUBSYS", "NET"},
                     {"EPCCL_DEBUG_FILE", log}};
  if (aggregate != nullptr) job.environment.emplace_back("EPCCL_GROUP_AGGREGATE", aggregate);
  run_ranks(job, [&](const RankContext& context) {
    if (aggregate == nullptr) unsetenv("EPCCL_GROUP_AGGREGATE");
    Comm comm(context);
    for (int call = 0; call < calls; ++call) run_alltoallv(context, comm, call, values);
  });
  const CarriedInAll all = carried_in_all(log);
  std::filesystem::remove(log);
  return all;
}

// How many depends on who is late: on a busy machine a rank does not wait for its neighbour for long.
TEST(GroupPath, OfSmallMessagesIsByNeighbours) {
  const CarriedInAll all = run_group_path("1", mid_sized, 50);
  EXPECT_EQ(all.ranks, group_path_ranks);
  EXPECT_GT(all.carried, 0U);
  EXPECT_EQ(all.by_lane, all.carried) << "what was carried came";
}

TEST(GroupPath, IsDirectWhereTheSettingSaysSo) {
  const CarriedInAll all = run_group_path("0", small, 50);
  EXPECT_EQ(all.ranks, 0) << "nobody can carry";
}

// Four messages to one other node: more than where that begins to pay. Neighbours that were late are given up for some calls: so many are made.
TEST(GroupPath, IsByNeighboursByItselfWhereThatPays) {
  const CarriedInAll all = run_group_path(nullptr, small, 500);
  EXPECT_EQ(all.ranks, group_path_ranks);
  EXPECT_GT(all.carried, 0U);
  EXPECT_EQ(all.by_lane, all.carried) << "what was carried came";
}

TEST(GroupPath, IsDirectByItselfWhereMessagesAreNotSmall) {
  const CarriedInAll all = run_group_path(nullptr, mid_sized, 50);
  EXPECT_EQ(all.ranks, group_path_ranks) << "they could carry";
  EXPECT_EQ(all.carried, 0U);
}

}  // namespace
}  // namespace nccl_programs
