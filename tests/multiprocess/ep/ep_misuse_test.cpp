// Wrong arguments: an error that says what and whose, on every rank where it concerns every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "setting.hpp"

namespace epccl::tests {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const RunOptions two_nodes{{2, 2}, {{"EPCCL_TIMEOUT", "20"}}, {}};

TEST(EpMisuse, RanksThatDisagreeOnTheGroupAreToldByAll) {
  run_ranks(two_nodes, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    if (context.rank == 2) setting.config.num_experts = 5;
    expect_error(context, epcclEpCreateGroup(&setting.group, comm, &setting.config),
                 "rank 2 has num_experts 5");
    EXPECT_EQ(setting.group, nullptr);
    setting.config.num_experts = 4;
    setting.config.timeout_ms = context.rank == 1 ? 500 : 0;
    expect_error(context, epcclEpCreateGroup(&setting.group, comm, &setting.config), "timeout_ms 500");
    // Nothing is lost: the next attempt works.
    setting.config.timeout_ms = 0;
    setting.make_group();
    setting.destroy();
  });
}

// As of two layers: the calls look alike, and the experts lie elsewhere.
TEST(EpMisuse, RanksWhoseHandlesAreOfDifferentGroupsAreToldByAll) {
  const auto with_experts = [](uint32_t experts, epcclEpLayout_t layout) {
    run_ranks(two_nodes, [&](const RankContext& context) {
      Comm comm(context);
      Setting setting(context, comm), other(context, comm);
      setting.make_group();
      other.config.num_experts = experts;
      std::vector<int> reversed(experts, 0);
      for (size_t i = 0; i < reversed.size(); ++i) reversed[i] = 3 - static_cast<int>(i % 4);
      other.config.expert_to_rank = reversed.data();
      other.make_group();
      const bool is_static = layout != EPCCL_EP_LAYOUT_FLAT;
      setting.handle_config.static_topk = other.handle_config.static_topk = is_static ? 2 : 0;
      Setting& mine = context.rank == 3 ? other : setting;
      expect_error(context, mine.make_handle(4, 2, layout),
                   "the EP group of the handle: rank 0 has group 1, rank 3 group 2");
      // Nothing is lost: the next attempt works.
      ASSERT_EQ(other.make_handle(4, 2, layout), epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_EQ(other.dispatch(16, 8), epcclSuccess) << epcclGetLastError(nullptr);
      setting.destroy();
      other.destroy();
    });
  };
  for (const uint32_t experts : {4, 8})
    for (const epcclEpLayout_t layout : {EPCCL_EP_LAYOUT_FLAT, EPCCL_EP_LAYOUT_RANK_MAJOR})
      with_experts(experts, layout);
}

TEST(EpMisuse, AStrategyOfTheEnvironmentThatDoesNotExistIsRefusedWhenJoining) {
  run_ranks({{1}, {{"EPCCL_EP_STRATEGY", "dedupe"}}, {}}, [](const RankContext& context) {
    epcclComm_t comm = nullptr;
    expect_error(context, epcclCommInitRank(&comm, 1, context.id, 0),
                 "EPCCL_EP_STRATEGY=\"dedupe\": want auto|flat|gather|dedup");
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(EpMisuse, AnExpertThatDoesNotExistIsNamedOnEveryRank) {
  run_ranks(two_nodes, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    if (context.rank == 3) setting.table[5] = 4;
    expect_error(context, setting.make_handle(4, 2),
                 "rank 3: topk_idx[2][1] is expert 4, but there are 4 experts");
    setting.table[5] = 1;
    EXPECT_EQ(setting.make_handle(4, 2), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(setting.dispatch(100, 8), epcclSuccess) << epcclGetLastError(nullptr);
    setting.destroy();
  });
}

TEST(EpMisuse, TooManyTokensAndOtherTopKAreNamedOnEveryRank) {
  run_ranks(two_nodes, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    expect_error(context, setting.make_handle(context.rank == 1 ? 5 : 4, 2), "rank 1 has 5 tokens");
    expect_error(context, setting.make_handle(4, context.rank == 2 ? 1 : 2),
                 "top-k: rank 0 has 2, rank 2 has 1");
    expect_error(
        context,
        setting.make_handle(4, 2, context.rank == 1 ? EPCCL_EP_LAYOUT_EXPERT_MAJOR : EPCCL_EP_LAYOUT_FLAT),
        "layout: rank 0 has flat, rank 1 has expert_major");
    setting.destroy();
  });
}

TEST(EpMisuse, StaticModeKeepsToItsMaxima) {
  run_ranks(two_nodes, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    setting.handle_config.static_topk = 2;
    expect_error(context, setting.make_handle(4, 2, EPCCL_EP_LAYOUT_FLAT),
                 "static mode needs the rank-major");
    expect_error(context, setting.make_handle(4, 2, EPCCL_EP_LAYOUT_EXPERT_MAJOR),
                 "needs max_tokens_per_expert");
    setting.handle_config.static_topk = 65;
    expect_error(context, setting.make_handle(4, 2, EPCCL_EP_LAYOUT_RANK_MAJOR), "static_topk 65");
    setting.handle_config.static_topk = 2;
    expect_error(context, setting.make_handle(context.rank == 1 ? 5 : 4, 2, EPCCL_EP_LAYOUT_RANK_MAJOR),
                 "rank 1 has 5 tokens");
    expect_error(context, setting.make_handle(4, context.rank == 3 ? 1 : 2, EPCCL_EP_LAYOUT_RANK_MAJOR),
                 "rank 3 has a top-1 table: the handle's static_topk is 2");
    if (context.rank == 2) setting.table[3] = -2;
    expect_error(context, setting.make_handle(4, 2, EPCCL_EP_LAYOUT_RANK_MAJOR),
                 "rank 2: topk_idx[1][1] is expert -2");
    // Nothing is lost: the next attempt works.
    setting.table[3] = 3;
    ASSERT_EQ(setting.make_handle(4, 2, EPCCL_EP_LAYOUT_RANK_MAJOR), epcclSuccess)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(setting.dispatch(16, 8), epcclSuccess) << epcclGetLastError(nullptr);
    setting.destroy();
  });
}

// What breaks the communicator.
void expect_broken_as(const ::testing::Matcher<std::string>& told,
                      const std::function<epcclResult_t(Setting&)>& call) {
  run_ranks(two_nodes, [&](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    // One rank may be through with this, and fail in the next call, before another is.
    epcclResult_t result = setting.make_handle(4, 2);
    if (result == epcclSuccess) result = call(setting);
    EXPECT_NE(result, epcclSuccess);
    EXPECT_THAT(epcclGetLastError(nullptr), told) << "rank " << context.rank;
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  });
}
void expect_broken(const std::string& part, const std::function<epcclResult_t(Setting&)>& call) {
  expect_broken_as(HasSubstr(part), call);
}

TEST(EpMisuse, AWeightThatIsNoNumberIsToldToAll) {
  expect_broken("topk_weights[1][1] is NaN", [](Setting& setting) {
    if (setting.context.rank == 1) setting.weights[3] = std::nanf("");
    return setting.dispatch(100, 8, true);
  });
}

// A softmax over experts of which none is left makes such weights.
TEST(EpMisuse, AWeightOfAnEntryThatNamesNoExpertMayBeAnything) {
  run_ranks(two_nodes, [&](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    setting.table = {0, 1, -1, -1, -1, 2, 3, -1};
    for (const size_t unused : {2, 3, 4, 7}) setting.weights[unused] = std::nanf("");
    ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(setting.dispatch(16, 8, true), epcclSuccess) << epcclGetLastError(nullptr);
    setting.destroy();
  });
  expect_broken("topk_weights[2][1] is NaN", [](Setting& setting) {
    setting.table = {0, 1, -1, -1, -1, 2, 3, -1};
    for (const size_t i : {2, 5}) setting.weights[i] = std::nanf("");
    return setting.make_handle(4, 2) == epcclSuccess ? setting.dispatch(16, 8, true) : epcclInternalError;
  });
}

TEST(EpMisuse, WhatIsWrittenOverlapsNothing) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess) << epcclGetLastError(nullptr);
    std::vector<float> memory(300, 1);
    const auto dispatch = [&](size_t received_at, size_t weights_at) {
      Tensor in(epcclFloat32, memory.data(), {4, 8}), weights(epcclFloat32, setting.weights.data(), {4, 2});
      Tensor received(epcclFloat32, memory.data() + received_at, {16, 8});
      Tensor received_weights(epcclFloat32, memory.data() + weights_at, {16, 2});
      epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
      epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
      inputs.tokens = in;
      inputs.topk_weights = weights;
      outputs.tokens = received;
      outputs.topk_weights = received_weights;
      return epcclEpDispatch(setting.handle, &inputs, &outputs, nullptr, nullptr);
    };
    expect_error(context, dispatch(0, 200), "inputs.tokens ");
    expect_error(context, dispatch(31, 200), "overlaps outputs.tokens ");
    expect_error(context, dispatch(32, 32 + 127), "outputs.tokens ");
    EXPECT_EQ(dispatch(32, 32 + 128), epcclSuccess) << epcclGetLastError(nullptr);  // side by side
    const auto combine = [&](size_t combined_at) {
      Tensor in(epcclFloat32, memory.data(), {4, 8}), out(epcclFloat32, memory.data() + combined_at, {4, 8});
      epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
      epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
      inputs.tokens = in;
      outputs.tokens = out;
      return epcclEpCombine(setting.handle, &inputs, &outputs, nullptr, nullptr);
    };
    expect_error(context, combine(0), "overlaps outputs.tokens ");
    EXPECT_EQ(combine(32), epcclSuccess) << epcclGetLastError(nullptr);
    setting.destroy();
  });
}

