// Ranks of different nodes that make different calls: an error on every rank, and nobody gets another call's tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "setting.hpp"

namespace epccl::tests {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

const RunOptions ranks_apart{{2, 2}, {{"EPCCL_TIMEOUT", "20"}}, {}};

// From the hub, to which ranks have told what they call; or as one of them finds it.
const auto tells_of_different_calls =
    AnyOf(HasSubstr("ranks disagree in call"), HasSubstr("different calls"));

/// Two handles of one group, alike in all, and any call with one of them.
struct TwoHandles {
  TwoHandles(const RankContext& rank, epcclComm_t comm, bool is_static)
      : setting(rank, comm), on_other_node(rank.rank >= 2) {
    setting.make_group();
    setting.handle_config.static_topk = is_static ? 2 : 0;
    setting.handle_config.max_tokens_per_expert = is_static ? 32 : 0;
    for (epcclEpHandle_t& handle : handles)
      EXPECT_EQ(epcclEpCreateHandle(&handle, setting.group, EPCCL_EP_LAYOUT_EXPERT_MAJOR, nullptr, nullptr,
                                    &setting.handle_config, nullptr),
                epcclSuccess)
          << epcclGetLastError(nullptr);
  }

  epcclResult_t update(int which) {
    setting.handle = handles[which];
    return setting.update(4, 2);
  }
  epcclResult_t update_in_order(bool reversed) {
    const epcclResult_t first = update(reversed ? 1 : 0);
    return first != epcclSuccess ? first : update(reversed ? 0 : 1);
  }

  struct How {
    int handle = 0;
    epcclDataType_t type = epcclFloat32;
    size_t hidden = 8;
    bool weights = false, weighted = false;
  };
  epcclResult_t dispatch(const How& how) {
    Tensor in(how.type, setting.input.data(), {4, how.hidden}),
        out(how.type, setting.output.data(), {100, how.hidden});
    Tensor weights(epcclFloat32, setting.weights.data(), {4, 2});
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    epcclEpDispatchConfig_t config = EPCCL_EP_DISPATCH_CONFIG_INIT;
    inputs.tokens = in;
    if (how.weights) inputs.topk_weights = weights;
    outputs.tokens = out;
    config.weighted = how.weighted ? 1 : 0;
    return epcclEpDispatch(handles[how.handle], &inputs, &outputs, &config, nullptr);
  }
  epcclResult_t combine(const How& how) {
    Tensor in(how.type, setting.output.data(), {100, how.hidden}),
        out(how.type, setting.combined.data(), {4, how.hidden});
    epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
    epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    epcclEpCombineConfig_t config = EPCCL_EP_COMBINE_CONFIG_INIT;
    inputs.tokens = in;
    outputs.tokens = out;
    config.weighted = how.weighted ? 1 : 0;
    return epcclEpCombine(handles[how.handle], &inputs, &outputs, &config, nullptr);
  }
  void destroy() {
    for (const epcclEpHandle_t handle : handles) EXPECT_EQ(epcclEpHandleDestroy(handle), epcclSuccess);
    EXPECT_EQ(epcclEpGroupDestroy(setting.group), epcclSuccess);
  }

  Setting setting;
  epcclEpHandle_t handles[2] = {};
  bool on_other_node;
};

using Call = std::function<epcclResult_t(TwoHandles&)>;

/// In dynamic and static mode: `agreed` is well on every rank, `call` ends the communicator.
void expect_different_calls(const Call& agreed, const Call& call) {
  for (const bool is_static : {false, true})
    run_ranks(ranks_apart, [&](const RankContext& context) {
      Comm comm(context);
      TwoHandles handles(context, comm, is_static);
      ASSERT_EQ(agreed(handles), epcclSuccess) << epcclGetLastError(nullptr);
      context.meet();  // who is through may fail others that are not
      EXPECT_NE(call(handles), epcclSuccess) << "rank " << context.rank << ", static: " << is_static;
      EXPECT_THAT(epcclGetLastError(nullptr), tells_of_different_calls) << "rank " << context.rank;
      context.meet();  // an abort is told, too
      EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
      comm.forget();
    });
}

epcclResult_t update_both(TwoHandles& handles) {
  return handles.update_in_order(false);
}
epcclResult_t dispatch_with_weights(TwoHandles& handles) {
  const epcclResult_t updated = update_both(handles);
  return updated != epcclSuccess ? updated : handles.dispatch({.weights = true});
}

TEST(EpOtherCalls, ANodeThatDispatchesWithAnotherHandleGetsNoTokens) {
  expect_different_calls(update_both, [](TwoHandles& handles) {
    return handles.dispatch({.handle = handles.on_other_node ? 1 : 0});
  });
}

TEST(EpOtherCalls, ANodeThatCombinesWithAnotherHandleGetsNoTokens) {
  expect_different_calls(update_both, [](TwoHandles& handles) {
    return handles.combine({.handle = handles.on_other_node ? 1 : 0});
  });
}

// Nobody can know before: they are alike.
TEST(EpOtherCalls, HandlesThatANodeFirstUpdatesInAnotherOrderAreNotTheSame) {
  expect_different_calls([](TwoHandles& handles) { return handles.update_in_order(handles.on_other_node); },
                         [](TwoHandles& handles) { return handles.dispatch({}); });
}

TEST(EpOtherCalls, UpdatesOfDifferentHandlesAreToldByAllAndNothingIsLost) {
  for (const bool is_static : {false, true})
    run_ranks(ranks_apart, [&](const RankContext& context) {
      Comm comm(context);
      TwoHandles handles(context, comm, is_static);
      ASSERT_EQ(handles.update_in_order(false), epcclSuccess) << epcclGetLastError(nullptr);
      expect_error(context, handles.update(handles.on_other_node ? 1 : 0),
                   "ranks disagree on the EP handle: rank 0 updates handle 2, rank 2 handle 3");
      ASSERT_EQ(handles.update_in_order(false), epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_EQ(handles.dispatch({}), epcclSuccess) << epcclGetLastError(nullptr);
      handles.destroy();
    });
}

TEST(EpOtherCalls, ADispatchIsNoCombine) {
  expect_different_calls(update_both, [](TwoHandles& handles) {
    return handles.on_other_node ? handles.combine({}) : handles.dispatch({});
  });
}

TEST(EpOtherCalls, RowsOfOtherNumbersThatAreAsLongAreNotTaken) {
  expect_different_calls(update_both, [](TwoHandles& handles) {
    return handles.dispatch({.type = handles.on_other_node ? epcclFloat16 : epcclBfloat16, .hidden = 16});
  });
  expect_different_calls(update_both, [](TwoHandles& handles) {
    return handles.on_other_node ? handles.dispatch({.type = epcclBfloat16, .hidden = 16})
                                 : handles.dispatch({});
  });
  expect_different_calls(update_both, [](TwoHandles& handles) {
    return handles.combine({.type = handles.on_other_node ? epcclFloat16 : epcclBfloat16, .hidden = 16});
  });
}

TEST(EpOtherCalls, WeightedIsSoOnEveryNode) {
  expect_different_calls(update_both, [](TwoHandles& handles) {
    return handles.dispatch({.weights = true, .weighted = handles.on_other_node});
  });
  expect_different_calls(dispatch_with_weights, [](TwoHandles& handles) {
    return handles.combine({.weighted = handles.on_other_node});
  });
}

}  // namespace
}  // namespace epccl::tests
