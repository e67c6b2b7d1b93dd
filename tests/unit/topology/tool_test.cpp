// epccl-topo as its user runs it.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "test_machine.hpp"

namespace epccl::topology {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string output;
};

/// Output is stdout alone, or stderr alone.
Outcome run_tool(const std::string& arguments, bool errors = false) {
  const std::string command =
      std::string(EPCCL_TOPO_TOOL) + " " + arguments + (errors ? " 2>&1 >/dev/null" : " 2>/dev/null");
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  Outcome outcome;
  std::array<char, 4096> chunk{};
  for (size_t got = 0; (got = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;)
    outcome.output.append(chunk.data(), got);
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

std::string xml(const std::string& name) {
  return "--xml '" + data_file(name) + "' ";
}

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
  EXPECT_NE(outcome.output.find("rail 7: ranks 7 15 23 31  on mlx5_16"), std::string::npos) << outcome.output;
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

TEST(TopoTool, ErrorsGoToStderrWithCode1) {
  for (const std::string arguments :
       {"--xml /nonexistent.xml", "--ranks 3,-5", "--ranks 0", "--ranks x", "--cluster 0",
        "--cluster 2 --ranks 3,5", "--cluster 1000000 --ranks-per-node 1000000", "--ranks-per-node 4",
        "--no-such-option", "stray"}) {
    EXPECT_EQ(run_tool(arguments).exit_code, 1) << arguments;
    EXPECT_EQ(run_tool(arguments).output, "") << arguments;
    EXPECT_FALSE(run_tool(arguments, true).output.empty()) << arguments;
  }
  EXPECT_NE(run_tool("--xml /nonexistent.xml", true).output.find("epccl-topo: cannot open /nonexistent.xml"),
            std::string::npos);
}

TEST(TopoTool, HelpExplainsItself) {
  const Outcome outcome = run_tool("--help");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* option : {"--xml", "--json", "--matrix", "--cluster", "--ranks"})
    EXPECT_NE(outcome.output.find(option), std::string::npos) << option;
}

}  // namespace
}  // namespace epccl::topology
