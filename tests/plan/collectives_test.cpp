// Every collective, every form, proved for every schedule: out of place and in place.
#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/collectives/collective.hpp"
#include "plan/printer.hpp"
#include "plan/verifier.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

using tests::small_shapes;

constexpr std::array all_kinds{Collective::allgather, Collective::reduce_scatter, Collective::allreduce,
                               Collective::broadcast, Collective::reduce,         Collective::gather,
                               Collective::scatter};

std::string text_of(const topology::Cluster& cluster, const CollectiveSpec& call,
                    const CollectiveParameters& parameters) {
  return fmt::format(
      "{} {} {} on {}: {} bytes, unit {}, root {}; carriers {}{}{}, chunk {}, stage {}, scratch {}{}",
      to_string(call.kind), to_string(parameters.form), to_string(parameters.variant),
      tests::shape_text(cluster), call.bytes, call.unit, call.root, parameters.carriers,
      parameters.scaled ? ", scaled" : "", parameters.fetch ? ", fetch" : "", parameters.chunk_bytes,
      parameters.stage_bytes, parameters.scratch_bytes, parameters.direct ? "" : ", not direct");
}

Status prove(const topology::Cluster& cluster, const CollectiveSpec& call,
             const CollectiveParameters& parameters) {
  EPCCL_TRY(check(cluster, call, parameters));
  const plan::Plan plan = build_collective_everywhere(cluster, call, parameters);
  for (const plan::RankPlan& rank : plan.ranks) {
    if (rank.scratch_bytes > parameters.scratch_bytes)
      return error(Code::internal_error, "rank {} uses {} bytes of scratch", rank.rank, rank.scratch_bytes);
    const auto blocks = [&](int count) { return static_cast<uint64_t>(count) * call.bytes; };
    if (rank.input_bytes > blocks(input_blocks(cluster, call, rank.rank)) ||
        rank.output_bytes > blocks(output_blocks(cluster, call, rank.rank)))
      return error(Code::internal_error, "rank {} uses {} bytes of input, {} of output", rank.rank,
                   rank.input_bytes, rank.output_bytes);
  }
  for (const plan::RankPlan& rank : plan.ranks)
    for (const plan::Step& step : rank.steps)
      for (int i = 0; parameters.scaled && i < step.raw_count; ++i)
        if (rank.row_sources[step.first_source + static_cast<uint32_t>(i)].at.rank != rank.rank)
          return error(Code::internal_error, "rank {} adds up what another should have scaled", rank.rank);
  if (!tests::every_input_read_is_offered(plan))
    return {Code::internal_error, "peers read the input of a rank that offers none"};
  const CollectiveResult expected = expected_result(cluster, call);
  EPCCL_TRY(plan::verify(plan, expected.transfers, expected.sums, {}));
  return plan::verify_in_place(plan, expected.transfers, expected.sums, expected.in_place);
}

// Large and staged, with tiny constants and with the default ones.
std::vector<CollectiveParameters> parameter_choices(const topology::Cluster& cluster,
                                                    const CollectiveSpec& call) {
  std::vector<CollectiveParameters> choices;
  for (const Form form : {Form::flat, Form::two_level})
    for (const bool direct : {true, false})
      for (const bool tiny : {true, false}) {
        CollectiveParameters it;
        it.form = form;
        it.direct = direct;
        it.stage_bytes = 64;
        if (tiny) {
          it.chunk_bytes = 3;
          const auto ranks = static_cast<uint64_t>(cluster.ranks());
          it.scratch_bytes = 2 * call.unit * (2 * ranks + 2);
        }
        choices.push_back(it);
      }
  return choices;
}

std::vector<Variant> variants_of(Collective kind) {
  using enum Variant;
  switch (kind) {
    case Collective::allreduce:
      return {alone, tree, split};
    case Collective::broadcast:
    case Collective::reduce:
      return {tree, relay};
    case Collective::reduce_scatter:
      return {together};
    default:
      return {};
  }
}

