// Dispatch and combine of random problems between real ranks: every row, weight, index and counter, every bit of every sum.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "layer.hpp"
#include "setting.hpp"

namespace epccl::tests {
namespace {

class DispatchCombine : public testing::TestWithParam<std::vector<int>> {};

void run_problems(const RunOptions& options, int problems) {
  const uint64_t seed = seed_of_this_test();
  run_ranks(options, [&, seed](const RankContext& context) {
    Comm comm(context);
    std::mt19937_64 random(seed);  // the same on every rank
    for (int i = 0; i < problems; ++i) {
      const Problem problem = random_problem(options.ranks_per_node, random);
      SCOPED_TRACE(fmt::format("problem {}: {}", i, problem.text()));
      Layer layer(context, comm, problem);
      layer.update();
      layer.forward(problem.by_expert());
      layer.check_stats();
      layer.forward(false);
      if (problem.by_expert()) layer.backward();
      if (testing::Test::HasFailure()) break;
    }
  });
}

TEST_P(DispatchCombine, GivesWhatTheRoutingSays) {
  run_problems({GetParam(), {}, {}}, 12);
}

TEST_P(DispatchCombine, WorksWithTinyConstants) {
  run_problems({GetParam(),
                {{"EPCCL_CHUNK_SIZE", "1"},
                 {"EPCCL_SCRATCH_SIZE", "1M"},
                 {"EPCCL_EAGER_LIMIT", "16"},
                 {"EPCCL_STREAMING_SIZE", "1"}},
                {}},
               6);
}

TEST_P(DispatchCombine, WorksWhereRanksMayNotReadEachOther) {
  run_problems({GetParam(), {{"EPCCL_CMA", "0"}}, {}}, 4);
}

INSTANTIATE_TEST_SUITE_P(Shapes, DispatchCombine,
                         testing::Values(std::vector<int>{1}, std::vector<int>{4}, std::vector<int>{2, 2},
                                         std::vector<int>{1, 1}, std::vector<int>{3, 1},
                                         std::vector<int>{2, 1, 3}, std::vector<int>{4, 4, 4, 4}),
                         [](const auto& shape) {
                           std::string name;
                           for (const int ranks : shape.param) name += std::to_string(ranks);
                           return name;
                         });

// In which way tokens crossed the network their numbers show, too.
void expect_strategy(const RunOptions& options, epcclEpStrategy_t asked, epcclEpStrategy_t used) {
  const uint64_t seed = seed_of_this_test();
  run_ranks(options, [&](const RankContext& context) {
    Comm comm(context);
    std::mt19937_64 random(seed);
    Problem problem = random_problem(options.ranks_per_node, random);
    problem.strategy = asked;
    Layer layer(context, comm, problem);
    layer.update();
    layer.forward(false);
    layer.check_stats();
    epcclEpStats_t stats = EPCCL_EP_STATS_INIT;
    EXPECT_EQ(epcclEpGetStats(layer.handle(), &stats), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(stats.strategy, used);
  });
}

TEST(EpStrategy, IsThatOfTheEnvironmentWhereTheGroupDoesNotSay) {
  for (const auto& [name, strategy] :
       {std::pair("flat", EPCCL_EP_STRATEGY_FLAT), std::pair("gather", EPCCL_EP_STRATEGY_GATHER),
        std::pair("dedup", EPCCL_EP_STRATEGY_DEDUP)}) {
    const RunOptions options{{2, 2}, {{"EPCCL_EP_STRATEGY", name}}, {}};
    expect_strategy(options, EPCCL_EP_STRATEGY_AUTO, strategy);
    expect_strategy(options, EPCCL_EP_STRATEGY_GATHER, EPCCL_EP_STRATEGY_GATHER);
  }
}

// A handle that is updated again forgets the old routing.
TEST(EpHandle, IsReusedForTheNextRouting) {
  const uint64_t seed = seed_of_this_test();
  run_ranks({{2, 2}, {}, {}}, [seed](const RankContext& context) {
    Comm comm(context);
    std::mt19937_64 random(seed);
    Problem problem = random_problem({2, 2}, random);
    Layer layer(context, comm, problem);
    for (int step = 0; step < 3; ++step) {
      layer.update();
      layer.forward(false);
      reroute(problem, random);
      layer.take(problem);
    }
  });
}

// Of a padded layout most rows only pad: who does not need them zero does not pay for that.
void expect_padding_left_alone(const RunOptions& options) {
  const uint64_t seed = seed_of_this_test();
  run_ranks(options, [&, seed](const RankContext& context) {
    Comm comm(context);
    std::mt19937_64 random(seed);
    Problem problem = padded_problem(options.ranks_per_node, random);
    Layer layer(context, comm, problem);
    for (int step = 0; step < 3; ++step) {
      layer.update();
      layer.forward(true);
      EXPECT_EQ(layer.padding_changed(), 0U) << "step " << step << ": " << problem.text();
      layer.backward();
      reroute(problem, random);
      layer.take(problem);
    }
  });
}

TEST(EpHandle, LeavesPaddingAloneWhereItMayBeAnything) {
  expect_padding_left_alone({{3}, {}, {}});
}

TEST(EpHandle, LeavesPaddingAloneWhereSomethingStandsInForTheOutput) {
  expect_padding_left_alone({{2, 1}, {{"EPCCL_CMA", "0"}}, {}});
}

// One handle in static mode, one that is not, and what is expected: all the same, routing after routing.
TEST_P(DispatchCombine, IsTheSameInStaticMode) {
  const uint64_t seed = seed_of_this_test();
  const RunOptions options{GetParam(), {}, {}};
  run_ranks(options, [&, seed](const RankContext& context) {
    Comm comm(context);
    std::mt19937_64 random(seed);
    for (int i = 0; i < (context.ranks > 8 ? 2 : 4) && !testing::Test::HasFailure(); ++i) {
      Problem problem = random_problem_of_fixed_size(options.ranks_per_node, random);
      Problem fixed = problem;
      fixed.is_static = true;
      Layer dynamic_layer(context, comm, problem), static_layer(context, comm, fixed);
      for (int step = 0; step < 3; ++step) {
        SCOPED_TRACE(fmt::format("problem {}, step {}: {}", i, step, fixed.text()));
        for (Layer* layer : {&dynamic_layer, &static_layer}) {
          layer->update();
          layer->forward(problem.by_expert());
          layer->check_stats();
          if (problem.by_expert()) layer->backward();
        }
        reroute(problem, random);
        fixed = problem;
        fixed.is_static = true;
        dynamic_layer.take(problem);
        static_layer.take(fixed);
      }
    }
  });
}

TEST(EpHandle, TwoAreInUseAtOnce) {
  const uint64_t seed = seed_of_this_test();
  run_ranks({{2, 2}, {}, {}}, [seed](const RankContext& context) {
    Comm comm(context);
    std::mt19937_64 random(seed);
    const Problem first = random_problem({2, 2}, random), second = random_problem({2, 2}, random);
    Layer one(context, comm, first), two(context, comm, second);
    one.update();
    two.update();
    one.forward(false);
    two.forward(false);
    one.forward(first.by_expert());
    two.forward(second.by_expert());
  });
}

// Scales always come by way of the library's memory.
TEST(Fp8, LeavesScalesOfPaddingAloneWhereTheyMayBeAnything) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    setting.handle_config.max_tokens_per_expert = 8;
    setting.handle_config.pad_to_capacity = setting.handle_config.undefined_padding = 1;
    ASSERT_EQ(setting.make_handle(4, 2, EPCCL_EP_LAYOUT_EXPERT_MAJOR), epcclSuccess)
        << epcclGetLastError(nullptr);
    const float held_before = -7;  // what no scale is
    std::ranges::fill(setting.scales, held_before);
    EXPECT_EQ(setting.dispatch_with_scales(epcclFloat8e4m3, true), epcclSuccess)
        << epcclGetLastError(nullptr);
    // Two experts a rank, each of which has two of four tokens of either rank.
    for (size_t row = 0; row < 16; ++row)
      EXPECT_EQ(setting.scales[row] == held_before, row % 8 >= 4)
          << "row " << row << ": " << setting.scales[row];
    setting.destroy();
  });
}

