// What copy engines and kernels do, in the order in which their queues do it: proved as any other plan.
#include "plan/queues.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/alltoall/alltoall.hpp"
#include "algorithms/collectives/collective.hpp"
#include "plan/copy_lists.hpp"
#include "plan/fewer_kernels.hpp"
#include "plan/verifier.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

constexpr std::array all_kinds{Collective::allgather, Collective::reduce_scatter, Collective::allreduce,
                               Collective::broadcast, Collective::reduce,         Collective::gather,
                               Collective::scatter};

/// Who makes queues before there is a plan makes so many.
Status check_number(const plan::Queues& queues, int width, plan::Signals signals) {
  for (int each = 0; each < plan::lanes; ++each) {
    const auto lane = static_cast<plan::Lane>(each);
    const auto used = std::ranges::count(queues.lane, lane);
    if (const int most = plan::most_queues(lane, std::max(width, 1), signals); used > most)
      return error(Code::internal_error, "{} queues of lane {}, not {} at most", used, to_string(lane), most);
  }
  return {};
}

using Order = plan::RankPlan (*)(const plan::RankPlan&, const plan::Queues&);

Result<plan::Plan> queued(plan::Plan plan, int width, plan::Makers makers = plan::Makers::engines,
                          Order order = plan::in_queue_order) {
  for (plan::RankPlan& rank : plan.ranks) {
    EPCCL_ASSIGN(const plan::QueuedPlan made,
                 plan::queued_plan(rank, plan.cluster, width, plan::Signals::spread, makers));
    EPCCL_TRY(check_number(made.queues, width, plan::Signals::spread));
    rank = order(made.plan, made.queues);
  }
  return plan;
}

constexpr int by_cores = 0;  // in place of a width

/// Nothing but copies crosses between ranks.
Status check_copies(const plan::Plan& plan) {
  for (const plan::RankPlan& rank : plan.ranks)
    for (const plan::RowSource& source : rank.row_sources)
      if (source.at.rank != rank.rank)
        return error(Code::internal_error, "rank {} adds up memory of rank {}", rank.rank, source.at.rank);
  return {};
}

/// What is proved of a collective on one node: in rounds of a few bytes where it is tiny, in one otherwise.
struct OneNode {
  OneNode(Collective kind, int ranks, uint64_t elements, bool direct, bool tiny)
      : cluster(topology::Cluster::uniform(1, ranks)), call{kind, 4 * elements, ranks / 2, 4} {
    parameters.direct = direct;
    parameters.stage_bytes = 0;
    parameters.carriers = 0;
    if (!tiny) return;
    parameters.chunk_bytes = 5;
    parameters.scratch_bytes = 2 * call.unit * (3 * static_cast<uint64_t>(ranks) + 2);
  }
  topology::Cluster cluster;
  CollectiveSpec call;
  CollectiveParameters parameters;
};

template <typename Use>
void for_each_shape(Collective kind, Use use) {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const uint64_t elements : {1, 7, 64})
      for (const bool direct : {true, false})
        for (const bool tiny : {true, false}) {
          SCOPED_TRACE(
              fmt::format("{} ranks, {} elements, direct {}, tiny {}", ranks, elements, direct, tiny));
          use(OneNode(kind, ranks, elements, direct, tiny));
          if (testing::Test::HasFatalFailure()) return;
        }
}

/// Proved with buffers of their own, and in place.
void expect_right(const plan::Plan& plan, const CollectiveSpec& call) {
  const CollectiveResult expected = expected_result(plan.cluster, call);
  Status status = plan::verify(plan, expected.transfers, expected.sums, {});
  ASSERT_TRUE(status.ok()) << status.message();
  status = plan::verify_in_place(plan, expected.transfers, expected.sums, expected.in_place);
  ASSERT_TRUE(status.ok()) << "in place: " << status.message();
}

