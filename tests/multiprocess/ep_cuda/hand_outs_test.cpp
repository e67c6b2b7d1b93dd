// What a relay does with rows that come from another node: counted by the double of the driver.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/kernels/launch.hpp"
#include "dispatch_tokens.hpp"
#include "fake_driver.hpp"
#include "gpu_copies.hpp"

namespace epccl::tests {
namespace {

/// Two nodes of three ranks: every token goes to all ranks of the other node.
class ToTheOtherNode {
 public:
  static constexpr int local = 3;
  static constexpr size_t tokens = 64, hidden = 64, blocks = 4;
  static constexpr size_t token_bytes = hidden * sizeof(float);
  /// For a token and its weights; a message has a quarter of the tokens.
  static constexpr size_t chunk = tokens * (token_bytes + local * sizeof(float)) / blocks;

  ToTheOtherNode(const RankContext& context, epcclComm_t comm, GpuRank& gpu, bool is_static)
      : stream_(gpu.as_epccl()),
        first_there_(context.rank < local ? local : 0),
        rows_(is_static ? 2 * local * tokens : local * tokens),
        is_static_(is_static),
        table_(gpu, table()),
        input_(gpu, numbers(context.rank)),
        output_(gpu, std::vector<float>(rows_ * hidden, -1.0F)) {
    epcclEpGroupConfig_t group = EPCCL_EP_GROUP_CONFIG_INIT;
    group.num_experts = 2 * local;
    group.max_send_tokens_per_rank = tokens;
    group.max_token_bytes = token_bytes;
    group.strategy = EPCCL_EP_STRATEGY_DEDUP;
    EXPECT_EQ(epcclEpCreateGroup(&group_, comm, &group), epcclSuccess) << epcclGetLastError(nullptr);
    epcclEpHandleConfig_t config = EPCCL_EP_HANDLE_CONFIG_INIT;
    config.static_topk = is_static ? local : 0;
    Tensor topk(epcclInt64, table_.data(), {tokens, local});
    EXPECT_EQ(
        epcclEpCreateHandle(&handle_, group_, is_static ? EPCCL_EP_LAYOUT_RANK_MAJOR : EPCCL_EP_LAYOUT_FLAT,
                            topk, nullptr, &config, stream_),
        epcclSuccess)
        << epcclGetLastError(nullptr);
  }
  ToTheOtherNode(const ToTheOtherNode&) = delete;
  ToTheOtherNode& operator=(const ToTheOtherNode&) = delete;
  ~ToTheOtherNode() {
    EXPECT_EQ(epcclEpComplete(handle_), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclEpHandleDestroy(handle_), epcclSuccess);
    EXPECT_EQ(epcclEpGroupDestroy(group_), epcclSuccess);
  }

  void dispatch() {
    Tensor in(epcclFloat32, input_.data(), {tokens, hidden}),
        out(epcclFloat32, output_.data(), {rows_, hidden});
    EXPECT_EQ(dispatch_tokens(handle_, in, out, false, stream_), epcclSuccess) << epcclGetLastError(nullptr);
  }
  std::vector<float> received() const { return output_.get(); }
  std::vector<float> expected() const {
    std::vector<float> rows(rows_ * hidden, -1.0F);
    for (int source = first_there_; source < first_there_ + local; ++source) {
      const std::vector<float> sent = numbers(source);
      const auto place = static_cast<size_t>(is_static_ ? source : source - first_there_) * sent.size();
      std::ranges::copy(sent, rows.begin() + static_cast<ptrdiff_t>(place));
    }
    return rows;
  }

 private:
  std::vector<int64_t> table() const {
    std::vector<int64_t> ids(tokens * local);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = first_there_ + static_cast<int64_t>(i % local);
    return ids;
  }
  static std::vector<float> numbers(int rank) {
    std::vector<float> values(tokens * hidden);
    for (size_t i = 0; i < values.size(); ++i) values[i] = token_value(rank, static_cast<uint32_t>(i), 1);
    return values;
  }

  const epcclStream_t stream_;
  const int first_there_;
  const size_t rows_;
  const bool is_static_;
  const GpuArray<int64_t> table_;
  const GpuArray<float> input_, output_;
  epcclEpGroup_t group_ = nullptr;
  epcclEpHandle_t handle_ = nullptr;
};

/// What kernels did on one rank.
struct Kernels {
  long launches = 0, bytes = 0;
  friend bool operator==(const Kernels&, const Kernels&) = default;
};
void PrintTo(const Kernels& kernels, std::ostream* out) {
  *out << kernels.launches << " launches, " << kernels.bytes << " bytes";
}

class EpRelay : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
      GTEST_SKIP() << "built without CUDA kernels";
  }
};

// One launch for a block, which reads its rows once.
TEST_P(EpRelay, HandsABlockToAllRanksOfItsNodeByOneKernel) {
  using Layer = ToTheOtherNode;
  run_ranks({{Layer::local, Layer::local}, {{"EPCCL_CHUNK_SIZE", std::to_string(Layer::chunk)}}, {}},
            [&](const RankContext& context) {
              GpuRank gpu;
              const Comm comm(context);
              Layer layer(context, comm, gpu, GetParam());
              layer.dispatch();  // tables
              gpu.wait();
              fake_cuda_forget_calls();
              layer.dispatch();
              gpu.wait();
              EXPECT_EQ(layer.received(), layer.expected());
              // As source it gathers what it sends; as relay it writes what came to three ranks.
              constexpr long all = Layer::tokens * Layer::token_bytes, blocks = Layer::blocks;
              const Kernels expected{blocks + blocks, 2 * all + (1 + Layer::local) * all};
              EXPECT_EQ((Kernels{fake_cuda_calls("cuLaunchKernel"), fake_cuda_calls("bytes of kernels")}),
                        expected);
            });
}

INSTANTIATE_TEST_SUITE_P(StaticMode, EpRelay, ::testing::Bool());

}  // namespace
}  // namespace epccl::tests
