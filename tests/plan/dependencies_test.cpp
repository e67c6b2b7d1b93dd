// Plans grow as what they move does, and no faster: a large call that is cut into many chunks has a few dependencies a step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithms/alltoall/alltoall.hpp"
#include "algorithms/collectives/collective.hpp"
#include "algorithms/tables/table_exchange.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

using topology::Cluster;

constexpr uint64_t chunk = 64, small_scratch = 32 << 10;  // which a large call passes through in many rounds

std::vector<Cluster> shapes() {
  return {Cluster::uniform(1, 8),         Cluster::uniform(2, 1),
          Cluster::uniform(5, 1),         Cluster::uniform(2, 4),
          Cluster::from_sizes({1, 2, 3}), Cluster::from_host_ids({7, 9, 7, 9, 7, 9}).value()};
}

// A step may have to wait for each rank, as a sum of what all have does, or for what all do.
void expect_few(const plan::Plan& plan, const std::string& what) {
  const auto few = 2 * static_cast<size_t>(plan.cluster.ranks() + 2);
  for (const plan::RankPlan& rank : plan.ranks)
    ASSERT_LE(rank.dependencies.size(), few * rank.steps.size())
        << what << " on " << tests::shape_text(plan.cluster) << ", rank " << rank.rank;
}

void expect_few_of(const Cluster& cluster, Collective kind, const CollectiveParameters& parameters) {
  const CollectiveSpec call{kind, 512 * chunk, 0, 4};
  if (!check(cluster, call, parameters).ok()) return;
  expect_few(build_collective_everywhere(cluster, call, parameters),
             fmt::format("{} {} {}, carriers {}{}{}, scratch {}{}", to_string(kind),
                         to_string(parameters.form), to_string(parameters.variant), parameters.carriers,
                         parameters.fetch ? ", fetch" : "", parameters.scaled ? ", scaled" : "",
                         parameters.scratch_bytes, parameters.direct ? "" : ", not direct"));
}

class DependenciesOf : public testing::TestWithParam<Collective> {};

TEST_P(DependenciesOf, LargeCallsAreFew) {
  const bool sums = reduces(GetParam());
  for (const Cluster& cluster : shapes())
    for (const Form form : {Form::flat, Form::two_level})
      for (const Variant variant : variants)
        for (unsigned flags = 0; flags < 32; ++flags) {
          CollectiveParameters it;
          it.form = form;
          it.variant = variant;
          it.chunk_bytes = chunk;
          it.direct = (flags & 1U) == 0;
          if ((flags & 2U) != 0) it.scratch_bytes = small_scratch;
          it.carriers = (flags & 4U) == 0 ? 1 : 0;
          it.fetch = (flags & 8U) != 0;
          it.scaled = (flags & 16U) != 0;
          // What nothing looks at, and what cannot be.
          if (!sums && flags > 3) continue;
          if (form == Form::flat && (it.scaled || variant != Variant::plain)) continue;
          if (variant == Variant::alone && it.fetch) continue;
          if (variant != Variant::plain &&
              (variant == Variant::together) != (GetParam() == Collective::reduce_scatter))
            continue;
          expect_few_of(cluster, GetParam(), it);
          if (HasFatalFailure()) return;
        }
}

INSTANTIATE_TEST_SUITE_P(All, DependenciesOf,
                         testing::Values(Collective::allgather, Collective::reduce_scatter,
                                         Collective::allreduce, Collective::broadcast, Collective::reduce,
                                         Collective::gather, Collective::scatter),
                         [](const auto& it) { return to_string(it.param); });

// Of ranks that are not numbered node by node each block is a message of its own.
TEST(Dependencies, OfMessagesAreWhatTheyAreMadeOf) {
  const Cluster cluster = Cluster::from_host_ids({7, 9, 7, 9, 7, 9}).value();
  for (const Collective kind : {Collective::allgather, Collective::gather}) {
    const plan::Plan plan = build_collective_everywhere(cluster, {kind, 64, 0, 4}, {});
    for (const plan::RankPlan& rank : plan.ranks)
      for (const plan::Step& step : rank.steps) {
        if (step.kind != plan::Kind::send) continue;
        EXPECT_EQ(step.dependency_count, 1) << to_string(kind) << ", rank " << rank.rank;
      }
  }
}

TEST(Dependencies, OfLargeAlltoallsAreFew) {
  for (const Cluster& cluster : shapes())
    for (const Algorithm algorithm : all_algorithms)
      for (Parameters parameters : tests::parameter_choices()) {
        parameters.chunk_bytes = chunk;
        parameters.eager_limit = 8 * chunk;
        parameters.scratch_bytes = small_scratch;
        if (!check(cluster, parameters).ok()) continue;
        const Exchange exchange = Exchange::uniform(cluster.ranks(), 512 * chunk);
        expect_few(build_alltoall_everywhere(algorithm, cluster, exchange, parameters),
                   fmt::format("alltoall {}, {}", to_string(algorithm), tests::text_of(parameters)));
      }
}

TEST(Dependencies, OfLargeTablesAreFew) {
  for (const Cluster& cluster : shapes()) {
    plan::Plan all{cluster, "table", {}};
    for (int rank = 0; rank < cluster.ranks(); ++rank)
      all.ranks.push_back(build_table_exchange(cluster, rank, 512 * chunk, chunk));
    expect_few(all, "table");
  }
}

}  // namespace
}  // namespace epccl::algorithms
