// Sizes of the arrays of a dispatch and a combine: what is too small is refused, and named, before anything is written into it.
#include "ep/calls/row_call.hpp"

#include <gtest/gtest.h>

#include <string>

namespace epccl::ep {
namespace {

float somewhere[1];

template <typename T>
Matrix<T> matrix(uint64_t rows, uint64_t columns) {
  return {somewhere, rows, columns};
}

/// Three tokens with two entries each, five rows arrive.
constexpr CallShape shape{.tokens = 3, .slots = 5, .k = 2, .by_expert = false, .max_token_bytes = 64};

DispatchCall dispatch_of_all() {
  DispatchCall call;
  call.tokens = call.received = somewhere;
  call.token_rows = 3;
  call.received_rows = 5;
  call.hidden = 8;
  call.weights = matrix<const float>(3, 2);
  call.received_weights = matrix<float>(5, 2);
  call.received_topk = matrix<void>(5, 2);
  return call;
}

CombineCall combine_of_all() {
  CombineCall call;
  call.tokens = call.combined = somewhere;
  call.token_rows = 5;
  call.combined_rows = 3;
  call.hidden = 8;
  call.weights = matrix<const float>(5, 2);
  call.combined_weights = matrix<float>(3, 2);
  return call;
}

void expect_refused(const Status& status, const std::string& told) {
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), told);
}

TEST(RowCalls, OfTheRightSizesAreAccepted) {
  EXPECT_TRUE(check_dispatch(shape, dispatch_of_all()).ok());
  EXPECT_TRUE(check_combine(shape, combine_of_all(), false).ok());
}

template <typename Change>
void expect_dispatch_refused(Change change, const std::string& told) {
  DispatchCall call = dispatch_of_all();
  change(call);
  expect_refused(check_dispatch(shape, call), told);
}

TEST(RowCalls, OfADispatchNameWhatIsTooSmall) {
  expect_dispatch_refused([](auto& call) { call.hidden = 17; },
                          "a token of 68 bytes: the group's max_token_bytes is 64");
  expect_dispatch_refused([](auto& call) { call.token_rows = 4; },
                          "4 tokens, but the handle's topk_idx has 3");
  expect_dispatch_refused([](auto& call) { call.received_rows = 4; }, "the output has 4 rows, but 5 come");
  expect_dispatch_refused([](auto& call) { call.weights.columns = 1; },
                          "inputs.topk_weights is [3, 1], but [3, 2] is needed");
  expect_dispatch_refused([](auto& call) { call.received_weights.rows = 4; },
                          "outputs.topk_weights is [4, 2], but [5, 2] is needed");
  expect_dispatch_refused([](auto& call) { call.received_topk.rows = 4; },
                          "outputs.topk_idx is [4, 2], but [5, 2] is needed");
  expect_dispatch_refused([](auto& call) { call.received_topk.columns = 1; },
                          "outputs.topk_idx is [5, 1], but [5, 2] is needed");
  expect_dispatch_refused([](auto& call) { call.received_scales = matrix<float>(4, 1); },
                          "outputs.scales is [4, 1], but [5, 1] is needed");
}

template <typename Change>
void expect_combine_refused(Change change, const std::string& told) {
  CombineCall call = combine_of_all();
  change(call);
  expect_refused(check_combine(shape, call, false), told);
}

TEST(RowCalls, OfACombineNameWhatIsTooSmall) {
  expect_combine_refused([](auto& call) { call.token_rows = 4; },
                         "the input has 4 rows, but 5 were dispatched");
  expect_combine_refused([](auto& call) { call.combined_rows = 2; },
                         "the output has 2 rows, but the handle has 3 tokens");
  expect_combine_refused([](auto& call) { call.weights.rows = 4; },
                         "inputs.topk_weights is [4, 2], but [5, 2] is needed");
  expect_combine_refused([](auto& call) { call.combined_weights.columns = 3; },
                         "outputs.topk_weights is [3, 3], but [3, 2] is needed");
}

}  // namespace
}  // namespace epccl::ep
