// The verifier against the truth, for rows that are sums: random reductions over nodes are damaged, and those
// accepted are run with real numbers in random orders. Every order must give the bits that the expected sums
// have.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/printer.hpp"
#include "random_run.hpp"
#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

constexpr int nodes = 3, locals = 2, ranks = nodes * locals;
constexpr uint64_t row = 4;
constexpr uint32_t rows = 5;     // of every input
constexpr uint32_t results = 3;  // rows of every output

using Terms = std::vector<RowSum::Term>;

bool chance(std::mt19937& random, unsigned of) {
  return random() % of == 0;
}

/// Rows of inputs, by node and rank; not every rank has one.
Terms random_terms(std::mt19937& random) {
  Terms terms;
  for (int node = 0; node < nodes; ++node) {
    const size_t before = terms.size();
    for (int rank = node * locals; rank < (node + 1) * locals; ++rank) {
      const auto count = random() % 3;
      for (unsigned i = 0; i < count; ++i) {
        const auto weight = static_cast<uint8_t>(chance(random, 4) ? plain : random() % 4);
        terms.push_back({rank, row * (random() % rows), weight, i + 1 == count ? ends_rank : goes_on});
      }
    }
    if (terms.size() > before) terms.back().ends = ends_node;
  }
  return terms;
}

/// Every destination's sums: those of its own node from the inputs, those of another node by the rank there
/// that has the destination's place, sent, and added up.
class Reduction {
 public:
  explicit Reduction(std::mt19937& random) : plan_(std::vector<int>(nodes, locals)), tables_(ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      for (uint32_t i = 0; i < results; ++i)
        expected.push_back({rank, row * i, row, chance(random, 8) ? Terms() : random_terms(random)});
    // Gives every input its size.
    for (int rank = 0; rank < ranks; ++rank) sized.push_back({rank, 0, rank, row * results, row * rows});
  }

  Plan make() {
    for (int rank = 0; rank < ranks; ++rank) plan_tables(rank);
    for (int rank = 0; rank < ranks; ++rank)
      plan_[rank].use_tables(tables_[static_cast<size_t>(rank)].share());
    for (int rank = 0; rank < ranks; ++rank) send_parts(rank);
    for (int rank = 0; rank < ranks; ++rank) add_up(rank);
    return plan_.take();
  }

  std::vector<RowSum> expected;
  std::vector<Transfer> sized;

 private:
  static int node_of(int rank) { return rank / locals; }
  /// The relay of a destination at the k-th of the other nodes.
  static int relay(int rank, int k) { return (node_of(rank) + k) % nodes * locals + rank % locals; }
  static Location scratch_of(int rank, int k) {
    return {rank, Buffer::scratch, row * results * static_cast<uint64_t>(k)};
  }

  Terms part(const RowSum& sum, int node) const {
    Terms terms;
    std::ranges::copy_if(sum.terms, std::back_inserter(terms),
                         [&](const RowSum::Term& it) { return node_of(it.rank) == node; });
    return terms;
  }
  static void append(std::vector<RowTerm>& to, const Terms& terms) {
    for (const RowSum::Term& it : terms)
      to.push_back({static_cast<uint32_t>(it.offset / row), static_cast<uint16_t>(it.rank % locals),
                    it.weight, it.ends});
  }

  /// Tables of a rank: first the parts it makes for the ranks with its place on other nodes, then its own
  /// sums.
  void plan_tables(int rank) {
    SmallTables& tables = tables_[static_cast<size_t>(rank)];
    for (int k = 1; k < nodes; ++k)
      for (uint32_t i = 0; i < results; ++i) {
        std::vector<RowTerm> terms;
        append(terms, part(result(relay(rank, k), i), node_of(rank)));
        tables.sum(terms);
      }
    for (uint32_t i = 0; i < results; ++i) {
      std::vector<RowTerm> terms;
      for (int node = 0; node < nodes; ++node) {
        const Terms of_node = part(result(rank, i), node);
        const auto k = static_cast<uint16_t>((node - node_of(rank) + nodes) % nodes);
        if (k == 0)
          append(terms, of_node);
        else if (!of_node.empty())
          terms.push_back({i, static_cast<uint16_t>(locals + k - 1), plain, ends_node});
      }
      tables.sum(terms);
    }
  }

  std::vector<RowSource> inputs(int rank) const {
    std::vector<RowSource> sources;
    for (int local = 0; local < locals; ++local)
      sources.push_back({{node_of(rank) * locals + local, Buffer::input, 0}});
    return sources;
  }