void expect_right_when_queued(const OneNode& of, int width, plan::Makers makers) {
  SCOPED_TRACE(fmt::format("makers {}, width {}, fetch {}, scaled {}", static_cast<int>(makers), width,
                           of.parameters.fetch, of.parameters.scaled));
  ASSERT_TRUE(check(of.cluster, of.call, of.parameters).ok());
  const plan::Plan plan = build_collective_everywhere(of.cluster, of.call, of.parameters);
  if (of.parameters.fetch) {
    const Status copies = check_copies(plan);
    ASSERT_TRUE(copies.ok()) << copies.message();
  }
  for (const Order order : {plan::in_queue_order, plan::in_list_order}) {
    SCOPED_TRACE(order == plan::in_list_order ? "lists" : "queues");
    const auto ordered = queued(plan, width, makers, order);
    ASSERT_TRUE(ordered.ok()) << ordered.status().message();
    expect_right(*ordered, of.call);
  }
}

class QueuedCollective : public testing::TestWithParam<Collective> {};

TEST_P(QueuedCollective, IsRightInTheOrderOfItsQueues) {
  for_each_shape(GetParam(), [](OneNode of) {
    of.parameters.fetch = true;
    for (const int width : {1, 2, 3, 4}) expect_right_when_queued(of, width, plan::Makers::engines);
  });
}

// Where ranks share a GPU, and where cores copy: sums read peers' memory, and write what would be copied of them.
TEST_P(QueuedCollective, IsRightWhereSumsReadAndWritePeersMemory) {
  for_each_shape(GetParam(), [](OneNode of) {
    for (const bool scaled : {true, false}) {
      if (scaled && !reduces(GetParam())) continue;
      of.parameters.scaled = scaled;
      expect_right_when_queued(of, 1, plan::Makers::engines_and_sums);
      expect_right_when_queued(of, 3, plan::Makers::engines_and_sums);
      expect_right_when_queued(of, 3, plan::Makers::cores);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, QueuedCollective, testing::ValuesIn(all_kinds),
                         [](const auto& it) { return to_string(it.param); });

TEST(QueuedAlltoall, IsRightInTheOrderOfItsQueues) {
  auto random = tests::seeded_generator("queued alltoallv");
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const bool direct : {true, false})
      for (const int width : {1, 2, 3, 4, by_cores})
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
          for (const Order order : {plan::in_queue_order, plan::in_list_order}) {
            const auto ordered =
                queued(build_alltoall_everywhere(Algorithm::flat, cluster, exchange, parameters), width,
                       width == by_cores ? plan::Makers::cores : plan::Makers::engines, order);
            ASSERT_TRUE(ordered.ok()) << ordered.status().message();
            const Status status = plan::verify(*ordered, exchange.transfers());
            ASSERT_TRUE(status.ok()) << status.message();
          }
        }
}

// What the device executor runs: it adds no order but what has happened already, so the plan itself is what is proved.
TEST_P(QueuedCollective, OfSeveralNodesIsRightWhereTheHostPostsAndSends) {
  for (const std::vector<int>& sizes : {std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 3, 2}})
    for (const Form form : {Form::two_level, Form::flat})
      for (const int carriers : {0, 1})
        for (const Variant variant : {Variant::plain, Variant::relay, Variant::split, Variant::tree}) {
          const topology::Cluster cluster = topology::Cluster::from_sizes(sizes);
          const CollectiveSpec call{GetParam(), 4 * 37, cluster.ranks() / 2, 4};
          CollectiveParameters parameters;
          parameters.form = form;
          parameters.carriers = carriers;
          parameters.variant = variant;
          parameters.fetch = parameters.direct = true;
          parameters.stage_bytes = 0;
          parameters.chunk_bytes = 24;
          parameters.scratch_bytes = 4096;
          SCOPED_TRACE(fmt::format("{} nodes, form {}, carriers {}, {}", sizes.size(), to_string(form),
                                   carriers, to_string(variant)));
          ASSERT_TRUE(check(cluster, call, parameters).ok());
          const plan::Plan plan = build_collective_everywhere(cluster, call, parameters);
          const Status copies = check_copies(plan);
          ASSERT_TRUE(copies.ok()) << copies.message();
          for (const plan::RankPlan& rank : plan.ranks) {
            const auto queues = plan::assign_queues(rank, cluster, 2, plan::Signals::by_host);
            ASSERT_TRUE(queues.ok()) << queues.status().message();
            const Status number = check_number(*queues, 2, plan::Signals::by_host);
            ASSERT_TRUE(number.ok()) << number.message();
            for (size_t step = 0; step < rank.steps.size(); ++step) {
              const plan::Kind kind = rank.steps[step].kind;
              EXPECT_EQ(queues->of_step[step] != plan::Queues::none,
                        kind == plan::Kind::copy || kind == plan::Kind::reduce);
            }
          }
          expect_right(plan, call);
        }
}

