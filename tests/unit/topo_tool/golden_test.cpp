// The rails of every recorded machine and what is predicted for 2 and 4 of it, held by tables in data/.
//
// A table is what `epccl-topo --xml FILE --cluster N --rails` prints. When a change of them is meant,
//   EPCCL_RENEW_TABLES=1 build/bin/test_topo_tool --gtest_filter='*RecordedMachines*'
// writes them anew; the change shows in the diff of data/.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "run_tool.hpp"

namespace epccl::tools {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> machines_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".xml") names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

fs::path table_of(const std::string& machine) {
  return fs::path(EPCCL_RAIL_TABLES) / (machine + ".txt");
}

std::string made_by_the_tool(const fs::path& file) {
  std::string text;
  for (const int nodes : {2, 4}) {
    const Outcome outcome =
        run_tool("--xml '" + file.string() + "' --rails --cluster " + std::to_string(nodes));
    EXPECT_EQ(outcome.exit_code, 0);
    text += (text.empty() ? "" : "\n") + outcome.output;
  }
  return text;
}

class RecordedMachines : public ::testing::TestWithParam<std::string> {};

TEST_P(RecordedMachines, KeepTheirRails) {
  const std::string made = made_by_the_tool(machine_file(GetParam() + ".xml"));
  if (std::getenv("EPCCL_RENEW_TABLES") != nullptr)
    std::ofstream(table_of(GetParam()), std::ios::binary) << made;
  const std::string held = content(table_of(GetParam()));
  ASSERT_FALSE(held.empty()) << table_of(GetParam()) << " is missing; see the head of this file";
  EXPECT_EQ(made, held) << "if this is meant, renew the tables: see the head of this file";
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Rails, RecordedMachines, ::testing::ValuesIn(machines_in(EPCCL_TOPOLOGY_DATA)),
                         test_name);

TEST(RailTables, HaveAMachineEach) {
  const auto machines = machines_in(EPCCL_TOPOLOGY_DATA);
  EXPECT_GE(machines.size(), 7u);
  for (const auto& entry : fs::directory_iterator(EPCCL_RAIL_TABLES))
    EXPECT_NE(std::ranges::find(machines, entry.path().stem().string()), machines.end()) << entry.path();
}

TEST(RailTables, CoverTheSharedRecordings) {
  const auto shared = machines_in(EPCCL_SHARED_TOPOLOGIES);
  if (shared.empty()) GTEST_SKIP() << "no shared/topologies beside the checkout";
  for (const std::string& machine : shared) {
    const fs::path file = fs::path(EPCCL_SHARED_TOPOLOGIES) / (machine + ".xml");
    EXPECT_EQ(made_by_the_tool(file), content(table_of(machine))) << file;
  }
}

/// A rail that moves must not go unnoticed: the NIC of one GPU is taken down, in a copy of the machine.
TEST(RailTables, NoticeARailThatMoves) {
  std::string recorded = content(machine_file("nccl-oci-h100.xml"));
  const std::string rate = "name=\"mlx5_9\" dev=\"8\" speed=\"180000\"";
  const size_t at = recorded.find(rate);
  ASSERT_NE(at, std::string::npos);
  recorded.replace(at, rate.size(), "name=\"mlx5_9\" dev=\"8\" speed=\"100\"");
  const fs::path file = fs::path(::testing::TempDir()) / ("moved-rail-" + std::to_string(getpid()) + ".xml");
  std::ofstream(file, std::ios::binary) << recorded;
  const std::string made = made_by_the_tool(file);
  fs::remove(file);
  EXPECT_NE(made, content(table_of("nccl-oci-h100")));
  expect_says(made, "not used: mlx5_9: less than a tenth as fast as the fastest");
}

}  // namespace
}  // namespace epccl::tools
