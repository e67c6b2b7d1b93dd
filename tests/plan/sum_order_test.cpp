// In which order sums are added up: all ranks must get the same bits, so each byte of a result must be the same expression on all of
// them. Plans are run with the text of what is added up in place of numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "algorithms/collectives/collective.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

using plan::Kind;
using plan::Location;
using plan::Step;

/// Runs a plan step by step, each as soon as it can be run. Bytes are texts.
class Expressions {
 public:
  explicit Expressions(const plan::Plan& plan) {
    for (const plan::RankPlan& rank : plan.ranks) done_.emplace_back(rank.steps.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (const plan::RankPlan& rank : plan.ranks)
        for (uint32_t i = 0; i < rank.steps.size(); ++i) moved |= try_step(rank, i);
    }
  }

  bool all_done() const {
    return std::ranges::all_of(
        done_, [](const std::vector<bool>& rank) { return std::ranges::find(rank, false) == rank.end(); });
  }
  const std::string& output(int rank, uint64_t at) { return memory_[{rank, plan::Buffer::output, at}]; }

 private:
  using Place = std::tuple<int, plan::Buffer, uint64_t>;

  std::string& at(const Location& place, uint64_t byte) {
    std::string& text = memory_[{place.rank, place.buffer, place.offset + byte}];
    if (place.buffer == plan::Buffer::input && text.empty()) text = fmt::format("{}", place.rank);
    return text;
  }

  bool ready(const plan::RankPlan& rank, const Step& step) {
    for (const uint32_t dependency : rank.dependencies_of(step))
      if (!done_[static_cast<size_t>(rank.rank)][dependency]) return false;
    if (step.kind == Kind::wait) return posted_[{step.peer, step.slot}] >= step.value;
    return step.kind != Kind::recv || sent_.contains({step.peer, rank.rank, step.tag});
  }

  bool try_step(const plan::RankPlan& rank, uint32_t index) {
    const Step& step = rank.steps[index];
    auto done = done_[static_cast<size_t>(rank.rank)].begin() + index;
    if (*done || !ready(rank, step)) return false;
    *done = true;
    if (step.kind == Kind::post) posted_[{rank.rank, step.slot}] = step.value;
    if (step.kind == Kind::send)
      for (uint64_t byte = 0; byte < step.bytes; ++byte)
        sent_[{rank.rank, step.peer, step.tag}].push_back(at(step.source, byte));
    if (step.kind == Kind::recv)
      for (uint64_t byte = 0; byte < step.bytes; ++byte)
        at(step.destination, byte) = sent_[{step.peer, rank.rank, step.tag}][byte];
    for (uint64_t row = 0; step.kind == Kind::copy && row < step.rows; ++row)
      for (uint64_t byte = 0; byte < step.bytes; ++byte)
        at(step.destination, row * step.destination_stride + byte) =
            at(step.source, row * step.source_stride + byte);
    if (step.kind == Kind::reduce) reduce(rank, step);
    return true;
  }

  void reduce(const plan::RankPlan& rank, const Step& step) {
    for (uint64_t byte = 0; byte < step.bytes; ++byte) {
      std::string sum;
      for (uint32_t i = 0; i < step.source_count; ++i)
        sum += (i == 0 ? "(" : "+") + at(rank.row_sources[step.first_source + i].at, byte);
      at(step.destination, byte) = sum + ")";
    }
  }

  std::vector<std::vector<bool>> done_;
  std::map<Place, std::string> memory_;
  std::map<std::pair<int, int>, uint32_t> posted_;
  std::map<std::tuple<int, int, uint32_t>, std::vector<std::string>> sent_;
};

std::string text_of_sum(const topology::Cluster& cluster, const CollectiveParameters& parameters) {
  const CollectiveSpec call{Collective::allreduce, 1, 0, 1};
  const plan::Plan plan = build_collective_everywhere(cluster, call, parameters);
  return Expressions(plan).output(0, 0);
}

TEST(SumOrder, IsTheSameOnAllRanksInEveryForm) {
  for (const topology::Cluster& cluster : tests::small_shapes())
    for (const bool direct : {true, false})
      for (const auto& [form, variant] :
           {std::pair(Form::flat, Variant::plain), std::pair(Form::two_level, Variant::plain),
            std::pair(Form::two_level, Variant::split), std::pair(Form::two_level, Variant::tree)}) {
        CollectiveParameters parameters;
        parameters.direct = direct;
        if (direct) parameters.stage_bytes = 0;
        parameters.form = form;
        parameters.variant = variant;
        parameters.carriers = 0;
        parameters.chunk_bytes = 2;
        constexpr uint64_t bytes = 11;
        const plan::Plan plan =
            build_collective_everywhere(cluster, {Collective::allreduce, bytes, 0, 1}, parameters);
        Expressions ran(plan);
        const std::string way = fmt::format("{} {}", to_string(form), to_string(variant));
        ASSERT_TRUE(ran.all_done()) << way << " on " << tests::shape_text(cluster);
        ASSERT_NE(ran.output(0, 0), "");
        for (int rank = 1; rank < cluster.ranks(); ++rank)
          for (uint64_t byte = 0; byte < bytes; ++byte)
            ASSERT_EQ(ran.output(rank, byte), ran.output(0, byte))
                << way << " on " << tests::shape_text(cluster) << ", rank " << rank << ", byte " << byte;
      }
}

TEST(SumOrder, PutsNodesOfOneRankFirst) {
  EXPECT_EQ(text_of_sum(topology::Cluster::from_sizes({2, 1, 1}), {}), "(2+3+(0+1))");
}

// Who carries, and who finishes what, is not seen in a result: a GPU's plan has other carriers than cores have.
TEST(SumOrder, IsByRanksThenByNodesWhoeverCarries) {
  const topology::Cluster cluster = topology::Cluster::uniform(3, 2);
  for (const int carriers : {1, 2})
    for (const Variant variant : {Variant::plain, Variant::split}) {
      CollectiveParameters parameters;
      parameters.carriers = carriers;
      parameters.variant = variant;
      EXPECT_EQ(text_of_sum(cluster, parameters), "((0+1)+(2+3)+(4+5))");
    }
}

TEST(SumOrder, OfATreeIsByPairsOfNodes) {
  CollectiveParameters parameters;
  parameters.variant = Variant::tree;
  EXPECT_EQ(text_of_sum(topology::Cluster::uniform(4, 2), parameters), "(((0+1)+(2+3))+((4+5)+(6+7)))");
  EXPECT_EQ(text_of_sum(topology::Cluster::uniform(3, 2), parameters), "(((0+1)+(4+5))+(2+3))")
      << "the first two double, with what the third has";
  EXPECT_EQ(text_of_sum(topology::Cluster::uniform(7, 1), parameters), "(((0+4)+(1+5))+(3+(2+6)))")
      << "inputs come before sums";
}

}  // namespace
}  // namespace epccl::algorithms
