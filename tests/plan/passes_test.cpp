// What a graph holds of a call, run several times in a row: each rank's program fills its input between two passes and reads its
// output after each. Proved as one plan, in which input and output are memory that is used again:
//
//   program   fills input, spoils output
//   meeting   tells all that this pass begins here, waits until it has begun everywhere
//   call      in the order of its queues, posts and waits in one chain
//   program   reads output
#include <gtest/gtest.h>

#include "algorithms/alltoall/alltoall.hpp"
#include "algorithms/collectives/collective.hpp"
#include "plan/common_order.hpp"
#include "plan/copy_lists.hpp"
#include "plan/fewer_kernels.hpp"
#include "plan/queues.hpp"
#include "plan/verifier.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

using plan::Buffer;
using plan::Kind;
using plan::Location;

constexpr int passes = 3;
constexpr uint16_t meeting_slot = plan::max_slots - 1;
constexpr uint32_t values_of_a_pass = 1 << 20;

/// What can be left out, to see that it is needed.
struct Protocol {
  bool meeting = true;  // nothing of a call runs before
  bool common_order = true;
  plan::Makers makers = plan::Makers::engines;
};

struct Sizes {
  uint64_t input = 0, output = 0, scratch = 0;  // of any rank, at most
};

struct Result {
  std::vector<plan::Transfer> transfers;
  std::vector<plan::RowSum> sums;
};

/// All passes of one rank.
class Passes {
 public:
  Passes(const plan::RankPlan& call, int ranks, const Sizes& sizes, const Result& result,
         const Protocol& protocol)
      : call_(call), ranks_(ranks), sizes_(sizes), result_(result), protocol_(protocol) {
    made_.rank = call.rank;
    made_.row_sources = call.row_sources;
    for (plan::RowSource& source : made_.row_sources) source.at = moved(source.at);
    made_.scratch_bytes = sizes.input + sizes.output + sizes.scratch;
  }

  plan::RankPlan make() && {
    for (uint32_t pass = 0; pass < passes; ++pass) add_pass(pass);
    return std::move(made_);
  }

 private:
  Location moved(const Location& at) const {
    const uint64_t first = at.buffer == Buffer::input    ? 0
                           : at.buffer == Buffer::output ? sizes_.input
                                                         : sizes_.input + sizes_.output;
    return {at.rank, Buffer::scratch, first + at.offset};
  }

  uint32_t add(plan::Step step, const std::vector<uint32_t>& after) {
    step.first_dependency = static_cast<uint32_t>(made_.dependencies.size());
    step.dependency_count = static_cast<uint32_t>(after.size());
    made_.dependencies.insert(made_.dependencies.end(), after.begin(), after.end());
    made_.steps.push_back(step);
    return static_cast<uint32_t>(made_.steps.size() - 1);
  }

  uint32_t copy(Location from, Location to, uint64_t bytes, const std::vector<uint32_t>& after) {
    plan::Step step;
    step.source = from;
    step.destination = to;
    step.bytes = bytes;
    return add(step, after);
  }

  void add_pass(uint32_t pass) {
    const int rank = call_.rank;
    std::vector<uint32_t> ready = last_;
    if (sizes_.input > 0)
      ready.push_back(
          copy({rank, Buffer::input, pass * sizes_.input}, {rank, Buffer::scratch, 0}, sizes_.input, last_));
    if (sizes_.output > 0)
      ready.push_back(copy({rank, Buffer::input, passes * sizes_.input},
                           {rank, Buffer::scratch, sizes_.input}, sizes_.output, last_));
    const std::vector<uint32_t> met = meet(pass, ready);
    const std::vector<uint32_t> over = add_call(pass, protocol_.meeting ? met : ready, met);
    last_ = over;
    const auto read = [&](uint64_t offset, uint64_t bytes) {
      if (bytes > 0)
        last_.push_back(copy({rank, Buffer::scratch, sizes_.input + offset},
                             {rank, Buffer::output, pass * sizes_.output + offset}, bytes, over));
    };
    for (const plan::Transfer& it : result_.transfers)
      if (it.destination_rank == rank) read(it.destination_offset, it.bytes);
    for (const plan::RowSum& it : result_.sums)
      if (it.destination_rank == rank) read(it.destination_offset, it.bytes);
  }

