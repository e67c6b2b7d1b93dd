// What epccl-topo prints, and how it ends.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "run_tool.hpp"

namespace epccl::tools {
namespace {

TEST(TopoTool, PrintsTreeAndMatrix) {
  const Outcome outcome = run_tool(xml("nccl-aws-p4d.xml"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("NUMA node 0"), std::string::npos);
  EXPECT_NE(outcome.output.find("CPU Affinity"), std::string::npos);
}

TEST(TopoTool, ShowsThisMachine) {
  const Outcome outcome = run_tool("");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("[live]"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("Host id"), std::string::npos);
}

TEST(TopoTool, ClusterHasOneRankPerGpu) {
  const Outcome outcome = run_tool(xml("nccl-oci-h100.xml") + "--cluster 4");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("4 nodes, 32 ranks (4 x 8)"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("rail 7: ranks 7 15 23 31  on mlx5_16 + mlx5_17"), std::string::npos)
      << outcome.output;
}

TEST(TopoTool, RailsOnlyHasThePlanAndThePrediction) {
  const Outcome outcome = run_tool(xml("nccl-oci-h100.xml") + "--cluster 2 --rails");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.output.rfind("Rail plan: 2 nodes x 8 ranks", 0), 0u) << outcome.output;
  expect_says(outcome.output, "Predicted alltoall of 2 x 8 ranks (simulated)\n");
  const auto json =
      nlohmann::json::parse(run_tool(xml("nccl-oci-h100.xml") + "--cluster 2 --json").output, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["rail_plan"]["places"][7]["nics"], (std::vector<int>{14, 15}));
  EXPECT_EQ(json["forecast"]["alltoall"].size(), 4u);
}

TEST(TopoTool, UnequalAndHugeClustersHaveNoPredictionAndSayWhy) {
  expect_says(run_tool("--ranks 3,5").output, "No prediction: times are predicted for equal nodes only");
  expect_says(run_tool(xml("nccl-oci-h100.xml") + "--cluster 1000 --rails").output,
              "No prediction: plans of 1000 x 8 ranks have ");
  const auto json = nlohmann::json::parse(run_tool("--ranks 3,5 --json").output, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["no_forecast"], "times are predicted for equal nodes only");
  EXPECT_FALSE(json.contains("forecast"));
}

TEST(TopoTool, SettingsThatCannotBeReadAreWhyThereIsNoPrediction) {
  setenv("EPCCL_CHUNK_SIZE", "many", 1);
  const Outcome outcome = run_tool(xml("nccl-oci-h100.xml") + "--cluster 2 --rails");
  unsetenv("EPCCL_CHUNK_SIZE");
  EXPECT_EQ(outcome.exit_code, 0);
  expect_says(outcome.output, "Rail plan: 2 nodes x 8 ranks");
  expect_says(outcome.output, "No prediction: EPCCL_CHUNK_SIZE");
}

TEST(TopoTool, TheForecastKnowsTheRateThatIsSet) {
  setenv("EPCCL_LINK_RATE", "8gbit", 1);
  const Outcome outcome = run_tool(xml("hwloc-dgx2.xml") + "--cluster 2 --rails");
  unsetenv("EPCCL_LINK_RATE");
  expect_says(outcome.output, "taken: 1 GB/s a node, as EPCCL_LINK_RATE says\n");
}

TEST(TopoTool, ALargeClusterTakesLittleMemoryAndTime) {
  // As a limit of 2 GB says, which sanitizers cannot work with.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const Outcome outcome = run_program("ulimit -v 2000000; ",
                                      xml("nccl-oci-h100.xml") + "--cluster 1000 --ranks-per-node 1 --rails");
  EXPECT_EQ(outcome.exit_code, 0);
  expect_says(outcome.output, "Rail plan: 1000 nodes x 1 rank, 2 of 16 NICs in use");
  expect_says(outcome.output, "up to 500 nodes of 1 ranks would do");
#endif
}

TEST(TopoTool, MemoryThatIsNotToBeHadIsAnError) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const std::string huge = xml("nccl-oci-h100.xml") + "--cluster 1000000 --ranks-per-node 1 --json";
  EXPECT_EQ(run_program("ulimit -v 300000; ", huge).exit_code, 1);
  expect_says(run_program("ulimit -v 300000; ", huge, true).output, "epccl-topo: out of memory\n");
#endif
}

