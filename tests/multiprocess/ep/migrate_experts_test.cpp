// Weights on their way from one placement to another, between real ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "epccl/placement.h"
#include "setting.hpp"

namespace epccl::tests {
namespace {

const std::array<size_t, 3> sizes_of_an_expert = {3, 1000, 40'000};  // bytes of an expert, of each tensor

uint8_t byte_of(int expert, size_t tensor, size_t at) {
  return unique_byte(expert + 1, static_cast<int>(tensor), at, 0);
}

/// A rank's slots, with what a placement has in them.
class Weights {
 public:
  Weights(const RankContext& context, unsigned slots, const std::vector<int>& placement)
      : first_(static_cast<size_t>(context.rank) * slots), slots_(slots) {
    for (size_t tensor = 0; tensor < sizes_of_an_expert.size(); ++tensor) {
      tensors_[tensor].assign(sizes_of_an_expert[tensor] * slots, poison);
      pointers_[tensor] = tensors_[tensor].data();
      for (size_t slot = 0; slot < slots; ++slot) fill(tensor, slot, placement[first_ + slot]);
    }
  }

  epcclResult_t migrate(epcclComm_t comm, const std::vector<int>& before, const std::vector<int>& after,
                        size_t scratch_bytes, epcclStream_t stream = nullptr) {
    scratch_.resize(scratch_bytes);
    return epcclEpMigrateExperts(comm, slots_, before.data(), after.data(), pointers_.data(),
                                 sizes_of_an_expert.data(), sizes_of_an_expert.size(), scratch_.data(),
                                 scratch_.size(), stream);
  }

  /// Whether a slot has an expert's weights; -1: those that it was given are none's.
  bool has(size_t slot, int expert) const {
    for (size_t tensor = 0; tensor < sizes_of_an_expert.size(); ++tensor)
      for (size_t i = 0; i < sizes_of_an_expert[tensor]; ++i)
        if (tensors_[tensor][slot * sizes_of_an_expert[tensor] + i] !=
            (expert < 0 ? poison : byte_of(expert, tensor, i)))
          return false;
    return true;
  }

  void expect(const std::vector<int>& placement, const char* what) const {
    for (size_t slot = 0; slot < slots_; ++slot)
      EXPECT_TRUE(has(slot, placement[first_ + slot])) << what << ": slot " << first_ + slot;
  }

 private:
  void fill(size_t tensor, size_t slot, int expert) {
    if (expert < 0) return;
    for (size_t i = 0; i < sizes_of_an_expert[tensor]; ++i)
      tensors_[tensor][slot * sizes_of_an_expert[tensor] + i] = byte_of(expert, tensor, i);
  }

  size_t first_;
  unsigned slots_;
  std::array<std::vector<uint8_t>, sizes_of_an_expert.size()> tensors_;
  std::array<void*, sizes_of_an_expert.size()> pointers_{};
  std::vector<uint8_t> scratch_;
};

class MigrateExperts : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(MigrateExperts, BringsThemWhereTheyAreToBe) {
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  run_ranks({GetParam(), {}, {}}, [seed](const RankContext& context) {
    const Comm comm(context);
    std::mt19937 random(seed);  // the same on every rank
    constexpr unsigned slots = 3;
    for (const size_t scratch : {9 * 64, 9 * 5000 + 17, 9 * 40'000, 1 << 20}) {
      const size_t all = slots * static_cast<size_t>(context.ranks);
      const int experts = std::max(2, static_cast<int>(all) - 2);
      const auto drawn = [&] {
        std::vector<int> placement(all);
        for (int& it : placement) it = std::uniform_int_distribution<int>(-1, experts - 1)(random);
        return placement;
      };
      const std::vector<int> before = drawn(), after = drawn();
      Weights weights(context, slots, before);
      ASSERT_EQ(weights.migrate(comm, before, after, scratch), epcclSuccess) << epcclGetLastError(nullptr);
      std::vector<int> expected = after;
      for (size_t slot = 0; slot < all; ++slot)
        if (after[slot] < 0 || std::ranges::find(before, after[slot]) == before.end())
          expected[slot] = before[slot];
      weights.expect(expected, "what nobody had, and what is for nobody, stays");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, MigrateExperts,
                         ::testing::Values(std::vector{1}, std::vector{3}, std::vector{2, 2},
                                           std::vector{1, 3}, std::vector{2, 1, 2}));

const RunOptions two_by_two{{2, 2}, {{"EPCCL_TIMEOUT", "20"}}, {}};
const std::vector<int> old_placement = {0, 1, 2, 3}, new_placement = {1, 1, 0, 2};

TEST(MigrateExpertsToo, OnAStream) {
  run_ranks(two_by_two, [](const RankContext& context) {
    const Comm comm(context);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    Weights weights(context, 1, old_placement);
    ASSERT_EQ(weights.migrate(comm, old_placement, new_placement, 4096, stream), epcclSuccess)
        << epcclGetLastError(nullptr);
    ASSERT_EQ(epcclStreamSynchronize(stream), epcclSuccess) << epcclGetLastError(nullptr);
    weights.expect(new_placement, "on a stream");
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

// On all ranks, by name, and nothing is lost.
TEST(MigrateExpertsToo, RanksThatAreGivenOthersAreNamed) {
  run_ranks(two_by_two, [](const RankContext& context) {
    const Comm comm(context);
    Weights weights(context, 1, old_placement);
    const bool odd = context.rank == 2;
    const std::vector<int> other = {0, 1, 3, 2};
    expect_error(context, weights.migrate(comm, odd ? other : old_placement, new_placement, 4096),
                 "rank 2 has other `before` than rank 0");
    expect_error(context, weights.migrate(comm, old_placement, odd ? other : new_placement, 4096),
                 "rank 2 has other `after` than rank 0");
    const std::vector<int> wrong = {0, 1, -2, 3};
    expect_error(context, weights.migrate(comm, old_placement, odd ? wrong : new_placement, 4096),
                 odd ? "slot 2 of the placement has expert -2" : "what rank 2 was given cannot be");
    expect_error(context, weights.migrate(comm, old_placement, new_placement, odd ? 191 : 4096),
                 odd ? "scratch_bytes is 191: rank 2 gets 1 experts, each of which takes 192 bytes at least"
                     : "what rank 2 was given cannot be");
    weights.expect(old_placement, "refused");
    ASSERT_EQ(weights.migrate(comm, old_placement, new_placement, odd ? 192 : 4096), epcclSuccess)
        << epcclGetLastError(nullptr);
    weights.expect(new_placement, "then");
  });
}

// Each as rank 1 alone has it: the others hear that it is wrong, or how it differs.
TEST(MigrateExpertsToo, WrongArgumentsOfOneRankAreToldByAll) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    struct Arguments {
      unsigned slots = 1, tensors = 2;
      std::vector<int> from{0, 1}, to{1, 0};
      std::vector<uint8_t> first = std::vector<uint8_t>(100), second = first,
                           room = std::vector<uint8_t>(1000);
      std::array<size_t, 2> bytes{100, 50};
      std::array<void*, 2> weights{first.data(), second.data()};
      void* scratch = room.data();
      epcclStream_t stream = nullptr;
    };
    const auto wrong = [&](const char* own, const char* others, auto change) {
      Arguments it;
      if (context.rank == 1) change(it);
      EXPECT_EQ(epcclEpMigrateExperts(comm, it.slots, it.from.data(), it.to.data(), it.weights.data(),
                                      it.bytes.data(), it.tensors, it.scratch,
                                      it.scratch == nullptr ? 0 : it.room.size(), it.stream),
                epcclInvalidArgument);
      expect_error(context, epcclInvalidArgument, context.rank == 1 ? own : others);
    };
    const char *cannot = "what rank 1 was given cannot be",
               *differs = "rank 1 has other slots_per_rank or sizes";
    wrong("slots_per_rank is 0", cannot, [](Arguments& it) { it.slots = 0; });
    wrong("2 ranks with 16384 slots", cannot, [](Arguments& it) { it.slots = 16384; });
    wrong("is not a stream", cannot,
          [](Arguments& it) { it.stream = reinterpret_cast<epcclStream_t>(it.room.data()); });
    wrong("weights[1] is NULL", cannot, [](Arguments& it) { it.weights[1] = nullptr; });
    wrong("scratch is NULL", cannot, [](Arguments& it) { it.scratch = nullptr; });
    wrong("overlaps", cannot, [](Arguments& it) { it.weights[1] = it.first.data() + 60; });
    wrong("overlaps", cannot, [](Arguments& it) { it.weights[0] = it.room.data() + 990; });
    wrong(differs, differs, [](Arguments& it) { it.bytes[1] = 49; });
    wrong(differs, differs, [](Arguments& it) { it.tensors = 1; });
    Arguments fine;
    EXPECT_EQ(epcclEpMigrateExperts(comm, 1, fine.from.data(), fine.to.data(), fine.weights.data(),
                                    fine.bytes.data(), 2, fine.scratch, 1000, nullptr),
              epcclSuccess)
        << epcclGetLastError(nullptr);
  });
}

TEST(MigrateExpertsToo, NeedsNoScratchWhereNothingComes) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    const std::vector<int> was = {0, 1}, is = {0, 0};
    Weights weights(context, 1, was);
    ASSERT_EQ(weights.migrate(comm, was, is, context.rank == 0 ? 0 : 500), epcclSuccess)
        << epcclGetLastError(nullptr);
    weights.expect(is, "rank 0 only sends");
  });
}

TEST(MigrateExpertsToo, IsNoPartOfAGroup) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    Weights weights(context, 1, {0});
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(weights.migrate(comm, {0}, {0}, 192), epcclInvalidUsage);
    EXPECT_EQ(epcclGroupEnd(), epcclSuccess);
    EXPECT_EQ(epcclEpMigrateExperts(nullptr, 1, old_placement.data(), new_placement.data(), nullptr, nullptr,
                                    0, nullptr, 0, nullptr),
              epcclInvalidArgument);
  });
}

/// A layer of six experts, of which e multiplies with e + 1, in two slots on each of four ranks.
class PlacedLayer {
 public:
  PlacedLayer(const RankContext& context, epcclComm_t comm) : context_(context), comm_(comm) {
    config_.num_experts = 6;
    config_.num_ranks = 4;
    config_.slots_per_rank = slots;
    config_.rank_to_node = nodes_.data();
    epcclEpGroupConfig_t group = EPCCL_EP_GROUP_CONFIG_INIT;
    group.num_experts = 4 * slots;
    group.max_send_tokens_per_rank = tokens;
    group.max_token_bytes = hidden * sizeof(float);
    EXPECT_EQ(epcclEpCreateGroup(&group_, comm, &group), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclEpCreateHandle(&handle_, group_, EPCCL_EP_LAYOUT_EXPERT_MAJOR, nullptr, nullptr, nullptr,
                                  nullptr),
              epcclSuccess);
    place({1, 1, 1, 1, 1, 1}, nullptr);
    for (size_t slot = 0; slot < slots; ++slot) {
      const int expert = placement_[static_cast<size_t>(context.rank) * slots + slot];
      weights_.at(slot) = expert < 0 ? -1000 : static_cast<float>(expert + 1);
    }
  }
  ~PlacedLayer() {
    EXPECT_EQ(epcclEpHandleDestroy(handle_), epcclSuccess);
    EXPECT_EQ(epcclEpGroupDestroy(group_), epcclSuccess);
  }