  void send_parts(int rank) {
    uint32_t last = Builder::none;
    // All parts through one place in scratch, so that a part must wait for the one before.
    for (int k = 1; k < nodes; ++k) {
      const uint32_t made = plan_[rank].reduce_rows(0, static_cast<uint32_t>(k - 1) * results, inputs(rank),
                                                    {scratch_of(rank, 0)}, results, row, After{last});
      last = plan_[rank].send(relay(rank, k), 0, scratch_of(rank, 0), row * results, After{made});
    }
  }

  void add_up(int rank) {
    std::vector<RowSource> sources = inputs(rank);
    After recvs;
    for (int k = 1; k < nodes; ++k) {
      sources.push_back({scratch_of(rank, k)});
      recvs.push_back(plan_[rank].recv(relay(rank, k), 0, scratch_of(rank, k), row * results));
    }
    plan_[rank].reduce_rows(2, (nodes - 1) * results, sources, {plan_[rank].output(0)}, results, row, recvs);
    plan_[rank].copy(2, plan_[rank].input(0), plan_[rank].output(row * results), row * rows);
  }

  const RowSum& result(int rank, uint32_t i) const {
    return expected[static_cast<size_t>(rank) * results + i];
  }

  SmallPlan plan_;
  std::vector<SmallTables> tables_;
};

/// Changes one term of one rank.
std::string damage_term(RankPlan& rank, std::mt19937& random) {
  RowTables tables = *rank.tables;
  if (tables.terms.empty()) return "nothing";
  const size_t index = random() % tables.terms.size();
  RowTerm& term = tables.terms[index];
  const RowTerm before = term;
  switch (random() % 5) {
    case 0:
      term.row = static_cast<uint32_t>(random() % rows);
      break;
    case 1:
      term.source = static_cast<uint16_t>(random() % (locals + nodes - 1));
      break;
    case 2:
      term.weight = static_cast<uint8_t>(random() % 4);
      break;
    case 3:
      term.ends = static_cast<uint8_t>(random() % 4);
      break;
    default:
      std::swap(term, tables.terms[(index + 1) % tables.terms.size()]);
  }
  rank.tables = std::make_shared<const RowTables>(std::move(tables));
  return fmt::format("term {} of rank {}, row {} of source {} weight {} ends {}", index, rank.rank,
                     before.row, before.source, before.weight, before.ends);
}

/// Changes one thing of one rank.
std::string damage(Plan& plan, std::mt19937& random) {
  RankPlan& rank = plan.ranks[random() % plan.ranks.size()];
  if (!chance(random, 3)) return damage_term(rank, random);
  const auto index = static_cast<uint32_t>(random() % rank.steps.size());
  Step& step = rank.steps[index];
  const std::string before = to_text(rank, index);
  if (chance(random, 4)) {
    step.destination.offset += 2 * (random() % 3);
  } else if (chance(random, 3)) {
    step.first_sum = static_cast<uint32_t>(random() % (nodes * results - step.rows + 1));
  } else if (step.dependency_count > 0) {
    ++step.first_dependency;
    --step.dependency_count;
  }
  return before + "\n  became " + to_text(rank, index);
}

void expect_sums_in_any_order(const Plan& plan, const std::vector<RowSum>& expected, std::mt19937& random) {
  for (int run = 0; run < 8; ++run) {
    RandomRun random_run(plan, 64, random);
    ASSERT_TRUE(random_run.run()) << "accepted, but stops";
    for (const RowSum& sum : expected)
      for (uint64_t at = 0; at < sum.bytes; ++at)
        ASSERT_EQ(random_run.output(sum.destination_rank, sum.destination_offset + at),
                  RandomRun::sum(sum.terms, at))
            << "accepted, but wrong at " << sum.destination_offset + at << " of the output of rank "
            << sum.destination_rank;
  }
}

TEST(RowsSchedules, AcceptedSumsHaveTheBitsInEveryOrder) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "EPCCL_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  int refusals = 0;
  constexpr int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    Reduction reduction(random);
    Plan plan = reduction.make();
    ASSERT_TRUE(accepted(plan, reduction.sized, reduction.expected));
    if (round % 10 == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_sums_in_any_order(plan, reduction.expected, random));
    }
    SCOPED_TRACE("damage: " + damage(plan, random));
    if (!verify(with_ends(plan), reduction.sized, reduction.expected, {}).ok()) {
      ++refusals;
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(expect_sums_in_any_order(plan, reduction.expected, random));
  }
  EXPECT_GT(refusals, rounds / 4);
}

}  // namespace
}  // namespace epccl::plan::testing
