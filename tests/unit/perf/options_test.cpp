#include "perf/src/options.hpp"

#include <gtest/gtest.h>

#include "perf/src/operation_first.hpp"

namespace epccl::perf {
namespace {

Result<CommandLine> parse(const std::vector<const char*>& arguments, const std::string& environment_rate = "",
                          const std::string& algorithm = "auto") {
  std::vector<const char*> argv = {"epccl-perf"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return parse_command_line(static_cast<int>(argv.size()), argv.data(), environment_rate, algorithm);
}

Options options_of(const std::vector<const char*>& arguments) {
  const auto line = parse(arguments);
  EXPECT_TRUE(line.ok()) << line.status().message();
  return line.ok() ? line->options : Options{};
}

std::string error_of(const std::vector<const char*>& arguments, const std::string& environment_rate = "") {
  const auto line = parse(arguments, environment_rate);
  EXPECT_FALSE(line.ok());
  return line.status().message();
}

TEST(Options, HaveTheDefaultsOfNcclTests) {
  const Options o = options_of({"alltoall"});
  EXPECT_EQ(o.operation, Operation::alltoall);
  EXPECT_EQ(o.sweep.first, 32u << 20);
  EXPECT_EQ(o.sweep.last, 32u << 20);
  EXPECT_EQ(o.sweep.step, 1u << 20);
  EXPECT_EQ(o.sweep.factor, 0u);
  EXPECT_EQ(o.iterations, 20);
  EXPECT_EQ(o.warmup, 5);
  EXPECT_TRUE(o.check);
  EXPECT_FALSE(o.registered);
  EXPECT_FALSE(o.stream);
  ASSERT_EQ(o.datatypes.size(), 1u);
  EXPECT_STREQ(o.datatypes[0].name, "float");
  EXPECT_EQ(o.algorithms, std::vector<std::string>{"auto"});
  EXPECT_EQ(o.average, Average::maximum);
  EXPECT_FALSE(o.link_rate);
  EXPECT_EQ(o.group_calls, 1);
}

TEST(Options, AlgorithmIsTheEnvironmentsUnlessTyped) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(parse({"alltoall"}, "", "two_stage")->options.algorithms, Names{"two_stage"});
  EXPECT_EQ(parse({"alltoall", "--algo", "flat"}, "", "two_stage")->options.algorithms, Names{"flat"});
  EXPECT_EQ(parse({"alltoall", "--algo", "auto"}, "", "two_stage")->options.algorithms, Names{"auto"});
  EXPECT_EQ(parse({"alltoall", "--grouped"}, "", "flat")->options.algorithms, Names{"flat"});
  const auto wrong = parse({"alltoall"}, "", "threestage");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("EPCCL_ALGO=\"threestage\""), std::string::npos);
}

TEST(Options, UnknownOnesAreNamedWhateverElseIsMissing) {
  for (const std::vector<const char*>& arguments :
       {std::vector{"--bogus"}, std::vector{"alltoall", "--bogus"}})
    EXPECT_NE(error_of(arguments).find("--bogus"), std::string::npos) << error_of(arguments);
  EXPECT_NE(error_of({}).find("which operation"), std::string::npos) << error_of({});
  EXPECT_NE(error_of({"--minbytes"}).find("--minbytes"), std::string::npos);
  EXPECT_EQ(parse({"--version"})->help, "epccl-perf " EPCCL_VERSION_STRING);
}

// As in nccl-tests, of whose scripts some give both.
TEST(Options, TheStepFactorWinsOverStepBytes) {
  const Options both = options_of({"alltoall", "-b", "8", "-e", "64", "-i", "8", "-f", "2"});
  EXPECT_EQ(sweep_sizes(both.sweep, 4), (std::vector<uint64_t>{8, 16, 32, 64}));
  const Options one = options_of({"alltoall", "-b", "8", "-e", "24", "-i", "8", "-f", "1"});
  EXPECT_EQ(sweep_sizes(one.sweep, 4), (std::vector<uint64_t>{8, 16, 24}));
  EXPECT_EQ(options_of({"alltoall", "-i", "0", "-f", "2"}).sweep.factor, 2U);
}

TEST(Options, ThatComeLaterCount) {
  EXPECT_EQ(options_of({"alltoall", "-b", "8", "-b", "16"}).sweep.first, 16U);
  EXPECT_EQ(options_of({"alltoall", "-n", "5", "--iters", "7"}).iterations, 7);
  EXPECT_NE(error_of({"alltoall", "allreduce"}).find("allreduce"), std::string::npos);
}

TEST(Options, MayBeEmptyWhereALaterOneCounts) {
  EXPECT_EQ(options_of({"alltoall", "-b", "", "-b", "16"}).sweep.first, 16U);
  EXPECT_TRUE(options_of({"alltoall", "--overlap"}).overlap) << "its value may be left out";
}

TEST(Options, MayComeBeforeTheOperation) {
  EXPECT_EQ(options_of({"-n", "5", "-b4K", "--algo=flat", "allreduce"}).operation, Operation::allreduce);
  EXPECT_EQ(options_of({"--overlap", "alltoall", "-b", "1M"}).operation, Operation::alltoall);
  EXPECT_TRUE(options_of({"--overlap", "alltoall", "-b", "1M"}).overlap);
  EXPECT_EQ(options_of({"--overlap", "gemm", "alltoall"}).operation, Operation::alltoall);
  EXPECT_NE(error_of({"--overlap", "fft", "alltoall"}).find("--overlap fft"), std::string::npos);
  EXPECT_EQ(options_of({"-J", "alltoall", "--stream", "reduce"}).output_file, "alltoall");
}

TEST(Options, FindTheOperationOfMoeAmongThem) {
  const auto first = [](std::vector<const char*> words) {
    words.insert(words.begin(), "epccl-perf");
    const auto found = operation_first(static_cast<int>(words.size()), words.data());
    EXPECT_EQ(found.size(), words.size());
    return found.size() > 1 ? std::string(found[1]) : "";
  };
  EXPECT_EQ(first({"-n", "5", "moe", "--tokens", "8"}), "moe");
  EXPECT_EQ(first({"--tokens", "8", "--fp8", "dispatch"}), "dispatch");
  EXPECT_EQ(first({"--help", "moe"}), "moe");
  EXPECT_EQ(first({"--overlap", "moe"}), "moe");
  EXPECT_EQ(first({"-J", "moe", "allreduce"}), "allreduce");
  EXPECT_EQ(first({"--help"}), "--help");
  EXPECT_EQ(first({}), "");
}

TEST(Options, UnexpectedOnesAreListedInTheirOrder) {
  EXPECT_EQ(error_of({"alltoall", "--tokens", "8", "-b", "4", "x"}),
            "unexpected arguments: --tokens 8 x (--help lists what there is)");
}

TEST(Options, NameWhoMovesTheData) {
  EXPECT_EQ(options_of({"alltoall"}).engines, std::vector<std::string>{""});
  EXPECT_EQ(options_of({"alltoall", "--copy-engine", "always"}).engines, std::vector<std::string>{"always"});
  EXPECT_EQ(options_of({"alltoall", "--copy-engine", "all", "--device", "host"}).engines,
            (std::vector<std::string>{"never", "always"}));
  EXPECT_NE(error_of({"alltoall", "--copy-engine", "often"}).find("--copy-engine often"), std::string::npos);
  EXPECT_EQ(options_of({"alltoall", "--device", "cuda", "-G", "3"}).graph_launches, 3);
  EXPECT_EQ(options_of({"alltoall", "--device", "cuda", "--cudagraph", "4"}).graph_launches, 4);
  EXPECT_EQ(options_of({"alltoall", "-G", "0"}).graph_launches, 0);
  EXPECT_NE(error_of({"alltoall", "--device", "tpu"}).find("--device tpu"), std::string::npos);
}

TEST(Options, OverlapWithMatrixProducts) {
  EXPECT_FALSE(options_of({"alltoall"}).overlap);
  EXPECT_EQ(options_of({"alltoall", "--overlap"}).overlap->compute_ratio, 1.2);
  EXPECT_EQ(options_of({"alltoall", "--overlap", "gemm", "--compute-ratio", "3"}).overlap->compute_ratio, 3);
  EXPECT_NE(error_of({"alltoall", "--overlap", "fft"}).find("--overlap fft"), std::string::npos);
  EXPECT_NE(error_of({"alltoall", "--compute-ratio", "3"}).find("--overlap"), std::string::npos);
  EXPECT_EQ(options_of({"alltoall", "--overlap"}).overlap->gemm_size, 8192);
  EXPECT_EQ(options_of({"alltoall", "--overlap", "--device", "cuda", "--gemm-size", "64"}).overlap->gemm_size,
            64);
  EXPECT_NE(error_of({"alltoall", "--gemm-size", "64"}).find("--overlap"), std::string::npos);
  EXPECT_NE(error_of({"alltoall", "--overlap", "--gemm-size", "64"}).find("--device cuda"),
            std::string::npos);
}

TEST(Options, ASplitIsOnlyWhereItIsAskedFor) {
  EXPECT_FALSE(options_of({"allreduce"}).split);
  EXPECT_TRUE(options_of({"allreduce", "--split"}).split);
  EXPECT_NE(describe(options_of({"allreduce", "--split"})), describe(options_of({"allreduce"})));
}

TEST(Options, TakeNcclTestsShortAndLongNames) {
  const Options o = options_of({"alltoallv", "-b", "8", "-e", "4G",        "-f", "2",   "-n", "50",      "-w",
                                "3",         "-c", "0", "-d", "int8,half", "-a", "1",   "-z", "1",       "-R",
                                "1",         "-t", "1", "-g", "1",         "-T", "2.5", "-J", "out.json"});
  EXPECT_EQ(o.operation, Operation::alltoallv);
  EXPECT_EQ(o.sweep.first, 8u);
  EXPECT_EQ(o.sweep.last, uint64_t{4} << 30);
  EXPECT_EQ(o.sweep.factor, 2u);
  EXPECT_EQ(o.iterations, 50);
  EXPECT_EQ(o.warmup, 3);
  EXPECT_FALSE(o.check);
  EXPECT_EQ(o.datatypes.size(), 2u);
  EXPECT_EQ(o.average, Average::mean);
  EXPECT_TRUE(o.blocking);
  EXPECT_TRUE(o.registered);
  EXPECT_EQ(o.timeout, 2.5);
  EXPECT_EQ(o.output_file, "out.json");
  const Options same = options_of({"alltoallv",
                                   "--minbytes",
                                   "8",
                                   "--maxbytes=4G",
                                   "--stepfactor",
                                   "2",
                                   "--iters",
                                   "50",
                                   "--warmup_iters",
                                   "3",
                                   "--check",
                                   "0",
                                   "--datatype",
                                   "int8,half",
                                   "--average",
                                   "1",
                                   "--blocking",
                                   "1",
                                   "--local_register",
                                   "1",
                                   "--nthreads",
                                   "1",
                                   "--ngpus",
                                   "1",
                                   "--timeout",
                                   "2.5",
                                   "--output_file",
                                   "out.json"});
  EXPECT_EQ(describe(same), describe(o));
}

TEST(Options, TakeBytesPerPair) {
  const Options o = options_of({"alltoall", "--per-pair", "-b", "1K", "-e", "4M", "-f", "4"});
  EXPECT_TRUE(o.per_pair);
  EXPECT_EQ(o.sweep.first, 1024u);
  EXPECT_NE(error_of({"alltoall", "--per-pair"}).find("--per-pair: give the sizes"), std::string::npos);
}

TEST(Options, TakeOperationRootAndPlacement) {
  const Options o = options_of({"reduce", "-o", "max,avg", "-r", "3", "--placement", "in"});
  EXPECT_EQ(o.operation, Operation::reduce);
  EXPECT_EQ(o.redops, (std::vector<RedOp>{RedOp::max, RedOp::avg}));
  EXPECT_EQ(o.root, 3);
  EXPECT_FALSE(o.out_of_place);
  EXPECT_TRUE(o.in_place);
  EXPECT_EQ(options_of({"reduce"}).redops, std::vector<RedOp>{RedOp::sum});
  EXPECT_EQ(options_of({"reduce"}).root, 0);
  EXPECT_EQ(options_of({"reduce", "-r", "all"}).root, Options::every_root);
  EXPECT_EQ(options_of({"reduce", "-r", "-1"}).root, Options::every_root);
}

TEST(Options, OneEndBeyondTheDefaultOfTheOtherIsOneSize) {
  EXPECT_EQ(options_of({"alltoall", "-e", "4K"}).sweep.first, 4096u);
  EXPECT_EQ(options_of({"alltoall", "-b", "64M"}).sweep.last, 64u << 20);
}

TEST(Options, WarmUpOnceUnderABudgetUnlessToldOtherwise) {
  EXPECT_EQ(options_of({"alltoall", "--budget", "1.5"}).budget, 1.5);
  EXPECT_EQ(options_of({"alltoall", "--budget", "1.5"}).warmup, 1);
  EXPECT_EQ(options_of({"alltoall", "--budget", "1.5", "-w", "4"}).warmup, 4);
}

TEST(Options, AllAlgorithmsAreFlatTwoStageAuto) {
  EXPECT_EQ(options_of({"alltoall", "--algo", "all"}).algorithms,
            (std::vector<std::string>{"flat", "two_stage", "auto"}));
  EXPECT_EQ(options_of({"alltoall", "--algo", "two_stage"}).algorithms,
            std::vector<std::string>{"two_stage"});
  EXPECT_EQ(options_of({"alltoall", "--algo", "two_stage,flat"}).algorithms,
            (std::vector<std::string>{"two_stage", "flat"}));
  EXPECT_FALSE(parse({"alltoall"}, "", "flat,two_stage").ok()) << "of the environment it is one";
}

TEST(Options, AllDatatypesAreTheLibrarys) {
  EXPECT_EQ(options_of({"alltoall", "-d", "all"}).datatypes.size(), static_cast<size_t>(epcclNumTypes));
  for (int id = 0; id < epcclNumTypes; ++id) EXPECT_EQ(all_datatypes()[static_cast<size_t>(id)].id, id);
  EXPECT_EQ(options_of({"alltoall", "-d", "bf16,bfloat16,fp32"}).datatypes.size(), 2u);
}

TEST(Options, LinkRateComesFromTheCommandLineOrElseTheEnvironment) {
  EXPECT_EQ(parse({"alltoall", "--link-rate", "4gbit"}, "1gbit")->options.link_rate, 4e9);
  EXPECT_EQ(parse({"alltoall"}, "1gbit")->options.link_rate, 1e9);
  EXPECT_EQ(parse({"alltoall", "--link-rate", "none"}, "1gbit")->options.link_rate, std::nullopt);
  EXPECT_FALSE(parse({"alltoall"}, "none").ok()) << "the library refuses it";
}

TEST(Options, HelpExplainsEveryOptionAndIsNoError) {
  const auto line = parse({"--help"});
  ASSERT_TRUE(line.ok());
  for (const char* option :
       {"-b,",         "-e,",        "-f,",      "-i,",           "-n,",         "-w,",       "-c,",
        "-J,",         "-d,",        "-a,",      "-z,",           "-R,",         "-t,",       "-g,",
        "-T,",         "--algo",     "-o,",      "-r,",           "--placement", "--pattern", "--budget",
        "--link-rate", "--per-pair", "--stream", "Not supported", "busbw"}) {
    EXPECT_NE(line->help.find(option), std::string::npos) << option;
  }
}

struct Bad {
  std::vector<const char*> arguments;
  const char* says;
};
class BadOptions : public testing::TestWithParam<Bad> {};

TEST_P(BadOptions, AreRefusedByName) {
  const std::string message = error_of(GetParam().arguments);
  EXPECT_NE(message.find(GetParam().says), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    CommandLines, BadOptions,
    testing::Values(
        Bad{{}, "operation"}, Bad{{"allreduces"}, "unknown operation \"allreduces\""},
        Bad{{"allreduce", "-o", "add"}, "--op add"}, Bad{{"reduce", "-r", "-2"}, "--root -2"},
        Bad{{"reduce", "-r", "1x"}, "--root 1x"}, Bad{{"reduce", "--placement", "up"}, "--placement up"},
        Bad{{"sendrecv", "--placement", "in"}, "never in place"},
        Bad{{"allreduce", "--per-pair", "-b", "8"}, "--per-pair"},
        Bad{{"moe"}, "dispatch, combine, moe or links"},
        Bad{{"alltoall", "--budget", "1", "-n", "3"}, "--iters: not with --budget"},
        Bad{{"alltoall", "-J", ""}, "--output_file \"\": want a value"},
        Bad{{"alltoall", "-b", ""}, "--minbytes \"\": want a value"},
        Bad{{"alltoall", "-b", "8", "-b", ""}, "--minbytes \"\": want a value"},
        Bad{{"alltoall", "--algo", ""}, "--algo \"\": want a value"},
        Bad{{"alltoall", "--copy-engine", ""}, "--copy-engine \"\": want a value"},
        Bad{{"alltoall", "-b", "1.3K"}, "--minbytes"},
        Bad{{"alltoall", "--algo", "flat,ring"}, "--algo flat,ring"},
        Bad{{"alltoall", "--algo", "flat,"}, "--algo flat,:"},
        Bad{{"alltoall", "--in-a-row", "2", "--overlap"}, "--in-a-row: not with"},
        Bad{{"alltoall", "--in-a-row", "2", "--split"}, "--in-a-row: not with"},
        Bad{{"alltoall", "-S", "1"}, "-S"}, Bad{{"alltoall", "-G", "1"}, "--graph needs --device cuda"},
        Bad{{"alltoall", "-G", "1", "--device", "cuda", "--split"}, "--split: not with --graph"},
        Bad{{"alltoall", "--overlap", "--split"}, "--split: not with --overlap"},
        Bad{{"alltoall", "-G", "-1", "--device", "cuda"}, "--graph -1"},
        Bad{{"alltoall", "-G", "1", "--device", "cuda", "--in-a-row", "2"}, "--in-a-row"},
        Bad{{"alltoall", "-G", "1", "--device", "cuda", "--budget", "1"}, "--budget"},
        Bad{{"alltoall", "--agg_iters", "0"}, "--agg_iters 0"},
        Bad{{"alltoall", "-m", "2", "--overlap"}, "--agg_iters"},
        Bad{{"alltoall", "-m", "2", "--split"}, "--agg_iters"},
        Bad{{"alltoall", "-G", "1", "--device", "cuda", "-m", "2"}, "--agg_iters"},
        Bad{{"alltoall", "-N", "2"}, "-N"}, Bad{{"alltoall", "alltoallv"}, "alltoallv"},
        Bad{{"alltoall", "-b", "4Q"}, "--minbytes"}, Bad{{"alltoall", "-e", "-5"}, "-"},
        Bad{{"alltoall", "-b", "17T"}, "more than 16T"},
        Bad{{"alltoall", "-b", "2M", "-e", "1M"}, "--minbytes 2M is more than --maxbytes 1M"},
        Bad{{"alltoall", "-f", "0"}, "--stepfactor 0"}, Bad{{"reduce", "--in-a-row", "0"}, "--in-a-row 0"},
        Bad{{"alltoall", "-i", "0"}, "--stepbytes 0"}, Bad{{"alltoall", "-n", "0"}, "--iters 0"},
        Bad{{"alltoall", "-n", "x"}, "iters"}, Bad{{"alltoall", "-w", "-1"}, "warmup"},
        Bad{{"alltoall", "-c", "2"}, "--check 2"}, Bad{{"alltoall", "-a", "4"}, "--average 4"},
        Bad{{"alltoall", "-t", "2"}, "--nthreads 2: only 1"},
        Bad{{"alltoall", "-g", "8"}, "--ngpus 8: only 1"}, Bad{{"alltoall", "-R", "2"}, "--local_register 2"},
        Bad{{"alltoall", "-d", "float7"}, "float7"}, Bad{{"alltoall", "-d", ""}, "datatype"},
        Bad{{"alltoall", "--algo", "ring"}, "--algo ring"},
        Bad{{"alltoall", "--pattern", "zipf:1"}, "only alltoallv"},
        Bad{{"alltoallv", "--pattern", "hot"}, "unknown pattern"},
        Bad{{"alltoall", "--budget", "0"}, "--budget 0"}, Bad{{"alltoall", "-T", "-1"}, "--timeout"},
        Bad{{"alltoall", "--link-rate", "fast"}, "--link-rate"}));

TEST(Options, NameTheEnvironmentVariableThatIsWrong) {
  EXPECT_NE(error_of({"alltoall"}, "fast").find("EPCCL_LINK_RATE"), std::string::npos);
}

TEST(Options, DescriptionsDifferWhereRanksWouldDisagree) {
  const std::string plain = describe(options_of({"alltoall"}));
  for (const std::vector<const char*>& other :
       std::vector<std::vector<const char*>>{{"alltoallv"},
                                             {"alltoall", "-e", "1M"},
                                             {"alltoall", "-n", "9"},
                                             {"alltoall", "-w", "9"},
                                             {"alltoall", "-c", "0"},
                                             {"alltoall", "-d", "int8"},
                                             {"alltoall", "--algo", "flat"},
                                             {"alltoall", "--budget", "1"},
                                             {"alltoall", "-o", "max"},
                                             {"alltoall", "-r", "1"},
                                             {"alltoall", "--placement", "out"},
                                             {"alltoallv", "--pattern", "zipf:1"}}) {
    EXPECT_NE(describe(options_of(other)), plain);
  }
  EXPECT_EQ(describe(options_of({"alltoall", "-J", "x.json"})), plain);
}

}  // namespace
}  // namespace epccl::perf