  void rebalance(const std::vector<double>& load) {
    const std::vector<int> was = placement_;
    place(load, was.data());
    EXPECT_NE(was, placement_);
    const size_t bytes = sizeof(float);
    void* const weights = weights_.data();
    std::array<uint8_t, 512> scratch{};
    ASSERT_EQ(epcclEpMigrateExperts(comm_, slots, was.data(), placement_.data(), &weights, &bytes, 1,
                                    scratch.data(), scratch.size(), nullptr),
              epcclSuccess)
        << epcclGetLastError(nullptr);
  }

  /// Rows that this rank got.
  int64_t run() {
    std::vector<int64_t> topk(tokens * k), slot_idx(tokens * k);
    for (size_t i = 0; i < topk.size(); ++i) topk[i] = i % 3 == 0 ? 5 : static_cast<int64_t>(i % 5);
    Tensor experts(epcclInt64, topk.data(), {tokens, k}), chosen(epcclInt64, slot_idx.data(), {tokens, k});
    EXPECT_EQ(
        epcclEpPickSlots(&config_, placement_.data(), context_.rank, EPCCL_EP_SLOTS_EVEN, experts, chosen),
        epcclSuccess)
        << epcclGetLastError(nullptr);
    std::vector<int64_t> rows(slots), firsts(slots);
    Tensor counters(epcclInt64, rows.data(), {slots}), offsets(epcclInt64, firsts.data(), {slots});
    epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
    info.expert_counters = counters;
    info.expert_offsets = offsets;
    EXPECT_EQ(epcclEpUpdateHandle(handle_, chosen, &info, nullptr), epcclSuccess)
        << epcclGetLastError(nullptr);
    std::vector<float> input(tokens * hidden), received(4 * tokens * k * hidden), combined(input.size());
    for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 7 + 1);
    Tensor in(epcclFloat32, input.data(), {tokens, hidden}),
        out(epcclFloat32, received.data(), {4 * tokens * k, hidden}),
        back(epcclFloat32, combined.data(), {tokens, hidden});
    epcclEpDispatchInputs_t dispatched = EPCCL_EP_DISPATCH_INPUTS_INIT;
    dispatched.tokens = in;
    epcclEpDispatchOutputs_t got = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    got.tokens = out;
    EXPECT_EQ(epcclEpDispatch(handle_, &dispatched, &got, nullptr, nullptr), epcclSuccess)
        << epcclGetLastError(nullptr);
    for (size_t slot = 0; slot < slots; ++slot)
      for (int64_t i = firsts[slot] * int64_t{hidden}; i < (firsts[slot] + rows[slot]) * int64_t{hidden}; ++i)
        received[static_cast<size_t>(i)] *= weights_[slot];
    epcclEpCombineInputs_t sent = EPCCL_EP_COMBINE_INPUTS_INIT;
    sent.tokens = out;
    epcclEpCombineOutputs_t result = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    result.tokens = back;
    EXPECT_EQ(epcclEpCombine(handle_, &sent, &result, nullptr, nullptr), epcclSuccess)
        << epcclGetLastError(nullptr);
    for (size_t token = 0; token < tokens; ++token) {
      float factor = 0;
      for (size_t i = 0; i < k; ++i) factor += static_cast<float>(topk[token * k + i] + 1);
      for (size_t i = 0; i < hidden; ++i)
        EXPECT_EQ(combined[token * hidden + i], factor * input[token * hidden + i]) << "token " << token;
    }
    return rows[0] + rows[1];
  }

