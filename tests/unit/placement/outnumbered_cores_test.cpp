// When ranks have fewer cores than they are: by what they may run on, and by the quotas of their control groups.
#include <gtest/gtest.h>

#include "runtime/comm/rank_info.hpp"

namespace epccl::runtime {
namespace {

/// Ranks of one machine with 64 cores, in containers of `each` ranks with a quota.
std::vector<RankInfo> in_containers(int containers, int each, double quota) {
  std::vector<RankInfo> infos;
  for (int rank = 0; rank < containers * each; ++rank) {
    RankInfo& info = infos.emplace_back();
    info.host_id = static_cast<uint64_t>(rank / each);
    info.core_set = 7;
    info.cores = 64;
    info.quota = quota;
    info.quota_of = static_cast<uint64_t>(quota > 0 ? rank / each : 0);
  }
  return infos;
}

bool any_outnumbered(const std::vector<RankInfo>& infos) {
  for (int rank = 0; rank < static_cast<int>(infos.size()); ++rank)
    if (outnumber_cores(infos, rank)) return true;
  return false;
}

TEST(OutnumberedCores, AsManyRanksAsCoresHaveOneEach) {
  EXPECT_FALSE(any_outnumbered(in_containers(1, 64, 0)));
  EXPECT_TRUE(any_outnumbered(in_containers(1, 65, 0)));
  EXPECT_TRUE(any_outnumbered(in_containers(5, 13, 0))) << "containers share the machine's cores";
}

TEST(OutnumberedCores, AQuotaIsAllThatARankCanSpinAway) {
  EXPECT_TRUE(any_outnumbered(in_containers(1, 8, 2))) << "docker run --cpus=2, 8 ranks";
  EXPECT_TRUE(any_outnumbered(in_containers(1, 2, 1.5)));
  EXPECT_FALSE(any_outnumbered(in_containers(1, 2, 2)));
}

TEST(OutnumberedCores, QuotasOfSeveralContainersAddUp) {
  EXPECT_FALSE(any_outnumbered(in_containers(4, 2, 2)));
  EXPECT_TRUE(any_outnumbered(in_containers(4, 3, 2)));
}

TEST(OutnumberedCores, TheCostModelTakesTheLeastOfCoresQuotaAndRanks) {
  const auto cores = [](const std::vector<RankInfo>& infos) {
    return cost_parameters(infos, make_cluster(infos).value()).cores_per_node;
  };
  EXPECT_EQ(cores(in_containers(2, 8, 0)), 8);
  EXPECT_EQ(cores(in_containers(2, 8, 2.5)), 2.5);
  EXPECT_EQ(cores(in_containers(1, 100, 0)), 64);
}

}  // namespace
}  // namespace epccl::runtime