TEST(Fp8, IsQuantisedOnTheWayAndScaledBlockwise) {
  run_ranks({{2, 2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    const uint32_t hidden = 300, tokens = 7, scales = 3;
    epcclEpGroupConfig_t config = EPCCL_EP_GROUP_CONFIG_INIT;
    config.num_experts = 4;
    config.max_send_tokens_per_rank = tokens;
    config.max_token_bytes = hidden * 2;
    epcclEpGroup_t group = nullptr;
    ASSERT_EQ(epcclEpCreateGroup(&group, comm, &config), epcclSuccess) << epcclGetLastError(nullptr);
    std::vector<int64_t> table;  // token t goes to rank t % 4
    for (uint32_t token = 0; token < tokens; ++token) table.push_back(token % 4);
    Tensor topk(epcclInt64, table.data(), {tokens, 1});
    int32_t total = 0;
    Tensor total_tensor(epcclInt32, &total, {1});
    epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
    info.recv_total_counter = total_tensor;
    epcclEpHandle_t handle = nullptr;
    ASSERT_EQ(epcclEpCreateHandle(&handle, group, EPCCL_EP_LAYOUT_FLAT, topk, &info, nullptr, nullptr),
              epcclSuccess)
        << epcclGetLastError(nullptr);
    Numbers input(epcclBfloat16, tokens * hidden);
    for (uint32_t token = 0; token < tokens; ++token)
      for (uint32_t h = 0; h < hidden; ++h)
        input.set(token * hidden + h, token_value(context.rank, token, h));
    const auto rows = static_cast<size_t>(total);
    std::vector<uint8_t> values(rows * hidden);
    std::vector<float> block_scales(rows * scales);
    Tensor in(epcclBfloat16, input.data(), {tokens, hidden}),
        out(epcclFloat8e4m3, values.data(), {rows, hidden});
    Tensor out_scales(epcclFloat32, block_scales.data(), {rows, scales});
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = out;
    outputs.scales = out_scales;
    ASSERT_EQ(epcclEpDispatch(handle, &inputs, &outputs, nullptr, nullptr), epcclSuccess)
        << epcclGetLastError(nullptr);
    size_t row = 0;
    for (int source = 0; source < context.ranks; ++source)
      for (uint32_t token = static_cast<uint32_t>(context.rank); token < tokens; token += 4, ++row)
        for (uint32_t h = 0; h < hidden; ++h) {
          const uint8_t code = values[row * hidden + h];
          const int exponent = code >> 3 & 15, fraction = code & 7;
          const double magnitude =
              exponent == 0 ? fraction / 512.0 : (8 + fraction) / 8.0 * std::ldexp(1.0, exponent - 7);
          const double got = (code & 0x80 ? -magnitude : magnitude) *
                             static_cast<double>(block_scales[row * scales + h / 128]);
          // Half a step of three bits of fraction, or half of the smallest step.
          const double want = static_cast<double>(token_value(source, token, h));
          EXPECT_NEAR(got, want, std::max(std::fabs(want) / 16.0, 2.0 / 448 / 512))
              << "row " << row << " element " << h;
        }
    EXPECT_EQ(row, rows);
    EXPECT_EQ(epcclEpHandleDestroy(handle), epcclSuccess);
    EXPECT_EQ(epcclEpGroupDestroy(group), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