// The constants that only some collectives look at.
std::vector<CollectiveParameters> ways_of(const CollectiveSpec& call, const CollectiveParameters& base,
                                          int ranks) {
  std::vector<CollectiveParameters> all{base};
  const auto add = [&](auto change) {
    const size_t count = all.size();
    for (size_t i = 0; i < count; ++i) {
      CollectiveParameters other = all[i];
      change(other);
      all.push_back(other);
    }
  };
  if (call.kind == Collective::allreduce || call.kind == Collective::reduce) {
    add([](auto& it) { it.carriers = 0; });
  }
  if (reduces(call.kind)) {
    if (base.form == Form::two_level) add([](auto& it) { it.scaled = true; });
    add([&](auto& it) {
      it.fetch = true;
      it.scratch_bytes += 2 * call.unit * static_cast<uint64_t>(ranks);
    });
  }
  for (size_t i = 0, count = all.size(); i < count && base.form == Form::two_level; ++i)
    for (const Variant variant : variants_of(call.kind)) {
      if (variant == Variant::alone && all[i].fetch) continue;
      all.push_back(all[i]);
      all.back().variant = variant;
    }
  return all;
}

class EveryCollective : public testing::TestWithParam<Collective> {};

TEST_P(EveryCollective, IsRightOnEveryShapeInPlaceAndOutOfPlace) {
  for (const topology::Cluster& cluster : small_shapes())
    for (const uint64_t unit : {1, 4})
      for (const uint64_t elements : {1, 5, 53}) {
        CollectiveSpec call{GetParam(), elements * unit, 0, unit};
        std::vector<int> roots{0};
        if (has_root(call.kind) && cluster.ranks() > 1) roots = {0, cluster.ranks() - 1, cluster.ranks() / 2};
        for (const int root : roots) {
          call.root = root;
          for (const CollectiveParameters& base : parameter_choices(cluster, call))
            for (const CollectiveParameters& parameters : ways_of(call, base, cluster.ranks())) {
              const Status status = prove(cluster, call, parameters);
              ASSERT_TRUE(status.ok()) << text_of(cluster, call, parameters) << "\n" << status.message();
            }
        }
      }
}

TEST_P(EveryCollective, IsRightOnManyNodes) {
  for (const auto& [nodes, local] : {std::pair(8, 4), std::pair(5, 8), std::pair(32, 2)}) {
    const topology::Cluster cluster = topology::Cluster::uniform(nodes, local);
    for (const uint64_t bytes : {uint64_t{4096}, uint64_t{1} << 20}) {
      const CollectiveSpec call{GetParam(), bytes, 3, 4};
      for (const Form form : {Form::flat, Form::two_level}) {
        CollectiveParameters base;
        base.form = form;
        if (form == Form::flat && bytes > 4096)
          continue;  // as many messages as pairs of ranks, in many chunks
        for (const CollectiveParameters& parameters : ways_of(call, base, cluster.ranks())) {
          const Status status = prove(cluster, call, parameters);
          ASSERT_TRUE(status.ok()) << text_of(cluster, call, parameters) << "\n" << status.message();
        }
      }
    }
  }
}

TEST_P(EveryCollective, OfNothingIsNothing) {
  const topology::Cluster cluster = topology::Cluster::uniform(2, 2);
  EXPECT_TRUE(build_collective(cluster, {GetParam(), 0, 0, 4}, 1, {}).steps.empty());
}

TEST_P(EveryCollective, SaysWhatScratchItNeeds) {
  const topology::Cluster cluster = topology::Cluster::uniform(2, 2);
  CollectiveParameters parameters;
  parameters.direct = false;
  parameters.scratch_bytes = 7;
  const Status status = check(cluster, {GetParam(), 64, 0, 8}, parameters);
  EXPECT_EQ(status.code(), Code::invalid_usage);
  EXPECT_NE(status.message().find("EPCCL_SCRATCH_SIZE"), std::string::npos) << status.message();
}

