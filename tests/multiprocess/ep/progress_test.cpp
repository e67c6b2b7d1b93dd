// Calls that are started and completed later, and calls on streams.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "layer.hpp"

namespace epccl::tests {
namespace {

TEST(EpProgress, RunsInTwoPhases) {
  run_ranks({{2, 2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::mt19937_64 random(7);
    for (int i = 0; i < 6; ++i) {
      const Problem problem = random_problem({2, 2}, random);
      SCOPED_TRACE(problem.text());
      Layer layer(context, comm, problem);
      layer.update();
      layer.forward(problem.by_expert(), true);
    }
  });
}

TEST(EpProgress, RunsOnStreams) {
  run_ranks({{2, 2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    std::mt19937_64 random(8);
    for (int i = 0; i < 6; ++i) {
      const Problem problem = random_problem({2, 2}, random);
      SCOPED_TRACE(problem.text());
      Layer layer(context, comm, problem, stream);
      layer.update();
      layer.forward(problem.by_expert());
    }
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
