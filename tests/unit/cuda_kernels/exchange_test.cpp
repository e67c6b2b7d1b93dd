// All kernels of an expert-parallel exchange together: the ranks of one node dispatch into each other's memory and combine from there,
// with nothing from the host but the tables. What comes is what the oracle of the plans' tests says.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "../device/numbers.hpp"
#include "device/host/fp8.hpp"
#include "device/host/row_sum.hpp"
#include "launched.hpp"
#include "layout_problem.hpp"
#include "shapes.hpp"

namespace epccl::device::kernels::testing {
namespace {

using device::testing::Kind;
using ep::SlotLayout;
using tests::EpCase;
using tests::EpOracle;

using Bytes = std::vector<std::byte>;
constexpr std::byte untouched{0x5a};

struct Setting {
  SlotLayout layout;
  bool float8;
};

class Exchange {
 public:
  Exchange(EpCase given, bool float8, std::mt19937_64& random)
      : random_(random),
        what_(std::move(given)),
        experts_(tests::experts_of(what_)),
        oracle_(what_),
        float8_(float8),
        elements_(static_cast<uint32_t>(8 * (1 + random() % 60))) {
    for (int rank = 0; rank < ranks(); ++rank) add_rank(rank);
  }

  void dispatch() {
    for (int rank = 0; rank < ranks(); ++rank) {
      SpreadParameters parameters = to_all(of(rank));
      const Grid grid{1 + static_cast<uint32_t>(random_() % 3)};
      run(float8_ ? quantise_launch(RowType::bfloat16, parameters, grid) : spread_launch(parameters, grid),
          random_);
    }
    for (int rank = 0; rank < ranks() && by_expert(); ++rank) clear_padding(of(rank));
  }

  void expect_rows() {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Rank& to = of(rank);
      Bytes rows(to.rows.size(), by_expert() ? std::byte{} : untouched),
          scales(to.scales.size(), by_expert() ? std::byte{} : untouched);
      for_each_use([&](int source, uint32_t token, uint32_t, int owner, uint32_t slot) {
        if (owner != rank) return;
        const std::byte* from = of(source).tokens.data() + uint64_t{token} * elements_ * 2;
        if (float8_)
          quantise_e4m3(RowType::bfloat16, from, elements_, rows.data() + slot * row_bytes(),
                        scales.data() + slot * scale_bytes());
        else
          std::memcpy(rows.data() + slot * row_bytes(), from, row_bytes());
      });
      EXPECT_EQ(to.rows, rows) << "rows of rank " << rank;
      if (!float8_) continue;
      EXPECT_EQ(to.scales, scales) << "scales of rank " << rank;
    }
  }

  /// As a caller gets them.
  void expect_weights() {
    for (int rank = 0; rank < ranks(); ++rank) {
      Rank& to = of(rank);
      const size_t width = by_expert() ? 1 : what_.k;
      std::vector<float> weights(to.row_count() * width, -1), expected(weights.size(), 0);
      for_each_use([&](int source, uint32_t token, uint32_t position, int owner, uint32_t slot) {
        if (owner == rank)
          expected[slot * width + (by_expert() ? 0 : position)] =
              of(source).weights[token * what_.k + position];
      });
      WeightsParameters parameters;
      parameters.brought = to.brought.data();
      parameters.rows.most = static_cast<uint32_t>(to.row_count());
      parameters.k = what_.k;
      if (by_expert())
        parameters.row_entries = to.layout.row_entries.data();
      else
        parameters.row_topk = to.layout.row_topk.data();
      parameters.weights = weights.data();
      run(weights_launch(parameters, {1}), random_);
      EXPECT_EQ(weights, expected) << "weights of rank " << rank;
    }
  }