// Such calls may then have a small part of scratch each, and a root that waits for nobody many of them under way.
TEST_P(EveryCollective, WithARootIsStagedWhereItFitsIntoTheScratchOfSmallCalls) {
  for (const topology::Cluster& cluster : small_shapes())
    for (const uint64_t bytes : {8, 40, 80}) {
      const CollectiveSpec call{GetParam(), bytes, cluster.ranks() - 1, 4};
      CollectiveParameters parameters;
      parameters.stage_bytes = 8;
      parameters.ahead_bytes = parameters.scratch_bytes = 200;
      const Staging staging = staging_of(cluster, call, parameters);
      EXPECT_EQ(staging.staged,
                staging.bytes <= 200 && (bytes <= parameters.stage_bytes || has_root(call.kind)))
          << text_of(cluster, call, parameters);
      if (!staging.staged) continue;
      const Status status = prove(cluster, call, parameters);
      ASSERT_TRUE(status.ok()) << text_of(cluster, call, parameters) << "\n" << status.message();
    }
}

// So small calls may have a small place in it each.
TEST_P(EveryCollective, KeepsToTheScratchThatItsStagingSays) {
  for (const topology::Cluster& cluster : small_shapes())
    for (const uint64_t bytes : {8, 1024}) {
      const CollectiveSpec call{GetParam(), bytes, cluster.ranks() - 1, 4};
      for (CollectiveParameters base : parameter_choices(cluster, call)) {
        base.stage_bytes = base.ahead_bytes = base.scratch_bytes = 64 << 10;
        for (CollectiveParameters parameters : ways_of(call, base, cluster.ranks())) {
          const Staging staging = staging_of(cluster, call, parameters);
          if (!staging.staged || staging.bytes > parameters.scratch_bytes) continue;
          parameters.scratch_bytes = staging.bytes;
          if (!check(cluster, call, parameters).ok()) continue;
          const plan::Plan plan = build_collective_everywhere(cluster, call, parameters);
          for (const plan::RankPlan& rank : plan.ranks)
            ASSERT_LE(rank.scratch_bytes, staging.bytes) << text_of(cluster, call, parameters);
          if (bytes > 8) continue;  // to prove it takes long
          const Status status = prove(cluster, call, parameters);
          ASSERT_TRUE(status.ok()) << text_of(cluster, call, parameters) << "\n" << status.message();
        }
      }
    }
}

// Where scratch has room for one chunk, it isn't halved for the sake of two.
TEST(CollectiveMessages, OfASumAreNotCutWhereItFitsAtOnce) {
  const topology::Cluster cluster = topology::Cluster::uniform(4, 8);
  const CollectiveSpec call{Collective::allreduce, 8 << 10, 0, 4};
  CollectiveParameters parameters;
  parameters.stage_bytes = 64 << 10;
  parameters.scratch_bytes = staging_of(cluster, call, parameters).bytes;
  EXPECT_EQ(chunk_of(cluster, call, parameters), call.bytes);
}

INSTANTIATE_TEST_SUITE_P(All, EveryCollective, testing::ValuesIn(all_kinds),
                         [](const auto& it) { return to_string(it.param); });

