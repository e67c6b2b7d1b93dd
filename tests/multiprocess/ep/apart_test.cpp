// Dispatch and combine of ranks that may not open each other's memory: it is handed over.
#include "apart.hpp"

#include <cerrno>
#include <cstring>
#include <random>

#include "layer.hpp"

namespace epccl::tests {
namespace {

class LayersApart : public testing::TestWithParam<Apart> {};

TEST_P(LayersApart, GiveWhatTheRoutingSays) {
  const Apart how = GetParam();
  if (!can_be_set_apart(how)) GTEST_SKIP() << "ranks cannot be kept from each other here: " << text_of(how);
  const uint64_t seed = seed_of_this_test();
  for (const std::vector<int>& shape : {std::vector<int>{4}, std::vector<int>{2, 2}})
    run_ranks({shape, {}, {}}, [&](const RankContext& context) {
      ASSERT_TRUE(set_apart(how, context.rank)) << std::strerror(errno);
      Comm comm(context);
      std::mt19937_64 random(seed);
      for (int i = 0; i < 4 && !testing::Test::HasFailure(); ++i) {
        const Problem problem = random_problem(shape, random);
        SCOPED_TRACE(problem.text());
        Layer layer(context, comm, problem);
        layer.update();
        layer.forward(problem.by_expert());
        layer.forward(false);
        if (problem.by_expert()) layer.backward();
      }
    });
}

INSTANTIATE_TEST_SUITE_P(Ways, LayersApart,
                         testing::Values(Apart::user_namespaces, Apart::capabilities, Apart::not_dumpable),
                         [](const auto& info) { return text_of(info.param); });

}  // namespace
}  // namespace epccl::tests
