// What copy engines do, in the order in which their queues do it: proved as any other plan.
#include "plan/queues.hpp"

#include <gtest/gtest.h>

#include "algorithms/alltoall/alltoall.hpp"
#include "algorithms/collectives/collective.hpp"
#include "plan/verifier.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

constexpr std::array all_kinds{Collective::allgather, Collective::reduce_scatter, Collective::allreduce,
                               Collective::broadcast, Collective::reduce,         Collective::gather,
                               Collective::scatter};

Result<plan::Plan> queued(plan::Plan plan, int width, plan::Signals signals = plan::Signals::spread) {
  for (plan::RankPlan& rank : plan.ranks) {
    EPCCL_ASSIGN(const plan::Queues queues, plan::assign_queues(rank, plan.cluster, width, signals));
    rank = plan::in_queue_order(rank, queues);
  }
  return plan;
}

/// Nothing but copies crosses between ranks.
Status check_copies(const plan::Plan& plan) {
  for (const plan::RankPlan& rank : plan.ranks)
    for (const plan::RowSource& source : rank.row_sources)
      if (source.at.rank != rank.rank)
        return error(Code::internal_error, "rank {} adds up memory of rank {}", rank.rank, source.at.rank);
  return {};
}

class QueuedCollective : public testing::TestWithParam<Collective> {};

TEST_P(QueuedCollective, IsRightInTheOrderOfItsQueues) {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const uint64_t elements : {1, 7, 64})
      for (const bool direct : {true, false})
        for (const bool tiny : {true, false})
          for (const int width : {1, 2, 3}) {
            const topology::Cluster cluster = topology::Cluster::uniform(1, ranks);
            const CollectiveCall call{GetParam(), 4 * elements, ranks / 2, 4};
            CollectiveParameters parameters;
            parameters.direct = direct;
            parameters.stage_bytes = 0;
            parameters.fetch = true;
            parameters.carriers = 0;
            if (tiny) {
              parameters.chunk_bytes = 5;
              parameters.scratch_bytes = 2 * call.unit * (3 * static_cast<uint64_t>(ranks) + 2);
            }
            SCOPED_TRACE(fmt::format("{} ranks, {} elements, direct {}, tiny {}, width {}", ranks, elements,
                                     direct, tiny, width));
            ASSERT_TRUE(check(cluster, call, parameters).ok());
            const plan::Plan plan = build_collective_everywhere(cluster, call, parameters);
            const Status copies = check_copies(plan);
            ASSERT_TRUE(copies.ok()) << copies.message();
            const auto ordered = queued(plan, width);
            ASSERT_TRUE(ordered.ok()) << ordered.status().message();
            const CollectiveResult expected = expected_result(cluster, call);
            Status status = plan::verify(*ordered, expected.transfers, expected.sums, {});
            ASSERT_TRUE(status.ok()) << status.message();
            status = plan::verify_in_place(*ordered, expected.transfers, expected.sums, expected.in_place);
            ASSERT_TRUE(status.ok()) << "in place: " << status.message();
          }
}

INSTANTIATE_TEST_SUITE_P(All, QueuedCollective, testing::ValuesIn(all_kinds),
                         [](const auto& it) { return to_string(it.param); });

