// Machines and clusters as people and programs see them.
#include "test_machine.hpp"
#include "topology/cluster_printer.hpp"
#include "topology/machine_printer.hpp"
#include "topology/topology_json.hpp"

namespace epccl::topology {
namespace {

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in\n" << text;
}

std::string cluster_table(const Cluster& cluster, const Machine& machine) {
  const auto plan = plan_rails(machine, cluster.nodes(), cluster.max_local_size());
  return plan.ok() ? format_cluster(cluster, machine, *plan) : plan.status().message();
}

TEST(Matrix, HasLinksPathsAndAffinity) {
  const std::string text = format_matrix(load("rccl-8x-mi250x.xml"));
  expect_contains(text,
                  "      GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  NIC0  CPU Affinity  NUMA Affinity\n"
                  "GPU0  X     XG1   XG1   PHB   PHB   PHB   XG1   PHB   PHB   0-127         0\n");
  expect_contains(text, "XG#  = # xGMI links");
  expect_contains(text, "  NIC0: eth0\n");
  expect_contains(format_matrix(load("nccl-oci-h100.xml")), "GPU0   X     NV18  NV18");
}

TEST(Tree, ShowsEachGpuWithItsNicAndLeavesOutEmptyBranches) {
  const std::string text = format_tree(load("hwloc-juwels-booster-4a100-4hdr.xml"));
  expect_contains(text,
                  "  NUMA node 1  CPUs 6-11,54-59  63.0 GiB\n"
                  "    host bridge 0000:40\n"
                  "      port 0000:40:01.1  31.5 GB/s\n"
                  "        switch 0000:41:00.0  31.5 GB/s\n"
                  "          port 0000:42:00.0  31.5 GB/s\n"
                  "            NIC mlx5_0 (ib0)  infiniband  port 1  0000:43:00.0  31.5 GB/s\n");
  expect_contains(text, "GPU 1  0000:44:00.0  nvidia  A100-SXM4-40GB  sm_80  31.5 GB/s  -> mlx5_0 (PIX)\n");
  EXPECT_EQ(text.find("0000:62:00.0"), std::string::npos) << "the console's graphics";
}

TEST(Tree, ListsGpuLinks) {
  expect_contains(format_tree(load("hwloc-dgx2.xml")), "GPU 15  NVLink: 6 to 6 switches  150.0 GB/s\n");
  expect_contains(format_tree(load("rccl-8x-mi250x.xml")),
                  "GPU 0  xGMI: GPU 1 x1, GPU 2 x1, GPU 6 x1  150.0 GB/s\n");
}

TEST(ClusterTable, HasARowPerRankAndALinePerRail) {
  const std::string text = cluster_table(Cluster::uniform(2, 8), load("nccl-aws-p4d.xml"));
  expect_contains(text, "2 nodes, 16 ranks (2 x 8)\n");
  expect_contains(text, "   1      3      11  GPU3 0000:20:1d.0   0000:20:1b.0 (PIX)\n");
  expect_contains(text, "  rail 3: ranks 3 11  on 0000:20:1b.0 (shared by 2 rails)\n");
}

TEST(ClusterTable, ShowsUnequalNodes) {
  const std::string text = cluster_table(Cluster::from_sizes({3, 5}), load("rccl-8x-mi250x.xml"));
  expect_contains(text, "2 nodes, 8 ranks (3 + 5)\n");
  expect_contains(text, "  rail 4: ranks 7  on eth0 (shared by 5 rails)\n");
}

TEST(ClusterTable, ManagesWithoutGpusAndNics) {
  const std::string text = cluster_table(Cluster::uniform(2, 2), Machine{});
  expect_contains(text, "   1      1       3  -                   -\n");
  expect_contains(text, "  rail 1: ranks 1 3\n");
}

TEST(Json, HoldsTheMachineAndTheCluster) {
  const Machine machine = load("nccl-oci-h100.xml");
  const auto json = machine_json(machine);
  EXPECT_EQ(json["gpus"].size(), 8u);
  EXPECT_EQ(json["gpus"][7]["bus_id"], "0000:d8:00.0");
  EXPECT_EQ(json["gpus"][7]["nearest_nics"], (std::vector<int>{14, 15}));
  EXPECT_EQ(json["gpus"][0]["paths"][1], "NVL");
  EXPECT_EQ(json["nics"][0]["speed_mbit"], 180000);
  EXPECT_EQ(json["numa_nodes"][1]["cpus"], "56-111,168-223");
  EXPECT_EQ(json["links"].size(), 32u);

  const auto cluster = cluster_json(Cluster::from_sizes({1, 7}), machine);
  EXPECT_EQ(cluster["ranks"][7]["node"], 1);
  EXPECT_EQ(cluster["ranks"][7]["local"], 6);
  EXPECT_EQ(cluster["ranks"][7]["gpu"], 6);
  EXPECT_EQ(cluster["rails"][0], (std::vector<int>{0, 1}));
  EXPECT_EQ(cluster["rails"][6], std::vector<int>{7});
}

}  // namespace
}  // namespace epccl::topology