 private:
  static constexpr size_t slots = 2, tokens = 12, k = 3, hidden = 8;

  void place(const std::vector<double>& load, const int* before_it) {
    EXPECT_EQ(epcclEpPlaceExperts(&config_, load.data(), before_it, placement_.data(), nullptr), epcclSuccess)
        << epcclGetLastError(nullptr);
  }

  const RankContext& context_;
  epcclComm_t comm_;
  std::array<int, 4> nodes_{0, 0, 1, 1};
  epcclEpPlacementConfig_t config_ = EPCCL_EP_PLACEMENT_CONFIG_INIT;
  std::vector<int> placement_ = std::vector<int>(4 * slots);
  std::array<float, slots> weights_{};
  epcclEpGroup_t group_ = nullptr;
  epcclEpHandle_t handle_ = nullptr;
};

// The group and the handle are those from before, and no rank has much more to do than another.
TEST(MigrateExpertsToo, ALayerGivesTheSameWithAnotherPlacement) {
  run_ranks(two_by_two, [](const RankContext& context) {
    const Comm comm(context);
    PlacedLayer layer(context, comm);
    layer.run();
    layer.rebalance({24, 24, 24, 24, 24, 48 * 4});
    EXPECT_LE(layer.run(), 48) << "of 144 rows, of which one expert has 48";
  });
}

}  // namespace
}  // namespace epccl::tests
