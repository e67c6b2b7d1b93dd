#include "perf/src/moe/routing_trace.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace epccl::perf::moe {
namespace {

constexpr const char* two_ranks =
    "{\"step\": 3, \"layer\": 7, \"rank\": 1, \"num_tokens\": 1, \"topk\": 2, \"top_indices\": [[2, 0]], "
    "\"x\": 1}\n"
    "\n"
    "{\"step\": 3, \"layer\": 8, \"rank\": 0, \"num_tokens\": 1, \"topk\": 2, \"top_indices\": [[1, 1]]}\n"
    "{\"step\": 3, \"layer\": 7, \"rank\": 0, \"num_tokens\": 3, \"topk\": 2, \"top_indices\": [5, 1, 0, -1, "
    "3, 4]}\n"
    "{\"step\": 3, \"layer\": 7, \"rank\": 0, \"num_tokens\": 1, \"topk\": 2, \"top_indices\": [[4, 4]]}\n"
    "{\"step\": 4, \"layer\": 8, \"rank\": 0, \"num_tokens\": 1, \"topk\": 2, \"top_indices\": [[6, 7]]}\n"
    "{\"step\": 4, \"layer\": 8, \"rank\": 1, \"num_tokens\": 0, \"topk\": 2, \"top_indices\": []}\n";

Result<RoutingTrace> read(const std::string& text, int ranks = 2, const TraceChoice& choice = {}) {
  std::istringstream lines(text);
  return RoutingTrace::read(lines, "t.jsonl", choice, ranks, 8);
}

std::string error_of(const std::string& text, int ranks = 1) {
  const auto trace = read(text, ranks);
  EXPECT_FALSE(trace.ok());
  return trace.ok() ? "" : trace.status().message();
}

/// A record of rank 0 with these fields after its step, layer and rank.
std::string record(const std::string& fields) {
  return "{\"step\": 0, \"layer\": 0, \"rank\": 0" + fields + "}";
}

TEST(RoutingTrace, TakesTheFirstRecordsStepAndLayer) {
  const auto trace = read(two_ranks);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->step(), 3);
  EXPECT_EQ(trace->layer(), 7);
  EXPECT_EQ(trace->topk(), 2u);
  EXPECT_EQ(trace->most_tokens(), 3u);
  EXPECT_EQ(trace->table(0, 9).experts, (std::vector<int64_t>{5, 1, 0, -1, 3, 4}));
  EXPECT_EQ(trace->table(1, 9).experts, (std::vector<int64_t>{2, 0}));
}

TEST(RoutingTrace, TakesTheStepAndLayerThatIsAskedFor) {
  const auto trace = read(two_ranks, 2, {4, 8});
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->table(0, 9).experts, (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(trace->table(1, 9).tokens, 0u);
}

TEST(RoutingTrace, CutsTablesToTheTokensAskedFor) {
  const auto trace = read(two_ranks);
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->table(0, 2).tokens, 2u);
  EXPECT_EQ(trace->table(0, 2).experts, (std::vector<int64_t>{5, 1, 0, -1}));
  EXPECT_EQ(trace->table(1, 2).tokens, 1u);
}

TEST(RoutingTrace, HashesWhatItHolds) {
  EXPECT_EQ(read(two_ranks)->hash(), read(two_ranks)->hash());
  EXPECT_NE(read(two_ranks)->hash(), read(two_ranks, 2, {4, 8})->hash());
}

TEST(RoutingTrace, NamesTheRankThatIsMissing) {
  EXPECT_EQ(error_of(two_ranks, 3), "routing trace t.jsonl: nothing for rank 2 of 3 in step 3, layer 7");
  EXPECT_EQ(error_of("", 1), "routing trace t.jsonl: nothing for rank 0 of 1 in step ?, layer ?");
}

struct Bad {
  std::string line;
  const char* says;
};
class BadRecords : public testing::TestWithParam<Bad> {};