/// Which nodes' ranks use one GPU each, so that their sums read and write peers' memory.
enum class Sharing : uint8_t { all, every_second };

bool shares(Sharing sharing, int node) {
  return sharing == Sharing::all || node % 2 == 0;
}

/// What comes of a call of several nodes: each node's ranks know for themselves what their GPUs are.
plan::Plan made_by_nodes(const topology::Cluster& cluster, const CollectiveSpec& call,
                         CollectiveParameters parameters, Sharing sharing) {
  plan::Plan plan{cluster, "by nodes", {}};
  parameters.room_to_fetch = true;
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    const bool is_shared = shares(sharing, cluster.node_of(rank));
    parameters.fetch = !is_shared;
    auto made = plan::queued_plan(build_collective(cluster, call, rank, parameters), cluster, 2,
                                  plan::Signals::by_host,
                                  is_shared ? plan::Makers::engines_and_sums : plan::Makers::engines);
    EXPECT_TRUE(made.ok()) << made.status().message();
    plan.ranks.push_back(std::move(made->plan));
  }
  return plan;
}

class QueuedSum : public testing::TestWithParam<Collective> {};
INSTANTIATE_TEST_SUITE_P(All, QueuedSum,
                         testing::Values(Collective::reduce_scatter, Collective::allreduce,
                                         Collective::reduce),
                         [](const auto& it) { return to_string(it.param); });

// Also scaled, which goes through scratch, in rounds.
TEST_P(QueuedSum, OfSeveralNodesIsRightWhereRanksOfSomeNodesShareAGpu) {
  for (const std::vector<int>& sizes : {std::vector{2, 2}, std::vector{3, 3}, std::vector{1, 3, 2}})
    for (const Form form : {Form::two_level, Form::flat})
      for (const int carriers : {0, 1})
        for (const Variant variant : {Variant::plain, Variant::relay, Variant::split, Variant::tree})
          for (const bool scaled : {false, true})
            for (const Sharing sharing : {Sharing::all, Sharing::every_second}) {
              if (scaled && form == Form::flat) continue;
              const topology::Cluster cluster = topology::Cluster::from_sizes(sizes);
              const CollectiveSpec call{GetParam(), 4 * 37, cluster.ranks() / 2, 4};
              CollectiveParameters parameters;
              parameters.form = form;
              parameters.carriers = carriers;
              parameters.variant = variant;
              parameters.scaled = scaled;
              parameters.stage_bytes = 0;
              parameters.chunk_bytes = 24;
              parameters.scratch_bytes = scaled ? 1024 : 4096;
              SCOPED_TRACE(fmt::format("{} nodes, form {}, carriers {}, {}, scaled {}, {}", sizes.size(),
                                       to_string(form), carriers, to_string(variant), scaled,
                                       sharing == Sharing::all ? "all share" : "some share"));
              ASSERT_TRUE(check(cluster, call, parameters).ok());
              expect_right(made_by_nodes(cluster, call, parameters, sharing), call);
              if (HasFailure()) return;
            }
}

/// What a rank's queues get: sums, copies that are no part of a sum, and lists of copies.
struct Work {
  size_t sums = 0, results = 0, copies = 0, lists = 0;
};