// What crosses the network in the two-level form, in bytes, against the least that can.
TEST(CollectiveBytes, TwoLevelSendsOnceBetweenNodes) {
  constexpr int nodes = 4, local = 4;
  const topology::Cluster cluster = topology::Cluster::uniform(nodes, local);
  const auto network = [&](Collective kind, Variant variant = Variant::plain) {
    CollectiveParameters parameters;
    parameters.variant = variant;
    const CollectiveSpec call{kind, 1 << 20, 0, 4};
    const plan::Plan plan = build_collective_everywhere(cluster, call, parameters);
    plan::VerifyReport report;
    const CollectiveResult expected = expected_result(cluster, call);
    EXPECT_TRUE(plan::verify(plan, expected.transfers, expected.sums, {}, &report).ok());
    return report.links.network_bytes;
  };
  constexpr uint64_t block = 1 << 20;
  EXPECT_EQ(network(Collective::allgather), nodes * (nodes - 1) * local * block);
  EXPECT_EQ(network(Collective::reduce_scatter), nodes * (nodes - 1) * local * block);
  EXPECT_EQ(network(Collective::broadcast), (nodes - 1) * block);
  EXPECT_EQ(network(Collective::reduce), (nodes - 1) * block);
  EXPECT_EQ(network(Collective::gather), (nodes - 1) * local * block);
  EXPECT_EQ(network(Collective::scatter), (nodes - 1) * local * block);
  EXPECT_EQ(network(Collective::allreduce), nodes * (nodes - 1) * block);
  EXPECT_EQ(network(Collective::allreduce, Variant::split), 2 * (nodes - 1) * block);
}

uint64_t largest_message(const plan::RankPlan& rank) {
  uint64_t most = 0;
  for (const plan::Step& step : rank.steps)
    if (step.kind == plan::Kind::send) most = std::max(most, step.total_bytes());
  return most;
}

// A chunk is as large as all nodes' shares together, and what comes for one is as large as a chunk, however many nodes send it.
TEST(CollectiveMessages, OfASplitAllreduceAreAsLargeAsScratchAllows) {
  for (const auto& [nodes, bytes] :
       {std::pair(2, 128), {4, 128}, {8, 128}, {16, 128}, {32, 64}, {64, 32}, {128, 16}}) {
    CollectiveParameters parameters;
    parameters.variant = Variant::split;
    parameters.carriers = 0;
    const CollectiveSpec call{Collective::allreduce, uint64_t{1} << 30, 0, 4};
    const topology::Cluster cluster = topology::Cluster::uniform(nodes, 8);
    const plan::RankPlan rank = build_collective(cluster, call, 0, parameters);
    EXPECT_GE(largest_message(rank), static_cast<uint64_t>(bytes) << 10) << nodes << " nodes";
    EXPECT_LE(largest_message(rank), parameters.chunk_bytes) << nodes << " nodes";
    EXPECT_LE(rank.scratch_bytes, parameters.scratch_bytes) << nodes << " nodes";
  }
}

TEST(CollectiveMessages, AreAsLargeAsTheCostModelIsTold) {
  const topology::Cluster cluster = topology::Cluster::uniform(16, 4);
  for (const Form form : {Form::flat, Form::two_level})
    for (const Collective kind : {Collective::allreduce, Collective::reduce, Collective::reduce_scatter}) {
      CollectiveParameters parameters;
      parameters.form = form;
      const CollectiveSpec call{kind, uint64_t{16} << 20, 0, 4};
      EXPECT_EQ(largest_message(build_collective(cluster, call, 4, parameters)),
                chunk_of(cluster, call, parameters))
          << to_string(kind) << " " << to_string(form);
    }
}

/// The ranks of one node that add up a large allreduce.
std::vector<int> adders(int ranks, int carriers) {
  CollectiveParameters parameters;
  parameters.carriers = carriers;
  const plan::Plan built = build_collective_everywhere(topology::Cluster::uniform(1, ranks),
                                                       {Collective::allreduce, 1 << 20, 0, 4}, parameters);
  std::vector<int> adding;
  for (const plan::RankPlan& rank : built.ranks)
    if (std::ranges::find(rank.steps, plan::Kind::reduce, &plan::Step::kind) != rank.steps.end())
      adding.push_back(rank.rank);
  return adding;
}

// As many of them as there are cores have a core each, where rank r of R lies on core r * cores / R.
TEST(Carriers, AreSpreadAsRanksAreOverCores) {
  for (const int cores : {2, 3, 4})
    for (int ranks = cores; ranks <= 9; ++ranks) {
      std::vector<int> of_carriers;
      for (const int rank : adders(ranks, cores)) of_carriers.push_back(rank * cores / ranks);
      std::vector<int> all;
      for (int core = 0; core < cores; ++core) all.push_back(core);
      EXPECT_EQ(of_carriers, all) << ranks << " ranks on " << cores << " cores";
    }
}