TEST_P(BadRecords, AreRefusedByLineAndField) {
  const std::string message = error_of("\n" + GetParam().line);
  EXPECT_TRUE(message.starts_with("routing trace t.jsonl: line 2: ")) << message;
  EXPECT_NE(message.find(GetParam().says), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Lines, BadRecords,
    testing::Values(
        Bad{"step 3", "no JSON object"}, Bad{"[1]", "no JSON object"}, Bad{"{\"step\": 1", "no JSON object"},
        Bad{"{\"layer\": 0}", "\"step\" is missing"}, Bad{"{\"step\": \"a\"}", "\"step\" is no integer"},
        Bad{"{\"step\": 0, \"layer\": 0, \"rank\": -1}", "\"rank\" is -1"},
        Bad{record(""), "\"num_tokens\" is missing"},
        Bad{record(", \"num_tokens\": -1"), "\"num_tokens\" is -1"},
        Bad{record(", \"num_tokens\": 1, \"topk\": 65"), "\"topk\" is 65, want 1 to 64"},
        Bad{record(", \"num_tokens\": 1, \"topk\": 2"), "\"top_indices\" is missing"},
        Bad{record(", \"num_tokens\": 1, \"topk\": 2, \"top_indices\": 3"), "\"top_indices\" is no list"},
        Bad{record(", \"num_tokens\": 2, \"topk\": 2, \"top_indices\": [[0, 1]]"),
            "has 1 entries, want 2 (2 tokens)"},
        Bad{record(", \"num_tokens\": 2, \"topk\": 2, \"top_indices\": [0, 1, 2]"),
            "want 4 (2 tokens x top-2)"},
        Bad{record(", \"num_tokens\": 1, \"topk\": 2, \"top_indices\": [[0]]"), "token 0: want a list of 2"},
        Bad{record(", \"num_tokens\": 1, \"topk\": 2, \"top_indices\": [[0, 8]]"),
            "token 0: expert 8, but --experts is 8"},
        Bad{record(", \"num_tokens\": 1, \"topk\": 2, \"top_indices\": [0, -2]"), "token 0: expert -2"},
        Bad{record(", \"num_tokens\": 2, \"topk\": 2, \"top_indices\": [[3, 4], [3, 3]]"),
            "token 1: expert 3 twice"},
        Bad{record(", \"num_tokens\": 2, \"topk\": 2, \"top_indices\": [4, 3, 3, 3]"),
            "token 1: expert 3 twice"},
        Bad{record(", \"num_tokens\": 1, \"topk\": 1, \"top_indices\": [[1.5]]"),
            "token 0: 1.5 is no expert"}));

TEST(RoutingTrace, TakesUnusedEntriesTwiceButNoExpert) {
  const auto trace = read(record(", \"num_tokens\": 2, \"topk\": 2, \"top_indices\": [[-1, -1], [5, 1]]"), 1);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->table(0, 2).experts, (std::vector<int64_t>{-1, -1, 5, 1}));
}

TEST(RoutingTrace, RefusesRanksThatDisagreeOnTopk) {
  const std::string lines =
      "{\"step\": 0, \"layer\": 0, \"rank\": 0, \"num_tokens\": 1, \"topk\": 2, \"top_indices\": [[1, 2]]}\n"
      "{\"step\": 0, \"layer\": 0, \"rank\": 1, \"num_tokens\": 1, \"topk\": 1, \"top_indices\": [[1]]}\n";
  EXPECT_NE(error_of(lines, 2).find("line 2: \"topk\" is 1, but 2 on a rank before"), std::string::npos);
}

TEST(LoadTrace, ReadsAFileOrMegatronsDirectory) {
  const std::filesystem::path directory = testing::TempDir() + "epccl_perf_trace" + std::to_string(getpid());
  std::filesystem::create_directories(directory);
  const auto write = [&](const char* name, int rank) {
    std::ofstream(directory / name) << "{\"step\": 0, \"layer\": 0, \"rank\": " << rank
                                    << ", \"num_tokens\": 1, \"topk\": 1, \"top_indices\": [[" << rank
                                    << "]]}\n";
  };
  write("router_trace_rank0.jsonl", 0);
  write("router_trace_rank1.jsonl", 1);
  const auto both = RoutingTrace::load(directory, {}, 2, 8);
  const auto one = RoutingTrace::load(directory / "router_trace_rank0.jsonl", {}, 1, 8);
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ(both->table(1, 1).experts, std::vector<int64_t>{1});
  EXPECT_TRUE(one.ok());
  const auto missing = RoutingTrace::load(directory, {}, 2, 8);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("No such file"), std::string::npos) << missing.status().message();
}

}  // namespace
}  // namespace epccl::perf::moe
