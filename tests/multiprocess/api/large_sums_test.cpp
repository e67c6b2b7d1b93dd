// Sums of so much at once that what peers cannot map is fetched in several pieces, beside what they can map.
#include <gtest/gtest.h>

#include <cstddef>
#include <tuple>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

constexpr size_t count = (size_t{2} << 20) / sizeof(float);

float value(int rank, size_t at) {
  return static_cast<float>((at * 7 + static_cast<size_t>(rank) * 13) % 1009);
}

/// Memory of a rank: `mappable` by its peers, or not.
class Floats {
 public:
  explicit Floats(bool mappable) {
    void* memory = nullptr;
    if (mappable) {
      EXPECT_EQ(epcclMemAlloc(&memory, count * sizeof(float)), epcclSuccess);
      mapped_ = static_cast<float*>(memory);
    } else {
      plain_.resize(count);
    }
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() {
    if (mapped_ != nullptr) {
      EXPECT_EQ(epcclMemFree(mapped_), epcclSuccess);
    }
  }
  float* data() { return mapped_ != nullptr ? mapped_ : plain_.data(); }

 private:
  std::vector<float> plain_;
  float* mapped_ = nullptr;
};

/// How many of the node's ranks have memory that peers can map: every such-and-such.
class LargeSums : public testing::TestWithParam<std::tuple<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, LargeSums,
                         testing::Combine(testing::Values(2, 6), testing::Values(2, 3, 100)));

TEST_P(LargeSums, HaveEveryElementOnce) {
  const auto [ranks, every] = GetParam();
  run_ranks({{ranks}, {{"EPCCL_STAGING", "never"}, {"EPCCL_CHUNK_SIZE", "1M"}}, {}},
            [every = every](const RankContext& context) {
              const Comm comm(context);
              const bool mappable = context.rank % every == 1;
              Floats in(mappable), out(mappable);
              for (size_t i = 0; i < count; ++i) in.data()[i] = value(context.rank, i);
              ASSERT_EQ(epcclAllReduce(in.data(), out.data(), count, epcclFloat32, epcclSum, comm, nullptr),
                        epcclSuccess)
                  << epcclGetLastError(comm);
              size_t wrong = 0;
              for (size_t i = 0; i < count; ++i) {
                float sum = 0;
                for (int rank = 0; rank < context.ranks; ++rank) sum += value(rank, i);
                if (out.data()[i] != sum) ++wrong;
              }
              EXPECT_EQ(wrong, 0u);
            });
}

}  // namespace
}  // namespace epccl::tests
