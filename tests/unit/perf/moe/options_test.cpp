#include "perf/src/moe/options.hpp"

#include <gtest/gtest.h>

namespace epccl::perf::moe {
namespace {

Result<CommandLine> parse(const std::vector<const char*>& arguments) {
  std::vector<const char*> argv = {"epccl-perf"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return parse_command_line(static_cast<int>(argv.size()), argv.data(), "");
}

Options options_of(const std::vector<const char*>& arguments) {
  const auto line = parse(arguments);
  EXPECT_TRUE(line.ok()) << line.status().message();
  return line.ok() ? line->options : Options{};
}

std::string error_of(const std::vector<const char*>& arguments) {
  const auto line = parse(arguments);
  EXPECT_FALSE(line.ok());
  return line.status().message();
}

TEST(MoeOptions, HaveDefaults) {
  const Options o = options_of({"moe"});
  EXPECT_EQ(o.operation, Operation::moe);
  EXPECT_EQ(o.tokens, std::vector<uint32_t>{128});
  EXPECT_EQ(o.shape.experts, 64u);
  EXPECT_EQ(o.shape.topk, 8u);
  EXPECT_EQ(o.shape.hidden, 2048u);
  EXPECT_EQ(o.shape.routing, RoutingRule{});
  EXPECT_EQ(o.type.id, epcclBfloat16);
  EXPECT_EQ(o.layout, Layout::flat);
  EXPECT_EQ(o.strategies, std::vector<epcclEpStrategy_t>{EPCCL_EP_STRATEGY_AUTO});
  EXPECT_FALSE(o.fp8);
  EXPECT_FALSE(o.weights);
  EXPECT_TRUE(o.registered);
  EXPECT_TRUE(o.check);
  EXPECT_EQ(o.iterations, 20);
  EXPECT_FALSE(o.matrix);
  EXPECT_FALSE(o.overlap);
}

TEST(MoeOptions, ComputeALittleLongerThanTheCallsUnlessTold) {
  EXPECT_EQ(options_of({"moe", "--overlap"}).overlap->compute_ratio, 1.2);
  EXPECT_EQ(options_of({"dispatch", "--overlap", "--compute-ratio", "0.5"}).overlap->compute_ratio, 0.5);
  EXPECT_EQ(error_of({"moe", "--compute-ratio", "2"}), "--compute-ratio needs --overlap");
  EXPECT_TRUE(options_of({"moe", "--overlap", "--overlap-sockets"}).beside_sockets);
  EXPECT_EQ(error_of({"moe", "--overlap-sockets"}), "--overlap-sockets needs --overlap");
  EXPECT_EQ(error_of({"moe", "--overlap", "--compute-ratio", "0"}), "--compute-ratio 0: want 0.01 to 100");
  EXPECT_EQ(error_of({"moe", "--overlap", "--compute-ratio", "nan"}),
            "--compute-ratio nan: want 0.01 to 100");
  EXPECT_EQ(error_of({"moe", "--overlap", "--write-matrix", "file", "--ranks", "2"}),
            "--overlap measures, --write-matrix runs nothing");
}

TEST(MoeOptions, OfTheHelpAreThoseThatAreTaken) {
  EXPECT_EQ(options_of({"moe", "--copy-engine", "never"}).engines, std::vector<std::string>{"never"});
  const std::string help = parse({"moe", "--help"})->help;
  const size_t engine = help.find("--copy-engine");
  ASSERT_NE(engine, std::string::npos);
  EXPECT_EQ(help.substr(engine, help.find("--overlap", engine) - engine).find("all"), std::string::npos)
      << help;
}

TEST(MoeOptions, MayComeBeforeTheOperation) {
  EXPECT_EQ(options_of({"-n", "5", "dispatch", "--tokens", "8"}).operation, Operation::dispatch);
  EXPECT_EQ(options_of({"--tokens", "8", "--overlap", "moe"}).tokens, std::vector<uint32_t>{8});
  EXPECT_EQ(error_of({"-b", "4", "moe", "x"}),
            "unexpected arguments: -b 4 x (moe --help lists what there is)");
}

TEST(MoeOptions, RanksMustAgreeOnTheOverlap) {
  const std::string plain = describe(options_of({"moe"}));
  const std::string overlap = describe(options_of({"moe", "--overlap"}));
  EXPECT_NE(plain, overlap);
  EXPECT_NE(overlap, describe(options_of({"moe", "--overlap", "--compute-ratio", "2"})));
}

TEST(MoeOptions, TakeEverything) {
  const Options o = options_of({"dispatch",
                                "--tokens",
                                "64,128",
                                "--hidden",
                                "512",
                                "--type",
                                "float16",
                                "--fp8",
                                "--experts",
                                "16",
                                "--topk",
                                "4",
                                "--routing",
                                "zipf:1",
                                "--layout",
                                "rank-major",
                                "--ep-strategy",
                                "dedup,flat",
                                "--seed",
                                "9",
                                "--weights",
                                "-n",
                                "3",
                                "-w",
                                "1",
                                "-c",
                                "0",
                                "-R",
                                "0",
                                "-J",
                                "x.json",
                                "--link-rate",
                                "4gbit"});
  EXPECT_EQ(o.operation, Operation::dispatch);
  EXPECT_EQ(o.tokens, (std::vector<uint32_t>{64, 128}));
  EXPECT_EQ(o.shape.hidden, 512u);
  EXPECT_EQ(o.shape.experts, 16u);
  EXPECT_EQ(o.shape.topk, 4u);
  EXPECT_EQ(o.shape.routing.kind, RoutingRule::Kind::zipf);
  EXPECT_EQ(o.type.id, epcclFloat16);
  EXPECT_EQ(o.layout, Layout::rank_major);
  EXPECT_EQ(o.strategies, (std::vector<epcclEpStrategy_t>{EPCCL_EP_STRATEGY_DEDUP, EPCCL_EP_STRATEGY_FLAT}));
  EXPECT_EQ(o.seed, 9u);
  EXPECT_TRUE(o.fp8 && o.weights);
  EXPECT_EQ(o.iterations, 3);
  EXPECT_EQ(o.warmup, 1);
  EXPECT_FALSE(o.check || o.registered);
  EXPECT_EQ(o.output_file, "x.json");
  EXPECT_EQ(o.link_rate, 4e9);
}

TEST(MoeOptions, AllStrategiesAreTheThreeAndAuto) {
  EXPECT_EQ(options_of({"moe", "--ep-strategy", "all"}).strategies.size(), 4u);
}

TEST(MoeOptions, KnowTheBytesOfRows) {
  const Options plain = options_of({"moe", "--hidden", "300"});
  EXPECT_EQ(plain.dispatch_row_bytes(), 600u);
  EXPECT_EQ(plain.combine_row_bytes(), 600u);
  const Options fp8 = options_of({"moe", "--hidden", "300", "--fp8", "--weights", "--topk", "4"});
  EXPECT_EQ(fp8.dispatched_token_bytes(), 300u + 3 * 4);
  EXPECT_EQ(fp8.dispatch_row_bytes(), 300u + 3 * 4 + 4 * 4);
  EXPECT_EQ(fp8.combine_row_bytes(), 600u);
}

TEST(Shapes, SetWhatIsNotTyped) {
  const Options o = options_of({"moe", "--shape", "deepseek-v3"});
  EXPECT_EQ(o.shape.experts, 256u);
  EXPECT_EQ(o.shape.topk, 8u);
  EXPECT_EQ(o.shape.hidden, 7168u);
  EXPECT_EQ(to_string(o.shape.routing), "groups:4/8");
  EXPECT_EQ(options_of({"moe", "--shape", "deepseek-v3-small"}).shape.hidden, 2048u);
  const Options other =
      options_of({"moe", "--shape", "deepseek-v3", "--hidden", "64", "--routing", "uniform", "--topk", "2"});
  EXPECT_EQ(other.shape.hidden, 64u);
  EXPECT_EQ(other.shape.topk, 2u);
  EXPECT_EQ(other.shape.experts, 256u);
  EXPECT_EQ(other.shape.routing, RoutingRule{});
}

TEST(Shapes, AreAllPossible) {
  for (const NamedShape& each : named_shapes()) {
    EXPECT_TRUE(check_routing(each.shape.routing, each.shape.experts, each.shape.topk).ok()) << each.name;
    EXPECT_EQ(find_shape(each.name)->hidden, each.shape.hidden);
  }
}

TEST(MoeOptions, LeaveTokensAndTopkToATrace) {
  const Options o =
      options_of({"moe", "--routing", "trace:t.jsonl", "--trace-step", "3", "--trace-layer", "0"});
  EXPECT_TRUE(o.tokens.empty());
  EXPECT_EQ(o.shape.topk, 0u);
  EXPECT_EQ(o.trace.step, 3);
  EXPECT_EQ(o.trace.layer, 0);
  EXPECT_EQ(options_of({"moe", "--routing", "trace:t.jsonl", "--topk", "3"}).shape.topk, 3u);
}

TEST(MoeOptions, TakeAMatrix) {
  const Options o = options_of({"moe", "--write-matrix", "m.txt", "--ranks", "16", "--copies", "expert"});
  ASSERT_TRUE(o.matrix);
  EXPECT_EQ(o.matrix->file, "m.txt");
  EXPECT_EQ(o.matrix->ranks, 16);
  EXPECT_EQ(o.matrix->copies, Copies::expert);
  EXPECT_EQ(options_of({"moe", "--write-matrix", "m.txt", "--ranks", "2"}).matrix->copies, Copies::rank);
}

TEST(MoeOptions, HelpExplainsEveryOption) {
  const auto line = parse({"moe", "--help"});
  ASSERT_TRUE(line.ok());
  for (const char* word : {"--tokens",
                           "--hidden",
                           "--type",
                           "--fp8",
                           "--experts",
                           "--topk",
                           "--routing",
                           "--layout",
                           "--ep-strategy",
                           "--shape",
                           "--seed",
                           "--weights",
                           "--write-matrix",
                           "--ranks",
                           "--copies",
                           "-n,",
                           "-w,",
                           "-c,",
                           "-J,",
                           "--budget",
                           "zipf:<s>",
                           "groups:<m>/<g>",
                           "hot:<n>",
                           "trace:<path>",
                           "deepseek-v3-small",
                           "algbw",
                           "imbal"}) {
    EXPECT_NE(line->help.find(word), std::string::npos) << word;
  }
}

TEST(MoeOptions, KnowTheVersion) {
  const auto line = parse({"moe", "--version"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_EQ(line->help, "epccl-perf " EPCCL_VERSION_STRING);
}

struct Bad {
  std::vector<const char*> arguments;
  const char* says;
};
class BadMoeOptions : public testing::TestWithParam<Bad> {};

TEST_P(BadMoeOptions, AreRefusedByName) {
  const std::string message = error_of(GetParam().arguments);
  EXPECT_NE(message.find(GetParam().says), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    CommandLines, BadMoeOptions,
    testing::Values(
        Bad{{"moe", "--tokens", "0"}, "--tokens 0"}, Bad{{"moe", "--tokens", "1,"}, "--tokens 1,"},
        Bad{{"moe", "--seed", "-1"}, "--seed -1"}, Bad{{"moe", "--seed", "99999999999999999999"}, "--seed"},
        Bad{{"moe", "--trace-step", "99999999999999999999"}, "--trace-step"},
        Bad{{"moe", "--tokens", "4K"}, "--tokens 4K"}, Bad{{"moe", "--tokens", "99999999"}, "--tokens"},
        Bad{{"moe", "--hidden", "0"}, "--hidden 0"}, Bad{{"moe", "--experts", "x"}, "experts"},
        Bad{{"moe", "--topk", "65"}, "--topk 65: want 1 to 64"},
        Bad{{"moe", "--topk", "9", "--experts", "8"}, "--topk 9"},
        Bad{{"moe", "--type", "int8"}, "--type int8"}, Bad{{"moe", "--type", "all"}, "--type all"},
        Bad{{"moe", "--type", "float7"}, "--type float7"},
        Bad{{"moe", "--routing", "even"}, "unknown routing"},
        Bad{{"moe", "--shape", "deepseek-v3", "--experts", "100"}, "100 experts are not 8 groups"},
        Bad{{"moe", "--shape", "gpt"}, "--shape gpt: want one of deepseek-v3,"},
        Bad{{"moe", "--static"}, "--static needs --layout rank-major"},
        Bad{{"moe", "--layout", "expert-major", "--undefined-padding"},
            "--undefined-padding is for --static --layout expert-major"},
        Bad{{"moe", "--static", "--layout", "rank-major", "--undefined-padding"},
            "--undefined-padding is for --static --layout expert-major"},
        Bad{{"moe", "--layout", "rank"}, "--layout rank: want one of flat, expert-major, rank-major"},
        Bad{{"moe", "--ep-strategy", "ring"}, "--ep-strategy ring"},
        Bad{{"moe", "--ep-strategy", "flat,"}, "--ep-strategy"},
        Bad{{"moe", "--trace-step", "1"}, "need --routing trace"},
        Bad{{"moe", "--ranks", "4"}, "--write-matrix"},
        Bad{{"moe", "--write-matrix", ""}, "--write-matrix \"\": want a value"},
        Bad{{"moe", "--shape", ""}, "--shape \"\": want a value"},
        Bad{{"moe", "--copy-engine", "all"}, "--copy-engine all: want auto, always or never"},
        Bad{{"moe", "--write-matrix", "m"}, "give the --ranks"},
        Bad{{"moe", "--write-matrix", "m", "--ranks", "0"}, "--ranks 0"},
        Bad{{"moe", "--write-matrix", "m", "--ranks", "2", "--copies", "node"}, "--copies node"},
        Bad{{"moe", "--write-matrix", "m", "--ranks", "2", "--tokens", "1,2"}, "one number of --tokens"},
        Bad{{"moe", "-n", "0"}, "--iters 0"}, Bad{{"moe", "-b", "4"}, "moe --help"}));

TEST(MoeOptions, DescriptionsDifferWhereRanksWouldDisagree) {
  const std::string plain = describe(options_of({"moe"}));
  for (const std::vector<const char*>& other :
       std::vector<std::vector<const char*>>{{"dispatch"},
                                             {"moe", "--tokens", "64"},
                                             {"moe", "--hidden", "64"},
                                             {"moe", "--experts", "32"},
                                             {"moe", "--topk", "2"},
                                             {"moe", "--routing", "hot:1"},
                                             {"moe", "--seed", "2"},
                                             {"moe", "--type", "float16"},
                                             {"moe", "--fp8"},
                                             {"moe", "--weights"},
                                             {"moe", "--layout", "rank-major"},
                                             {"moe", "--layout", "rank-major", "--static"},
                                             {"moe", "--ep-strategy", "flat"},
                                             {"moe", "-n", "9"}}) {
    EXPECT_NE(describe(options_of(other)), plain);
  }
  EXPECT_NE(describe(options_of({"moe", "--layout", "expert-major", "--static"})),
            describe(options_of({"moe", "--layout", "expert-major", "--static", "--undefined-padding"})));
  EXPECT_EQ(describe(options_of({"moe", "-J", "x.json"})), plain);
  EXPECT_EQ(describe(options_of({"moe", "--routing", "trace:a"})),
            describe(options_of({"moe", "--routing", "trace:b"})));
}

TEST(ParseOperation, KnowsThree) {
  EXPECT_EQ(parse_operation("moe"), Operation::moe);
  EXPECT_EQ(parse_operation("dispatch"), Operation::dispatch);
  EXPECT_EQ(parse_operation("combine"), Operation::combine);
  EXPECT_EQ(parse_operation("alltoall"), std::nullopt);
}

}  // namespace
}  // namespace epccl::perf::moe