  /// Experts make something of the rows; the sums of that come back.
  void combine_and_compare() {
    for (Rank& rank : ranks_) {
      rank.results.resize(rank.row_count() * elements_ * 2);
      fill(rank.results);
    }
    const auto sums = oracle_.combine();
    for (int rank = 0; rank < ranks(); ++rank) {
      Rank& to = of(rank);
      run(sum_launch(RowType::bfloat16, Operands::plain, from_all(to),
                     uint64_t{what_.rules.max_tokens} * what_.k, {2}),
          random_);
      Bytes expected(to.combined.size(), untouched);
      for (const plan::RowSum& sum : sums)
        if (sum.destination_rank == rank)
          sum_row(RowType::bfloat16, expected.data() + sum.destination_offset / tests::ep_row * elements_ * 2,
                  terms_of(sum), elements_);
      EXPECT_EQ(to.combined, expected) << "what comes back to rank " << rank;
    }
  }

 private:
  struct Rank {
    Rank(const EpCase& what, const ep::ExpertMap& experts, int rank, bool wide)
        : layout(what, experts, rank, wide) {}
    size_t row_count() const { return layout.rows[layout.parameters.rank]; }
    RowCount tokens_there() const { return {layout.own_tokens(), layout.shape().max_tokens}; }

    DeviceLayout layout;
    Bytes tokens, rows, scales, results, combined;
    std::vector<float> weights, brought;
  };