TEST(EpMisuse, AnOutputThatIsTooSmallIsToldToAll) {
  expect_broken("the output has 3 rows, but",
                [](Setting& setting) { return setting.dispatch(setting.context.rank == 2 ? 3 : 100, 8); });
}

TEST(EpMisuse, ScalesOfAFloat8TokenCountAmongItsBytes) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    for (const size_t most : {size_t{12}, size_t{8}}) {  // tokens of 8 numbers and one scale
      Setting setting(context, comm);
      setting.config.max_token_bytes = most;
      setting.make_group();
      ASSERT_EQ(setting.make_handle(4, 2, EPCCL_EP_LAYOUT_FLAT), epcclSuccess) << epcclGetLastError(nullptr);
      const epcclResult_t result = setting.dispatch_with_scales(epcclFloat8e4m3, true);
      if (most == 8)
        expect_error(context, result, "a token of 12 bytes: the group's max_token_bytes is 8");
      else
        EXPECT_EQ(result, epcclSuccess) << epcclGetLastError(nullptr);
      setting.destroy();
    }
  });
}

// The other ranks wait until the call is made as it should be.
TEST(EpMisuse, TensorsThatDoNotGoTogetherAreRefusedBeforeAnythingBegins) {
  run_ranks(two_nodes, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    ASSERT_EQ(setting.make_handle(4, 2, EPCCL_EP_LAYOUT_FLAT), epcclSuccess) << epcclGetLastError(nullptr);
    const auto refused = [&](epcclResult_t result, const std::string& part) {
      EXPECT_EQ(result, epcclInvalidArgument);
      expect_error(context, result, part);
    };
    Tensor in(epcclFloat32, setting.input.data(), {4, 8}), rows(epcclFloat32, setting.output.data(), {16, 8}),
        combined(epcclFloat32, setting.combined.data(), {4, 8});
    Tensor scales(epcclFloat32, setting.scales.data(), {4, 1}),
        weights(epcclFloat32, setting.weights.data(), {4, 2});
    std::vector<float> memory(32);
    Tensor row_weights(epcclFloat32, memory.data(), {16, 2});
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = rows;
    epcclEpDispatchConfig_t how = EPCCL_EP_DISPATCH_CONFIG_INIT;
    const auto dispatch = [&] { return epcclEpDispatch(setting.handle, &inputs, &outputs, &how, nullptr); };
    epcclEpCombineInputs_t give = EPCCL_EP_COMBINE_INPUTS_INIT;
    give.tokens = rows;
    epcclEpCombineOutputs_t take = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    take.tokens = combined;
    epcclEpCombineConfig_t combine_how = EPCCL_EP_COMBINE_CONFIG_INIT;
    const auto combine = [&] { return epcclEpCombine(setting.handle, &give, &take, &combine_how, nullptr); };
    if (context.rank == 1) {
      refused(setting.dispatch_with_scales(epcclFloat32, true),
              "outputs.scales go with a float8 output, but this one is float32");
      refused(setting.dispatch_with_scales(epcclFloat8e4m3, false), "a float8 output needs outputs.scales");
      refused(setting.dispatch_with_scales(epcclFloat16, false), "tokens are float32, the output is float16");
      inputs.scales = scales;
      refused(dispatch(), "inputs.scales go with float8 tokens, but these are float32");
      inputs.scales = nullptr;
      outputs.topk_weights = row_weights;
      refused(dispatch(), "the output wants weights, but the input has none");
      outputs.topk_weights = nullptr;
      how.weighted = 1;
      refused(dispatch(), "a weighted dispatch needs the expert-major layout");
      how.weighted = 0;
    }
    EXPECT_EQ(dispatch(), epcclSuccess) << epcclGetLastError(nullptr);
    if (context.rank == 1) {
      take.topk_weights = weights;
      refused(combine(), "the output wants weights, but the input has none");
      take.topk_weights = nullptr;
      combine_how.weighted = 1;
      refused(combine(), "a weighted combine needs the expert-major layout");
      combine_how.weighted = 0;
    }
    EXPECT_EQ(combine(), epcclSuccess) << epcclGetLastError(nullptr);
    setting.destroy();
  });
}

