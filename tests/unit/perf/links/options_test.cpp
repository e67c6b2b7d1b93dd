// The command line of `epccl-perf links`.
#include "perf/src/links/options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace epccl::perf::links {
namespace {

Result<CommandLine> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "epccl-perf");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

Options options_of(const std::vector<const char*>& words) {
  auto line = parse(words);
  EXPECT_TRUE(line.ok()) << line.status().message();
  return line.ok() ? line->options : Options{};
}

TEST(LinksOptions, HaveDefaults) {
  const Options options = options_of({"links"});
  EXPECT_EQ(options.pairs, Pairs::rails_and_nodes);
  EXPECT_EQ(options.bytes, 4U << 20);
  EXPECT_EQ(options.threshold, 0.75);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_FALSE(options.registered);
}

TEST(LinksOptions, AreTakenAlsoFromBeforeTheOperation) {
  const Options options =
      options_of({"-n", "3", "--pairs", "all", "links", "-b", "64K", "--threshold", "0.5", "-R", "1"});
  EXPECT_EQ(options.iterations, 3);
  EXPECT_EQ(options.pairs, Pairs::all);
  EXPECT_EQ(options.bytes, 64U << 10);
  EXPECT_EQ(options.threshold, 0.5);
  EXPECT_TRUE(options.registered);
}

TEST(LinksOptions, ThatCannotBeAreNamed) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> wrong{
      {{"links", "--pairs", "some"}, "--pairs some: want rails, nodes, rails,nodes or all"},
      {{"links", "-b", "0"}, "--size 0: a message needs bytes"},
      {{"links", "-b", "many"}, "--size"},
      {{"links", "--threshold", "0"}, "--threshold 0: want more than 0, and 1 at most"},
      {{"links", "--threshold", "nan"}, "--threshold nan"},
      {{"links", "-n", "0"}, "--iters"},
      {{"links", "-T", "-1"}, "--timeout -1: want seconds"},
      {{"links", "--device", "gpu"}, "--device gpu: want host or cuda"},
      {{"links", "--ranks-per-gpu", "2"}, "--ranks-per-gpu needs --device cuda"},
      {{"links", "--split"}, "--split"}};
  for (const auto& [words, text] : wrong) {
    const auto line = parse(words);
    ASSERT_FALSE(line.ok()) << text;
    EXPECT_EQ(line.status().code(), Code::invalid_argument);
    EXPECT_NE(line.status().message().find(text), std::string::npos) << line.status().message();
  }
}

TEST(LinksOptions, ThatMustBeEqualAreInTheirDescription) {
  const std::string usual = describe(options_of({"links"}));
  for (const auto& words : {std::vector<const char*>{"links", "-b", "1M"},
                            {"links", "--pairs", "rails"},
                            {"links", "--threshold", "0.6"},
                            {"links", "-n", "7"}})
    EXPECT_NE(describe(options_of(words)), usual);
}

}  // namespace
}  // namespace epccl::perf::links