  std::vector<uint32_t> meet(uint32_t pass, const std::vector<uint32_t>& ready) {
    plan::Step post;
    post.kind = Kind::post;
    post.slot = meeting_slot;
    post.value = pass + 1;
    std::vector<uint32_t> met{add(post, ready)};
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == call_.rank) continue;
      plan::Step wait;
      wait.kind = Kind::wait;
      wait.slot = meeting_slot;
      wait.peer = peer;
      wait.value = pass + 1;
      met.push_back(add(wait, ready));
    }
    return met;
  }

  /// Returns what has to be over at its end.
  std::vector<uint32_t> add_call(uint32_t pass, const std::vector<uint32_t>& begin,
                                 const std::vector<uint32_t>& met) {
    const auto first = static_cast<uint32_t>(made_.steps.size());
    std::vector<uint32_t> over = met;
    for (plan::Step step : call_.steps) {
      std::vector<uint32_t> after = begin;
      for (const uint32_t dependency : call_.dependencies_of(step)) after.push_back(first + dependency);
      if (step.kind == Kind::copy) step.source = moved(step.source);
      if (step.kind == Kind::copy || step.kind == Kind::reduce) step.destination = moved(step.destination);
      if (step.kind == Kind::post || step.kind == Kind::wait) step.value += pass * values_of_a_pass;
      over.push_back(add(step, after));
    }
    return over;
  }

  const plan::RankPlan& call_;
  const int ranks_;
  const Sizes& sizes_;
  const Result& result_;
  const Protocol protocol_;
  plan::RankPlan made_;
  std::vector<uint32_t> last_;  // of the pass before
};

Result of_all_passes(const Result& one, const Sizes& sizes) {
  Result all;
  for (uint64_t pass = 0; pass < passes; ++pass) {
    for (plan::Transfer it : one.transfers) {
      it.source_offset += pass * sizes.input;
      it.destination_offset += pass * sizes.output;
      all.transfers.push_back(it);
    }
    for (plan::RowSum it : one.sums) {
      it.destination_offset += pass * sizes.output;
      for (auto& term : it.terms) term.offset += pass * sizes.input;
      all.sums.push_back(it);
    }
  }
  return all;
}

using Order = plan::RankPlan (*)(const plan::RankPlan&, const plan::Queues&);

Status verify_passes_in(Order order, const plan::Plan& call, const Result& one, int width,
                        const Protocol& protocol) {
  Sizes sizes;
  for (const plan::RankPlan& rank : call.ranks) {
    sizes.input = std::max(sizes.input, rank.input_bytes);
    sizes.output = std::max(sizes.output, rank.output_bytes);
    sizes.scratch = std::max(sizes.scratch, rank.scratch_bytes);
  }
  for (const plan::Transfer& it : one.transfers) {
    sizes.input = std::max(sizes.input, it.source_offset + it.bytes);
    sizes.output = std::max(sizes.output, it.destination_offset + it.bytes);
  }
  for (const plan::RowSum& it : one.sums) {
    sizes.output = std::max(sizes.output, it.destination_offset + it.bytes);
    for (const auto& term : it.terms) sizes.input = std::max(sizes.input, term.offset + it.bytes);
  }
  plan::Plan all{call.cluster, call.algorithm + ", several passes", {}};
  for (const plan::RankPlan& rank : call.ranks) {
    plan::RankPlan common = rank;
    if (protocol.common_order) {
      EPCCL_ASSIGN(common, plan::in_common_order(call, rank.rank));
    }
    EPCCL_ASSIGN(const plan::QueuedPlan made,
                 plan::queued_plan(common, call.cluster, width, plan::Signals::chained, protocol.makers));
    const plan::RankPlan ordered = order(made.plan, made.queues);
    all.ranks.push_back(Passes(ordered, call.cluster.ranks(), sizes, one, protocol).make());
  }
  const Result expected = of_all_passes(one, sizes);
  const std::vector<uint64_t> inputs(call.ranks.size(), passes * sizes.input + sizes.output);
  return plan::verify(all, expected.transfers, expected.sums, inputs);
}