// What the handle holds is known in the call's turn.
TEST(EpMisuse, AWeightedCombineWithoutWeightsIsToldToAll) {
  expect_broken("a weighted combine needs the weights of a dispatch", [](Setting& setting) {
    if (setting.make_handle(4, 2, EPCCL_EP_LAYOUT_EXPERT_MAJOR) != epcclSuccess) return epcclInternalError;
    const epcclResult_t dispatched = setting.dispatch(100, 8);
    if (dispatched != epcclSuccess) return dispatched;
    Tensor rows(epcclFloat32, setting.output.data(), {100, 8}),
        combined(epcclFloat32, setting.combined.data(), {4, 8});
    epcclEpCombineInputs_t give = EPCCL_EP_COMBINE_INPUTS_INIT;
    give.tokens = rows;
    epcclEpCombineOutputs_t take = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    take.tokens = combined;
    epcclEpCombineConfig_t how = EPCCL_EP_COMBINE_CONFIG_INIT;
    how.weighted = setting.context.rank == 1 ? 1 : 0;
    return epcclEpCombine(setting.handle, &give, &take, &how, nullptr);
  });
}

// Two rows of it fit then into the half that takes what comes back.
TEST(EpMisuse, TokensTooLongForScratchAreToldHowMuchWouldDo) {
  constexpr size_t hidden = 16384, row_bytes = hidden * sizeof(float) + 2 * sizeof(float);
  const auto with_scratch = [&](size_t scratch, bool fits) {
    run_ranks({{2, 2}, {{"EPCCL_TIMEOUT", "20"}, {"EPCCL_SCRATCH_SIZE", std::to_string(scratch)}}, {}},
              [&](const RankContext& context) {
                Comm comm(context);
                Setting setting(context, comm);
                setting.config.max_token_bytes = hidden * sizeof(float);
                setting.input.assign(4 * hidden, 1);
                setting.output.resize(16 * hidden);
                setting.make_group();
                for (const unsigned static_topk : {0U, 2U}) {
                  setting.handle_config.static_topk = static_topk;
                  const epcclResult_t made = setting.make_handle(4, 2, EPCCL_EP_LAYOUT_RANK_MAJOR);
                  if (!fits) {
                    expect_error(context, made,
                                 "raise EPCCL_SCRATCH_SIZE to " + std::to_string(4 * row_bytes) + " bytes");
                    continue;
                  }
                  ASSERT_EQ(made, epcclSuccess) << epcclGetLastError(nullptr);
                  EXPECT_EQ(setting.dispatch(16, hidden), epcclSuccess) << epcclGetLastError(nullptr);
                  EXPECT_EQ(epcclEpHandleDestroy(setting.handle), epcclSuccess);
                }
                setting.handle = nullptr;
                setting.destroy();
              });
  };
  with_scratch(4 * row_bytes - 1, false);
  with_scratch(4 * row_bytes, true);
}