TEST(QueuedAlltoall, IsRightInTheOrderOfItsQueues) {
  auto random = tests::seeded_generator("queued alltoallv");
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const bool direct : {true, false})
      for (const int width : {1, 2, 3})
        for (const bool uniform : {true, false}) {
          const topology::Cluster cluster = topology::Cluster::uniform(1, ranks);
          const Exchange exchange =
              uniform ? Exchange::uniform(ranks, 200'000)
                      : Exchange::packed(ranks, tests::random_counts(ranks, 300'000, random));
          Parameters parameters;
          parameters.direct = direct;
          parameters.eager_limit = 0;
          SCOPED_TRACE(
              fmt::format("{} ranks, direct {}, width {}, uniform {}", ranks, direct, width, uniform));
          const auto ordered =
              queued(build_alltoall_everywhere(Algorithm::flat, cluster, exchange, parameters), width);
          ASSERT_TRUE(ordered.ok()) << ordered.status().message();
          const Status status = plan::verify(*ordered, exchange.transfers());
          ASSERT_TRUE(status.ok()) << status.message();
        }
}

// What the device executor runs: it adds no order but what has happened already, so the plan itself is what is proved.
TEST_P(QueuedCollective, OfSeveralNodesIsRightWhereTheHostPostsAndSends) {
  for (const std::vector<int>& sizes : {std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 3, 2}})
    for (const Form form : {Form::two_level, Form::flat})
      for (const int carriers : {0, 1})
        for (const bool other : {false, true}) {
          const topology::Cluster cluster = topology::Cluster::from_sizes(sizes);
          const CollectiveCall call{GetParam(), 4 * 37, cluster.ranks() / 2, 4};
          CollectiveParameters parameters;
          parameters.form = form;
          parameters.carriers = carriers;
          parameters.relay = parameters.split = other;
          parameters.fetch = parameters.direct = true;
          parameters.stage_bytes = 0;
          parameters.chunk_bytes = 24;
          parameters.scratch_bytes = 4096;
          SCOPED_TRACE(fmt::format("{} nodes, form {}, carriers {}, relay and split {}", sizes.size(),
                                   to_string(form), carriers, other));
          ASSERT_TRUE(check(cluster, call, parameters).ok());
          const plan::Plan plan = build_collective_everywhere(cluster, call, parameters);
          const Status copies = check_copies(plan);
          ASSERT_TRUE(copies.ok()) << copies.message();
          for (const plan::RankPlan& rank : plan.ranks) {
            const auto queues = plan::assign_queues(rank, cluster, 2, plan::Signals::by_host);
            ASSERT_TRUE(queues.ok()) << queues.status().message();
            for (size_t step = 0; step < rank.steps.size(); ++step) {
              const plan::Kind kind = rank.steps[step].kind;
              EXPECT_EQ(queues->of_step[step] != plan::Queues::none,
                        kind == plan::Kind::copy || kind == plan::Kind::reduce);
            }
          }
          const CollectiveResult expected = expected_result(cluster, call);
          Status status = plan::verify(plan, expected.transfers, expected.sums, {});
          ASSERT_TRUE(status.ok()) << status.message();
          status = plan::verify_in_place(plan, expected.transfers, expected.sums, expected.in_place);
          ASSERT_TRUE(status.ok()) << "in place: " << status.message();
        }
}

TEST(Queues, RefuseMessages) {
  const topology::Cluster cluster = topology::Cluster::uniform(2, 1);
  plan::Builder builder(0);
  builder.send(1, 0, builder.input(0), 8);
  const plan::RankPlan plan = std::move(builder).take();
  EXPECT_EQ(plan::assign_queues(plan, cluster, 1).status().code(), Code::internal_error);
}

// The order of queues is really what is proved: this one cannot work.
TEST(Queues, ThatWaitForEachOtherAreFound) {
  const topology::Cluster cluster = topology::Cluster::uniform(1, 2);
  plan::Plan plan{cluster, "crossed", {}};
  for (int rank = 0; rank < 2; ++rank) {
    plan::Builder builder(rank);
    const int other = 1 - rank;
    const std::array ready{builder.wait(0, other, 0, 1)};
    builder.copy(0, {other, plan::Buffer::scratch, 0}, builder.output(0), 4, ready);
    const std::array staged{builder.copy(0, builder.input(0), builder.scratch(0), 4)};
    builder.post(0, 0, 1, staged);
    plan.ranks.push_back(std::move(builder).take());
  }
  const std::vector<plan::Transfer> expected{{0, 0, 1, 0, 4}, {1, 0, 0, 0, 4}};
  EXPECT_TRUE(plan::verify(plan, expected).ok()) << plan::verify(plan, expected).message();
  EXPECT_TRUE(plan::verify(*queued(plan, 1), expected).ok());
  for (plan::RankPlan& rank : plan.ranks) {
    const plan::Queues one{std::vector<uint16_t>{plan::Queues::none, 0, 0, 0}, {plan::Lane::pull}};
    rank = plan::in_queue_order(rank, one);
  }
  EXPECT_FALSE(plan::verify(plan, expected).ok());
}

}  // namespace
}  // namespace epccl::algorithms