Work work_of(const plan::QueuedPlan& made) {
  Work work;
  std::vector<bool> goes_on(made.queues.count(), false);
  for (size_t step = 0; step < made.plan.steps.size(); ++step) {
    const uint16_t queue = made.queues.of_step[step];
    if (queue == plan::Queues::none) continue;
    const plan::Kind kind = made.plan.steps[step].kind;
    const bool is_result = made.queues.sum_of[step] != plan::Builder::none;
    const bool is_copy = kind == plan::Kind::copy && !is_result;
    work.sums += kind == plan::Kind::reduce ? 1 : 0;
    work.results += is_result ? 1 : 0;
    work.copies += is_copy ? 1 : 0;
    work.lists += is_copy && !goes_on[queue] ? 1 : 0;
    goes_on[queue] = is_copy;
  }
  return work;
}

plan::QueuedPlan made_for(const CollectiveSpec& call, int ranks, plan::Makers makers) {
  const topology::Cluster cluster = topology::Cluster::uniform(1, ranks);
  CollectiveParameters parameters;
  parameters.stage_bytes = 0;
  parameters.carriers = 0;
  parameters.chunk_bytes = 1 << 20;
  auto made = plan::queued_plan(build_collective(cluster, call, 1, parameters), cluster, 3,
                                plan::Signals::spread, makers);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

TEST(FewerKernels, AnAllreduceIsOneSumThatWritesAllOutputs) {
  const CollectiveSpec call{Collective::allreduce, 4096, 0, 4};
  for (const plan::Makers makers : {plan::Makers::engines_and_sums, plan::Makers::cores}) {
    const Work work = work_of(made_for(call, 5, makers));
    EXPECT_EQ(work.sums, 1U);
    EXPECT_EQ(work.results, 4U);
    EXPECT_EQ(work.copies, 0U);
  }
  EXPECT_EQ(work_of(made_for(call, 5, plan::Makers::engines)).results, 0U);
}

// Of its share of a piece; what other nodes have finished comes as messages, and is copied.
TEST(FewerKernels, AnAllreduceOfSeveralNodesWritesItsShareEverywhere) {
  const topology::Cluster cluster = topology::Cluster::uniform(2, 4);
  for (const Variant variant : {Variant::plain, Variant::split}) {
    CollectiveParameters parameters;
    parameters.stage_bytes = 0;
    parameters.carriers = 0;
    parameters.variant = variant;
    parameters.chunk_bytes = 1 << 20;
    parameters.room_to_fetch = true;
    const auto made =
        plan::queued_plan(build_collective(cluster, {Collective::allreduce, 4096, 0, 4}, 1, parameters),
                          cluster, 3, plan::Signals::by_host, plan::Makers::engines_and_sums);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const Work work = work_of(*made);
    EXPECT_EQ(work.sums, 2U) << "of the node, and of the nodes";
    EXPECT_EQ(work.results, 3U);
    EXPECT_EQ(work.copies, variant == Variant::split ? 3U : 0U);
  }
}

TEST(FewerKernels, CoresGetTheCopiesOfACallAsOneList) {
  for (const Collective kind : {Collective::allgather, Collective::gather, Collective::scatter}) {
    const CollectiveSpec call{kind, 4096, 1, 4};
    EXPECT_LE(work_of(made_for(call, 5, plan::Makers::cores)).lists, 1U) << to_string(kind);
  }
  EXPECT_GT(work_of(made_for({Collective::allgather, 4096, 1, 4}, 5, plan::Makers::engines)).lists, 1U);
}

// A sum that reads what the copy would overwrite somewhere else must be over before.
TEST(FewerKernels, ASumDoesNotWriteWhereItStillReads) {
  const auto built = [](uint64_t read_at, bool waits_for_more) {
    plan::Builder builder(0);
    const std::array ready{builder.wait(0, 1, 0, 1)};
    const uint32_t other = builder.wait(0, 1, 0, 2);
    const std::array sources{builder.input(0), plan::Location{1, plan::Buffer::input, read_at}};
    const uint32_t sum = builder.reduce(0, sources, {}, builder.output(0), 8, true, ready);
    std::vector<uint32_t> after{sum, ready[0]};
    if (waits_for_more) after.push_back(other);
    builder.copy(0, builder.output(0), {1, plan::Buffer::output, 0}, 8, after);
    return std::move(builder).take();
  };
  const auto sum_can_write = [](const plan::RankPlan& plan) {
    return plan::sum_can_write(plan, 2, plan.steps.back());
  };
  EXPECT_TRUE(sum_can_write(built(0, false)));
  EXPECT_FALSE(sum_can_write(built(4, false))) << "in place the copy's bytes are read for another element";
  EXPECT_FALSE(sum_can_write(built(0, true))) << "the copy waits for what the sum does not wait for";
}

/// Rank 1 of two: own input -> `first` -> its output, both by the queue that pulls.
plan::RankPlan chained_copies(std::span<const uint32_t> between = {}) {
  plan::Builder builder(1);
  const std::array copied{builder.copy(0, {0, plan::Buffer::input, 0}, builder.output(0), 8)};
  std::vector<uint32_t> after(copied.begin(), copied.end());
  for (const uint32_t value : between) after = {builder.wait(0, 0, 0, value, after)};
  builder.copy(0, builder.output(0), builder.output(8), 8, after);
  return std::move(builder).take();
}

std::vector<bool> begins_in_one_queue(const plan::RankPlan& plan) {
  plan::Queues one{std::vector<uint16_t>(plan.steps.size(), 0), {plan::Lane::pull}, {}};
  for (size_t step = 0; step < plan.steps.size(); ++step)
    if (plan.steps[step].kind == plan::Kind::wait) one.of_step[step] = plan::Queues::none;
  return plan::begins_of_lists(plan, one);
}

TEST(CopyLists, ACopyThatDependsOnAnotherOfItsQueueBeginsAList) {
  using Begins = std::vector<bool>;
  EXPECT_EQ(begins_in_one_queue(chained_copies()), (Begins{false, true}));
  const std::array waits{1U, 2U};
  EXPECT_EQ(begins_in_one_queue(chained_copies(waits)), (Begins{false, false, false, true}))
      << "a queue that is past the counter's value does not wait again";

  plan::Builder builder(0);
  const std::array first{builder.copy(0, builder.input(0), builder.output(0), 8)};
  builder.copy(0, builder.input(8), builder.output(8), 8);
  const std::array post{builder.post(0, 0, 1, first)};
  builder.copy(0, builder.output(0), builder.output(16), 8, post);
  const std::array behind{builder.copy(0, builder.output(0), builder.output(24), 8, first)};
  builder.copy(0, builder.output(24), builder.output(32), 8, behind);
  builder.copy(0, builder.output(24), builder.output(40), 8, behind);
  EXPECT_EQ(begins_in_one_queue(std::move(builder).take()),
            (Begins{false, false, false, false, true, false}));
}

// What is proved of lists: copies of one have no order.
TEST(CopyLists, CopiesThatOnlyTheirQueueOrdersAreFound) {
  const topology::Cluster cluster = topology::Cluster::uniform(1, 1);
  for (const bool depends : {true, false}) {
    plan::Plan plan{cluster, "read after written", {}};
    plan::Builder builder(0);
    const std::array first{builder.copy(0, builder.input(0), builder.output(0), 8)};
    builder.copy(0, builder.output(0), builder.output(8), 8,
                 depends ? std::span<const uint32_t>(first) : std::span<const uint32_t>());
    plan.ranks.push_back(std::move(builder).take());
    const std::vector<plan::Transfer> expected{{0, 0, 0, 0, 8}, {0, 0, 0, 8, 8}};
    EXPECT_TRUE(plan::verify(*queued(plan, 1), expected).ok());
    const Status status =
        plan::verify(*queued(plan, 1, plan::Makers::engines, plan::in_list_order), expected);
    EXPECT_EQ(status.ok(), depends) << status.message();
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
    const plan::Queues one{std::vector<uint16_t>{plan::Queues::none, 0, 0, 0}, {plan::Lane::pull}, {}};
    rank = plan::in_queue_order(rank, one);
  }
  EXPECT_FALSE(plan::verify(plan, expected).ok());
}

}  // namespace
}  // namespace epccl::algorithms