TEST(EpMisuse, RanksThatDisagreeOnStaticModeAreToldByAll) {
  expect_broken("ep static layout of 4 tokens top-2", [](Setting& setting) {
    if (setting.context.rank != 3) setting.handle_config.static_topk = 2;
    return setting.make_handle(4, 2, EPCCL_EP_LAYOUT_RANK_MAJOR);
  });
}

TEST(EpMisuse, RanksThatDisagreeOnTheRowsAreToldByAll) {
  expect_broken("hidden",
                [](Setting& setting) { return setting.dispatch(100, setting.context.rank == 3 ? 7 : 8); });
}

// They know the same routing, so all that could be amiss is where rows go.
TEST(EpMisuse, RanksThatTakeDifferentHandlesAreToldByAll) {
  const auto with_two = [](bool other_update, bool other_dispatch) {
    return [=](Setting& setting) {
      const epcclEpHandle_t first = setting.handle;
      epcclResult_t result = setting.make_handle(4, 2);
      if (result != epcclSuccess) return result;
      const bool is_other = setting.context.rank == 3;
      if (is_other && other_update) setting.handle = first;
      result = setting.update(4, 2);
      if (result != epcclSuccess) return result;
      if (is_other && other_dispatch) setting.handle = first;
      return setting.dispatch(100, 8);
    };
  };
  // The hub says where rank 3 is, too.
  const std::string calls = "rank 3 (\\(host [^)]*\\) )?calls \"?";
  expect_broken_as(ContainsRegex(calls + "ep layout, handle 2"), with_two(true, true));
  expect_broken_as(ContainsRegex(calls + "ep dispatch hidden 8 float32 to float32, handle 2"),
                   with_two(false, true));
}