/// That no queue waits for ever, and what is read and written where copies of a list have no order.
Status verify_passes(const plan::Plan& call, const Result& one, int width, const Protocol& protocol = {}) {
  EPCCL_TRY(verify_passes_in(plan::in_queue_order, call, one, width, protocol));
  return verify_passes_in(plan::in_list_order, call, one, width, protocol);
}

CollectiveParameters parameters_of(const CollectiveSpec& call, int ranks, bool direct, bool tiny) {
  CollectiveParameters parameters;
  parameters.direct = direct;
  parameters.stage_bytes = 0;
  parameters.fetch = true;
  parameters.carriers = 0;
  if (tiny) {
    parameters.chunk_bytes = 5;
    parameters.scratch_bytes = 2 * call.unit * (3 * static_cast<uint64_t>(ranks) + 2);
  }
  return parameters;
}

class CapturedCollective : public testing::TestWithParam<Collective> {};

TEST_P(CapturedCollective, IsRightPassAfterPass) {
  for (const int ranks : {1, 2, 3, 5})
    for (const uint64_t elements : {1, 7, 30})
      for (const bool direct : {true, false})
        for (const bool tiny : {true, false})
          for (const int width : {1, 3}) {
            const topology::Cluster cluster = topology::Cluster::uniform(1, ranks);
            const CollectiveSpec call{GetParam(), 4 * elements, ranks / 2, 4};
            const CollectiveParameters parameters = parameters_of(call, ranks, direct, tiny);
            SCOPED_TRACE(fmt::format("{} ranks, {} elements, direct {}, tiny {}, width {}", ranks, elements,
                                     direct, tiny, width));
            const CollectiveResult expected = expected_result(cluster, call);
            const Status status = verify_passes(build_collective_everywhere(cluster, call, parameters),
                                                {expected.transfers, expected.sums}, width);
            ASSERT_TRUE(status.ok()) << status.message();
          }
}

// Where ranks share a GPU.
TEST_P(CapturedCollective, IsRightWhereSumsReadAndWritePeersMemory) {
  for (const int ranks : {1, 2, 3, 5})
    for (const bool direct : {true, false})
      for (const bool tiny : {true, false}) {
        const topology::Cluster cluster = topology::Cluster::uniform(1, ranks);
        const CollectiveSpec call{GetParam(), 4 * 30, ranks / 2, 4};
        CollectiveParameters parameters = parameters_of(call, ranks, direct, tiny);
        parameters.fetch = false;
        SCOPED_TRACE(fmt::format("{} ranks, direct {}, tiny {}", ranks, direct, tiny));
        const CollectiveResult expected = expected_result(cluster, call);
        const Status status =
            verify_passes(build_collective_everywhere(cluster, call, parameters),
                          {expected.transfers, expected.sums}, 3, {.makers = plan::Makers::engines_and_sums});
        ASSERT_TRUE(status.ok()) << status.message();
      }
}

INSTANTIATE_TEST_SUITE_P(All, CapturedCollective,
                         testing::Values(Collective::allgather, Collective::reduce_scatter,
                                         Collective::allreduce, Collective::broadcast, Collective::reduce,
                                         Collective::gather, Collective::scatter),
                         [](const auto& it) { return to_string(it.param); });