  int ranks() const { return what_.cluster.ranks(); }
  Rank& of(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  bool by_expert() const { return what_.rules.layout == SlotLayout::expert_major; }
  uint64_t row_bytes() const { return elements_ * (float8_ ? 1 : 2); }
  uint64_t scale_bytes() const { return e4m3_scales(elements_) * sizeof(float); }
  uint64_t weight_bytes() const { return what_.k * sizeof(float); }

  /// With bfloat16.
  void fill(Bytes& bytes) {
    for (size_t at = 0; at < bytes.size(); at += 2) {
      const auto bits =
          static_cast<uint16_t>(random_element(device::testing::bfloat16_format, Kind::ordinary, random_));
      std::memcpy(bytes.data() + at, &bits, 2);
    }
  }

  void add_rank(int number) {
    Rank& rank = ranks_.emplace_back(what_, experts_, number, random_() % 2 == 0);
    rank.layout.make(random_);
    rank.tokens.resize(uint64_t{what_.tokens(number)} * elements_ * 2);
    fill(rank.tokens);
    for (uint32_t i = 0; i < what_.tokens(number) * what_.k; ++i)
      rank.weights.push_back(static_cast<float>(random_() % 1000) / 1000);
    rank.rows.assign(rank.row_count() * row_bytes(), untouched);
    rank.scales.assign(rank.row_count() * scale_bytes(), untouched);
    rank.brought.assign(rank.row_count() * what_.k, -7);
    rank.combined.assign(uint64_t{what_.rules.max_tokens} * elements_ * 2, untouched);
  }

  /// use(source, token, position, owner, slot) of every entry that has a row.
  template <class Use>
  void for_each_use(Use use) {
    for (int source = 0; source < ranks(); ++source)
      for (uint32_t token = 0; token < what_.tokens(source); ++token)
        for (uint32_t position = 0; position < what_.k; ++position)
          if (const uint32_t slot = oracle_.slot(source, token, position); slot != EpOracle::dropped)
            use(source, token, position,
                oracle_.owner(what_.topk[static_cast<size_t>(source)][token * what_.k + position]), slot);
  }

  SpreadParameters to_all(Rank& from) {
    SpreadParameters parameters;
    const auto add = [&](const void* source, uint64_t bytes, uint64_t stride, auto array_of) {
      SpreadParameters::Part& part = parameters.parts[parameters.part_count++];
      part.source = {static_cast<std::byte*>(const_cast<void*>(source)), bytes};
      part.bytes = bytes;
      part.destination_stride = stride;
      for (int peer = 0; peer < ranks(); ++peer)
        part.destinations[peer] = reinterpret_cast<std::byte*>(array_of(of(peer)).data());
    };
    add(from.tokens.data(), uint64_t{elements_} * 2, row_bytes(),
        [](Rank& peer) -> Bytes& { return peer.rows; });
    if (float8_) add(nullptr, scale_bytes(), scale_bytes(), [](Rank& peer) -> Bytes& { return peer.scales; });
    add(from.weights.data(), weight_bytes(), weight_bytes(),
        [](Rank& peer) -> std::vector<float>& { return peer.brought; });
    parameters.targets = from.layout.targets.data();
    parameters.rows = from.tokens_there();
    parameters.width = what_.k;
    parameters.elements = elements_;
    return parameters;
  }

  void clear_padding(Rank& rank) {
    MoveParameters parameters;
    parameters.sources.list = rank.layout.row_entries.data();
    parameters.parts[0].destination = {rank.rows.data(), row_bytes()};
    parameters.parts[0].bytes = row_bytes();
    parameters.parts[1].destination = {rank.scales.data(), scale_bytes()};
    parameters.parts[1].bytes = scale_bytes();
    parameters.part_count = 2;
    parameters.rows.most = static_cast<uint32_t>(rank.row_count());
    run(clear_launch(parameters, {2}), random_);
  }

  SumParameters from_all(Rank& to) {
    SumParameters parameters;
    for (int peer = 0; peer < ranks(); ++peer)
      parameters.sources[peer] = {of(peer).results.data(), uint64_t{elements_} * 2, of(peer).brought.data(),
                                  nullptr, 0};
    parameters.destination = {to.combined.data(), uint64_t{elements_} * 2};
    parameters.terms = to.layout.terms.data();
    parameters.counts = to.layout.term_counts.data();
    parameters.width = what_.k;
    parameters.weights_per_row = what_.k;
    parameters.elements = elements_;
    parameters.rows = to.tokens_there();
    return parameters;
  }
  std::vector<SumTerm> terms_of(const plan::RowSum& sum) {
    std::vector<SumTerm> terms;
    for (const plan::RowSum::Term& term : sum.terms) {
      const Rank& from = of(term.rank);
      const uint64_t row = term.offset / tests::ep_row;
      const bool weighted = term.weight != plan::RowTerm::unweighted;
      terms.push_back({from.results.data() + row * elements_ * 2,
                       weighted ? from.brought[row * what_.k + term.weight] : 1, weighted,
                       (term.ends & plan::RowTerm::rank_sum) != 0,
                       (term.ends & plan::RowTerm::node_sum) != 0});
    }
    return terms;
  }

  std::mt19937_64& random_;
  const EpCase what_;
  const ep::ExpertMap experts_;
  const EpOracle oracle_;
  const bool float8_;
  const uint32_t elements_;
  std::deque<Rank> ranks_;
};

class ExchangeKernels : public ::testing::TestWithParam<Setting> {};

TEST_P(ExchangeKernels, BringTokensToExpertsAndSumsBack) {
  std::mt19937_64 random = tests::seeded_generator("exchange kernels");
  for (const int ranks : {1, 2, 3, 8})
    for (int repetition = 0; repetition < 4; ++repetition) {
      EpCase what = tests::random_case(topology::Cluster::uniform(1, ranks), GetParam().layout, random);
      what.rules.max_tokens += static_cast<uint32_t>(random() % 80);
      what = tests::other_routing(what, random);
      SCOPED_TRACE(what.text());
      Exchange exchange(what, GetParam().float8, random);
      exchange.dispatch();
      exchange.expect_rows();
      exchange.expect_weights();
      exchange.combine_and_compare();
      ASSERT_FALSE(HasFailure());
    }
}

INSTANTIATE_TEST_SUITE_P(
    CudaKernels, ExchangeKernels,
    ::testing::Values(Setting{SlotLayout::flat, false}, Setting{SlotLayout::rank_major, false},
                      Setting{SlotLayout::expert_major, false}, Setting{SlotLayout::expert_major, true},
                      Setting{SlotLayout::flat, true}),
    [](const auto& param_info) {
      return std::string(to_string(param_info.param.layout)) + (param_info.param.float8 ? "_float8" : "");
    });

}  // namespace
}  // namespace epccl::device::kernels::testing