TEST(EpMisuse, ArgumentsThatOneRankSeesAloneAreRefusedAtOnce) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    expect_error(context, epcclEpCreateGroup(nullptr, comm, &setting.config), "group is NULL");
    expect_error(context, epcclEpCreateGroup(&setting.group, comm, nullptr), "config is NULL");
    setting.config.magic = 1;
    expect_error(context, epcclEpCreateGroup(&setting.group, comm, &setting.config), "magic");
    setting.config.magic = EPCCL_EP_MAGIC;
    setting.config.max_send_tokens_per_rank = 0;
    expect_error(context, epcclEpCreateGroup(&setting.group, comm, &setting.config),
                 "max_send_tokens_per_rank 0");
    setting.config.max_send_tokens_per_rank = 4;
    // 8 bytes of weights more, and they would be few again.
    for (const size_t bytes : {size_t{0}, (size_t{1} << 30) + 1, SIZE_MAX - 3}) {
      setting.config.max_token_bytes = bytes;
      expect_error(context, epcclEpCreateGroup(&setting.group, comm, &setting.config),
                   "max_token_bytes " + std::to_string(bytes));
    }
    setting.config.max_token_bytes = 32;
    const std::vector<int> map{0, 0, 1, 0};
    setting.config.expert_to_rank = map.data();
    expect_error(context, epcclEpCreateGroup(&setting.group, comm, &setting.config),
                 "expert_to_rank[2] is 1");
    setting.config.expert_to_rank = nullptr;
    setting.make_group();
    expect_error(context, setting.make_handle(4, 2, EPCCL_EP_LAYOUT_UNSET), "layout 0");
    setting.handle_config.dispatch_output_per_expert_alignment = UINT32_MAX;
    expect_error(context, setting.make_handle(4, 2, EPCCL_EP_LAYOUT_EXPERT_MAJOR), "alignment 4294967295");
    setting.handle_config.dispatch_output_per_expert_alignment = 0;
    setting.handle_config.undefined_padding = 1;
    for (const epcclEpLayout_t layout : {EPCCL_EP_LAYOUT_FLAT, EPCCL_EP_LAYOUT_RANK_MAJOR})
      expect_error(context, setting.make_handle(4, 2, layout),
                   "undefined padding needs the expert-major layout");
    setting.handle_config.undefined_padding = 0;
    ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess);
    std::vector<int64_t> counters(8);
    const auto count_into = [&](epcclEpTensor_t* epcclEpLayoutInfo_t::*which, epcclDataType_t type,
                                std::vector<size_t> sizes) {
      Tensor topk(epcclInt64, setting.table.data(), {4, 2}), into(type, counters.data(), std::move(sizes));
      epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
      info.*which = into;
      return epcclEpUpdateHandle(setting.handle, topk, &info, nullptr);
    };
    using Info = epcclEpLayoutInfo_t;
    expect_error(context, count_into(&Info::dropped, epcclUint8, {4, 1}),
                 "dropped has 4 elements: 8 are needed");
    for (const auto& which : {&Info::expert_counters, &Info::expert_offsets, &Info::dropped_counters})
      expect_error(context, count_into(which, epcclInt64, {3}), "has 3 elements: 4 are needed");
    for (const auto& which : {&Info::src_rank_counters, &Info::recv_total_counter})
      expect_error(context, count_into(which, epcclInt64, {2}), "has 2 elements: 1 are needed");
    expect_error(context, epcclEpGroupDestroy(setting.group), "1 handles");
    expect_error(context, epcclEpDispatch(setting.handle, nullptr, nullptr, nullptr, nullptr),
                 "inputs.tokens is NULL");
    expect_error(context, epcclEpDispatch(nullptr, nullptr, nullptr, nullptr, nullptr),
                 "is not an EP handle");
    EXPECT_EQ(epcclGroupStart(), epcclSuccess);
    expect_error(context, setting.dispatch(100, 8), "cannot be part of a group");
    EXPECT_EQ(epcclGroupEnd(), epcclSuccess);
    const epcclEpHandle_t old = setting.handle;
    ASSERT_EQ(epcclEpHandleDestroy(old), epcclSuccess);
    ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess);
    expect_error(context, epcclEpHandleDestroy(old), "was destroyed");
    setting.destroy();
  });
}

// Whoever goes on to call hears that the rank has left, as without an EP group; the group is destroyed when its rank likes to.
TEST(EpMisuse, AnEpGroupDoesNotKeepARankThatDestroyedItsCommunicator) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    epcclComm_t comm = nullptr, another = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    ASSERT_EQ(epcclCommSplit(comm, 0, context.rank, &another, nullptr), epcclSuccess);
    const auto meet = [](epcclComm_t of) {
      float number = 0;
      return epcclAllReduce(&number, &number, 1, epcclFloat32, epcclSum, of, nullptr);
    };
    Setting setting(context, comm);
    setting.make_group();
    if (context.rank == 0) expect_error(context, meet(comm), "has left");
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
    expect_error(context, meet(comm), "was destroyed");
    EXPECT_EQ(meet(another), epcclSuccess) << epcclGetLastError(nullptr);
    expect_error(context, setting.make_handle(4, 2), "destroyed");
    setting.destroy();
    EXPECT_EQ(epcclCommDestroy(another), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