plan::Plan flat_alltoall(int ranks, bool direct) {
  Parameters parameters;
  parameters.direct = direct;
  parameters.eager_limit = 0;
  return build_alltoall_everywhere(Algorithm::flat, topology::Cluster::uniform(1, ranks),
                                   Exchange::uniform(ranks, 200'000), parameters);
}

TEST(CapturedAlltoall, IsRightPassAfterPass) {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const bool direct : {true, false})
      for (const int width : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} ranks, direct {}, width {}", ranks, direct, width));
        const Status status = verify_passes(flat_alltoall(ranks, direct),
                                            {Exchange::uniform(ranks, 200'000).transfers(), {}}, width);
        ASSERT_TRUE(status.ok()) << status.message();
      }
}

TEST(CapturedAlltoall, NeedsAllRanksToHaveBegun) {
  const Status status = verify_passes(flat_alltoall(2, false),
                                      {Exchange::uniform(2, 200'000).transfers(), {}}, 1, {.meeting = false});
  EXPECT_NE(status.message().find("race"), std::string::npos) << status.message();
}

TEST(CapturedAlltoall, NeedsAnOrderThatRanksShare) {
  const Status status = verify_passes(
      flat_alltoall(2, false), {Exchange::uniform(2, 200'000).transfers(), {}}, 1, {.common_order = false});
  EXPECT_NE(status.message().find("deadlock"), std::string::npos) << status.message();
}

// What kernels of a dispatch and combine do with each other's rows in a pass: each rank writes into the others' outputs, or reads their
// inputs; then it tells all, and waits for all.
enum class Rows { pushed, pulled };

plan::Plan moved_rows(int ranks, Rows rows, bool second_meeting) {
  constexpr uint64_t bytes = 16;
  plan::Plan made{topology::Cluster::uniform(1, ranks), "rows", {}};
  for (int rank = 0; rank < ranks; ++rank) {
    plan::RankPlan plan;
    plan.rank = rank;
    plan.input_bytes = plan.output_bytes = bytes * static_cast<uint64_t>(ranks);
    for (int peer = 0; peer < ranks; ++peer) {
      const int from = rows == Rows::pushed ? rank : peer, to = rows == Rows::pushed ? peer : rank;
      plan::Step copy;
      copy.source = {from, Buffer::input, bytes * static_cast<uint64_t>(to)};
      copy.destination = {to, Buffer::output, bytes * static_cast<uint64_t>(from)};
      copy.bytes = bytes;
      plan.dependencies.push_back(static_cast<uint32_t>(plan.steps.size()));
      plan.steps.push_back(copy);
    }
    plan::Step through;
    through.kind = Kind::post;
    through.slot = 1;
    through.value = 1;
    through.dependency_count = static_cast<uint32_t>(plan.dependencies.size());
    plan.steps.push_back(through);
    for (int peer = 0; second_meeting && peer < ranks; ++peer) {
      if (peer == rank) continue;
      plan::Step wait;
      wait.kind = Kind::wait;
      wait.slot = 1;
      wait.value = 1;
      wait.peer = peer;
      plan.steps.push_back(wait);
    }
    made.ranks.push_back(std::move(plan));
  }
  return made;
}

Status verify_rows(int ranks, Rows rows, const Protocol& protocol, bool second_meeting) {
  return verify_passes(moved_rows(ranks, rows, second_meeting),
                       {Exchange::uniform(ranks, 16).transfers(), {}}, 1, protocol);
}

TEST(CapturedRows, AreRightPassAfterPass) {
  for (const int ranks : {1, 2, 3, 5})
    for (const Rows rows : {Rows::pushed, Rows::pulled}) {
      const Status status = verify_rows(ranks, rows, {}, true);
      ASSERT_TRUE(status.ok()) << ranks << " ranks: " << status.message();
    }
}

TEST(CapturedRows, NeedBothMeetings) {
  for (const Rows rows : {Rows::pushed, Rows::pulled}) {
    EXPECT_NE(verify_rows(2, rows, {.meeting = false}, true).message().find("race"), std::string::npos);
    EXPECT_NE(verify_rows(2, rows, {}, false).message().find("race"), std::string::npos);
  }
}

}  // namespace
}  // namespace epccl::algorithms