TEST(TopoTool, OneIsNotMany) {
  const std::string text = run_tool(xml("nccl-oci-h100.xml") + "--cluster 1 --ranks-per-node 1").output;
  for (const char* part : {"1 node, 1 rank (1 x 1)", "\n1 rail\n", "Rail plan: 1 node x 1 rank, "})
    expect_says(text, part);
}

TEST(TopoTool, UnequalNodesAndJson) {
  const Outcome outcome = run_tool(xml("hwloc-dgx2.xml") + "--ranks 3,5 --json");
  EXPECT_EQ(outcome.exit_code, 0);
  const auto json = nlohmann::json::parse(outcome.output, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << outcome.output;
  EXPECT_EQ(json["machine"]["gpus"].size(), 16u);
  EXPECT_EQ(json["cluster"]["ranks"].size(), 8u);
  EXPECT_EQ(json["cluster"]["rails"][4], std::vector<int>{7});
}

TEST(TopoTool, ErrorsGoToStderrWithCode1AndWrongUsageWithCode2) {
  for (const auto& [arguments, code] : {std::pair<std::string, int>("--xml /nonexistent.xml", 1),
                                        {"--cluster 1000000 --ranks-per-node 1000000", 1},
                                        {"--ranks 3,-5", 2},
                                        {"--ranks 0", 2},
                                        {"--ranks x", 2},
                                        {"--ranks 3,,5", 2},
                                        {"--ranks 3,5,", 2},
                                        {"--ranks ,3", 2},
                                        {"--ranks ''", 2},
                                        {"--ranks 3,1048577", 2},
                                        {"--cluster 0", 2},
                                        {"--cluster 2 --ranks 3,5", 2},
                                        {"--ranks-per-node 4", 2},
                                        {"--rails", 2},
                                        {"--no-such-option", 2},
                                        {"--check --xml machine.xml", 2},
                                        {"stray", 2}}) {
    EXPECT_EQ(run_tool(arguments).exit_code, code) << arguments;
    EXPECT_EQ(run_tool(arguments).output, "") << arguments;
    EXPECT_FALSE(run_tool(arguments, true).output.empty()) << arguments;
  }
  EXPECT_NE(run_tool("--xml /nonexistent.xml", true).output.find("epccl-topo: cannot open /nonexistent.xml"),
            std::string::npos);
}

TEST(TopoTool, WrongUsageIsALineThatNamesTheOption) {
  EXPECT_EQ(run_tool("--no-such-option", true).output,
            "epccl-topo: The following argument was not expected: --no-such-option (--help lists what there "
            "is)\n");
  expect_says(run_tool("--xml ''", true).output, "--xml: want the name of a file");
  EXPECT_EQ(run_tool("--version").output, "epccl-topo " EPCCL_VERSION_STRING "\n");
}

TEST(TopoTool, HelpExplainsItself) {
  const Outcome outcome = run_tool("--help");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* option : {"--xml", "--json", "--matrix", "--cluster", "--ranks", "--timeline"})
    EXPECT_NE(outcome.output.find(option), std::string::npos) << option;
}

std::string whole_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TopoTool, DrawsWhatTheLibraryTakes) {
  const std::string file = testing::TempDir() + fmt::format("epccl_timeline_{}.svg", getpid());
  const std::string drawn = " --timeline '" + file + "'",
                    arguments = xml("nccl-oci-h100.xml") + "--cluster 2" + drawn;
  const Outcome outcome = run_tool(arguments + " --size 4K");
  EXPECT_EQ(outcome.exit_code, 0);
  expect_says(outcome.output, "Predicted alltoall of 2 x 8 ranks");
  expect_says(whole_file(file), ": 16 ranks on 2 nodes, ");
  expect_says(run_program("EPCCL_ALGO=two_stage ", arguments).output, "EPCCL_ALGO=two_stage");
  expect_says(whole_file(file), "two_stage: 16 ranks");
  expect_says(run_tool(xml("nccl-oci-h100.xml") + "--cluster 40" + drawn, true).output,
              "a picture up to 100000");
  unlink(file.c_str());
  EXPECT_NE(run_tool("--cluster 2 --timeline /nowhere/run.svg").exit_code, 0);
  expect_says(run_tool("--cluster 2 --timeline /nowhere/run.svg", true).output, "writing /nowhere/run.svg: ");
  expect_says(run_tool("--timeline run.svg", true).output, "requires --cluster");
  expect_says(run_tool("--cluster 2 --timeline run.svg --size 0", true).output, "--size");
  expect_says(run_tool("--cluster 2 --check --timeline run.svg", true).output, "--check excludes --timeline");
}

}  // namespace
}  // namespace epccl::tools
