// docs/nccl-compatibility.md tells of every symbol, and the tests it names are there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace {

struct Row {
  std::string host, cuda, tests;
};

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::map<std::string, Row> rows_of_page() {
  static const std::regex row(R"(\| `(\w+)` \| ([\w ]+) \| ([\w ]+) \| (.*) \|)");
  std::map<std::string, Row> rows;
  std::istringstream page(contents(EPCCL_NCCL_PAGE));
  std::smatch match;
  for (std::string line; std::getline(page, line);)
    if (std::regex_match(line, match, row)) rows[match[1]] = {match[2], match[3], match[4]};
  return rows;
}

/// "Suite.Name" of every test in the tests' sources.
std::set<std::string> names_of_tests() {
  static const std::regex test(R"(\bTEST(_P|_F)?\(\s*(\w+),\s*(\w+)\))");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(EPCCL_TESTS_FOLDER)) {
    if (entry.path().extension() != ".cpp" || entry.path().string().find("nccl") == std::string::npos)
      continue;
    const std::string text = contents(entry.path());
    for (std::sregex_iterator it(text.begin(), text.end(), test); it != std::sregex_iterator(); ++it)
      names.insert((*it)[2].str() + "." + (*it)[3].str());
  }
  return names;
}

TEST(NcclPage, HasARowForEverySymbolAndNoOther) {
  std::set<std::string> symbols{"ncclResetDebugInitInternal"}, on_page;
  for (const char* name : {
#define ROW(result, name, parameters, arguments) #name,
#include "nccl/entry_points.inc"
#undef ROW
       })
    symbols.insert(std::string("nccl") + name);
  for (const auto& [name, row] : rows_of_page()) on_page.insert(name);
  EXPECT_EQ(on_page, symbols);
}

TEST(NcclPage, SaysOfEachWhatItDoesInTheWordsThatItExplains) {
  const std::set<std::string> words{"native", "passed on", "native or passed on", "both", "same", "refused"};
  for (const auto& [name, row] : rows_of_page()) {
    EXPECT_TRUE(words.contains(row.host)) << name << ": " << row.host;
    EXPECT_TRUE(words.contains(row.cuda)) << name << ": " << row.cuda;
  }
}

TEST(NcclPage, NamesTestsThatExist) {
  static const std::regex quoted("`([^`]+)`");
  const std::set<std::string> tests = names_of_tests();
  for (const auto& [name, row] : rows_of_page()) {
    size_t named = 0;
    for (std::sregex_iterator it(row.tests.begin(), row.tests.end(), quoted); it != std::sregex_iterator();
         ++it, ++named)
      EXPECT_TRUE(tests.contains((*it)[1])) << name << ": " << (*it)[1];
    EXPECT_GT(named, 0U) << name;
  }
}

}  // namespace