// A small reduce_scatter: not one for each rank of the other node.
TEST(CollectiveMessages, TogetherAreOneForEachPairOfNodes) {
  for (const topology::Cluster& cluster :
       {topology::Cluster::uniform(2, 4), topology::Cluster::uniform(5, 8)}) {
    CollectiveParameters parameters;
    parameters.variant = Variant::together;
    const plan::Plan plan =
        build_collective_everywhere(cluster, {Collective::reduce_scatter, 256, 0, 4}, parameters);
    for (const plan::RankPlan& rank : plan.ranks) {
      const auto sends = std::ranges::count(rank.steps, plan::Kind::send, &plan::Step::kind);
      EXPECT_EQ(sends, cluster.local_of(rank.rank) == 0 ? cluster.nodes() - 1 : 0) << "rank " << rank.rank;
    }
  }
}

// Its nodes would send other messages than those that do fetch.
TEST(CollectiveMessages, AreNotTogetherWhereANodeMayFetch) {
  const topology::Cluster cluster = topology::Cluster::uniform(2, 4);
  const CollectiveSpec call{Collective::reduce_scatter, 256, 0, 4};
  CollectiveParameters parameters;
  parameters.variant = Variant::together;
  EXPECT_TRUE(is_together(cluster, call, parameters));
  CollectiveParameters fetching = parameters, with_room = parameters;
  fetching.fetch = with_room.room_to_fetch = true;
  EXPECT_FALSE(is_together(cluster, call, fetching));
  EXPECT_FALSE(is_together(cluster, call, with_room));
}

// The root's rail, whichever its rank is: a broadcast from each rank of a node uses all of the node's NICs.
TEST(CollectiveMessages, FromARootGoAlongItsRail) {
  const topology::Cluster cluster = topology::Cluster::uniform(3, 4);
  for (const Collective kind : {Collective::broadcast, Collective::scatter})
    for (const int root : {0, 2, 7}) {
      const CollectiveSpec call{kind, 256, root, 4};
      const plan::Plan built = build_collective_everywhere(cluster, call, {});
      for (const plan::RankPlan& rank : built.ranks) {
        const bool receives =
            std::ranges::find(rank.steps, plan::Kind::recv, &plan::Step::kind) != rank.steps.end();
        EXPECT_EQ(receives, !cluster.same_node(rank.rank, root) &&
                                cluster.local_of(rank.rank) == cluster.local_of(root))
            << to_string(kind) << " from " << root << ", rank " << rank.rank;
      }
    }
}

// A round has a quarter of its part of scratch for its sums, and room for a share of whole elements of each node beside that.
TEST(CollectiveMessages, OfASumInRoundsAreNotCutForWantOfAFewElements) {
  CollectiveParameters parameters;
  parameters.variant = Variant::split;
  parameters.direct = false;
  parameters.scratch_bytes = 1000;
  const CollectiveSpec call{Collective::allreduce, 1 << 20, 0, 4};
  for (const int nodes : {3, 5, 7})
    EXPECT_GT(chunk_of(topology::Cluster::uniform(nodes, 2), call, parameters), 100U) << nodes << " nodes";
}

// A chunk is of whole elements of each node's share, also where there are fewer.
TEST(CollectiveMessages, AreNoLongerThanWhatIsAddedUp) {
  const topology::Cluster cluster = topology::Cluster::uniform(3, 2);
  CollectiveParameters parameters;
  parameters.variant = Variant::split;
  for (const uint64_t bytes : {4, 8, 4096})
    EXPECT_LE(chunk_of(cluster, {Collective::allreduce, bytes, 0, 4}, parameters), bytes);
}

}  // namespace
}  // namespace epccl::algorithms
