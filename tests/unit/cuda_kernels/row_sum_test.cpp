// Kernels that add rows, run on the host, give the bits of the host's sums.
#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "device/host/fp8.hpp"
#include "device/host/row_sum.hpp"
#include "launched.hpp"
#include "plan/plan.hpp"
#include "row_problem.hpp"

namespace epccl::device::kernels::testing {
namespace {

using device::testing::Kind;

static_assert(sizeof(Term) == sizeof(plan::RowTerm) && offsetof(Term, row) == offsetof(plan::RowTerm, row) &&
              offsetof(Term, source) == offsetof(plan::RowTerm, source) &&
              offsetof(Term, weight) == offsetof(plan::RowTerm, weight) &&
              offsetof(Term, ends) == offsetof(plan::RowTerm, ends) &&
              Term::unweighted == plan::RowTerm::unweighted &&
              int{Term::rank_sum} == int{plan::RowTerm::rank_sum} &&
              int{Term::node_sum} == int{plan::RowTerm::node_sum});

class Problem {
 public:
  explicit Problem(std::mt19937_64& random, Operands operands)
      : Problem(random, operands, random_type(random), random_elements(random)) {}
  Problem(std::mt19937_64& random, Operands operands, RowType type, uint32_t elements)
      : random_(random),
        operands_(operands),
        type_(type),
        elements_(elements),
        aligned_(random() % 2 == 0),
        sums_(below(10)),
        weights_per_row_(1 + below(8)),
        destination_(sums_ + below(3), elements_ * element_bytes(type_), aligned_ && below(3) != 0, random) {
    for (uint32_t source = 0; source < 1 + below(6); ++source) add_source();
    destination_first_ = below(50);
    list_ = random_list(sums_, destination_.rows(), destination_first_, random_);
    make_terms();
  }

  void run_and_compare() {
    SumParameters parameters;
    fill(parameters);
    expect();
    const auto launch = sum_launch(type_, operands_, parameters, terms_.size(), random_grid(random_));
    run(launch, random_);
    ASSERT_TRUE(destination_.as_expected()) << elements_ << " elements of type " << static_cast<int>(type_)
                                            << ", aligned " << launch.parameters.aligned;
  }

 private:
  static constexpr uint32_t rows_of_source = 5;
  struct Source {
    Rows rows;
    Rows scales;
    std::vector<float> weights;  // maybe none
  };

  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  bool plain() const { return operands_ == Operands::plain; }

  void add_source() {
    const uint64_t bytes = plain() ? elements_ * element_bytes(type_) : elements_;
    Source& source =
        sources_.emplace_back(Rows(rows_of_source, bytes, aligned_, random_),
                              Rows(rows_of_source, 4 * e4m3_scales(elements_), below(2) == 0, random_));
    const Kind kind = std::array{Kind::ordinary, Kind::ordinary, Kind::wide, Kind::any_bits}[below(4)];
    if (plain()) source.rows.fill(type_, kind, random_);
    source.scales.fill(RowType::float32, kind, random_);
    if (below(3) == 0) return;
    source.weights.resize(rows_of_source * weights_per_row_);
    for (float& weight : source.weights) weight = 2 * static_cast<float>(random_()) * 0x1p-64F - 1;
  }

  /// Mostly as in real sums, where the last term ends all.
  void make_terms() {
    // More than a warp looks up at once, now and then.
    const uint32_t longest = 1 + below(below(16) == 0 ? 80 : 12);
    fixed_width_ = below(2) == 0 ? longest : 0;
    for (uint32_t sum = 0; sum < sums_; ++sum) {
      begin_.push_back(static_cast<uint32_t>(terms_.size()));
      const uint32_t count = below(longest + 1);
      counts_.push_back(count);
      for (uint32_t t = 0; t < count; ++t) {
        Term term{below(rows_of_source),
                  static_cast<uint16_t>(below(static_cast<uint32_t>(sources_.size())))};
        if (below(4) != 0) term.weight = static_cast<uint8_t>(below(weights_per_row_));
        if (below(2) == 0) term.ends |= Term::rank_sum;
        if (below(4) == 0) term.ends |= Term::node_sum;
        if (t + 1 == count && below(8) != 0) term.ends = Term::rank_sum | Term::node_sum;
        terms_.push_back(term);
      }
      if (fixed_width_ > 0) terms_.resize((sum + 1) * fixed_width_, {UINT32_MAX, UINT16_MAX, 0, 0});
    }
    begin_.push_back(static_cast<uint32_t>(terms_.size()));
  }

  void fill(SumParameters& parameters) {
    for (size_t s = 0; s < sources_.size(); ++s) {
      const RowArray rows = sources_[s].rows.array();
      parameters.sources[s] = {
          rows.data, rows.stride, sources_[s].weights.empty() ? nullptr : sources_[s].weights.data(),
          plain() ? nullptr : sources_[s].scales.array().data, sources_[s].scales.array().stride};
    }
    parameters.destination = destination_.array();
    parameters.destinations = list_of(list_, destination_first_);
    parameters.terms = terms_.data();
    if (fixed_width_ == 0) parameters.begin = begin_.data();
    parameters.counts = counts_.data();
    parameters.width = fixed_width_;
    parameters.weights_per_row = weights_per_row_;
    parameters.elements = elements_;
    parameters.rows.most = sums_;
  }
  void expect() {
    for (uint32_t sum = 0; sum < sums_; ++sum) {
      const uint32_t to = row_in(list_, destination_first_, sum);
      if (to == no_row) continue;
      std::vector<SumTerm> terms;
      std::deque<std::vector<std::byte>> dequantised;
      for (uint32_t t = begin_[sum]; t < begin_[sum] + counts_[sum]; ++t) {
        const Term& term = terms_[t];
        Source& source = sources_[term.source];
        const std::byte* row = source.rows.row(term.row);
        if (!plain()) {
          auto& made = dequantised.emplace_back(elements_ * element_bytes(type_));
          dequantise_e4m3(row, source.scales.row(term.row), elements_, type_, made.data());
          row = made.data();
        }
        const bool weighted = !source.weights.empty() && term.weight != Term::unweighted;
        terms.push_back({row, weighted ? source.weights[term.row * weights_per_row_ + term.weight] : 1,
                         weighted, (term.ends & Term::rank_sum) != 0, (term.ends & Term::node_sum) != 0});
      }
      sum_row(type_, destination_.expected(to), terms, elements_);
    }
  }

  std::mt19937_64& random_;
  Operands operands_;
  RowType type_;
  uint32_t elements_;
  bool aligned_;
  uint32_t sums_, weights_per_row_;
  Rows destination_;
  std::deque<Source> sources_;
  uint32_t destination_first_ = 0, fixed_width_ = 0;
  std::vector<uint32_t> list_, begin_, counts_;
  std::vector<Term> terms_;
};

class SumKernels : public ::testing::TestWithParam<Operands> {};

TEST_P(SumKernels, GiveTheHostsBits) {
  std::mt19937_64 random = device::testing::seeded_generator();
  for (int repetition = 0; repetition < 300; ++repetition) {
    SCOPED_TRACE(repetition);
    ASSERT_NO_FATAL_FAILURE(Problem(random, GetParam()).run_and_compare());
  }
}

INSTANTIATE_TEST_SUITE_P(CudaKernels, SumKernels, ::testing::Values(Operands::plain, Operands::float8),
                         [](const auto& param_info) {
                           return param_info.param == Operands::plain ? "plain" : "float8";
                         });

TEST(SumKernels, OfSingleNumbersGiveTheHostsBits) {
  std::mt19937_64 random = device::testing::seeded_generator();
  for (int repetition = 0; repetition < 300; ++repetition) {
    SCOPED_TRACE(repetition);
    ASSERT_NO_FATAL_FAILURE(Problem(random, Operands::plain, RowType::float32, 1).run_and_compare());
  }
}

TEST(SumKernels, OfSingleNumbersHaveAKernelOfTheirOwn) {
  SumParameters parameters;
  parameters.elements = 1;
  parameters.rows.most = 1000;
  const auto launch = sum_launch(RowType::float32, Operands::plain, parameters, 1000, {});
  EXPECT_STREQ(launch.kernel.name, "epccl_sum_numbers");
  EXPECT_EQ(launch.blocks, 4U) << "a lane for each";
}

TEST(SumKernels, MayOverwriteATerm) {
  std::mt19937_64 random = device::testing::seeded_generator();
  for (const bool aligned : {true, false}) {
    Rows rows(3, 600, aligned, random);
    rows.fill(RowType::bfloat16, Kind::ordinary, random);
    const std::vector<Term> terms{{0, 0}, {1, 0}, {2, 0, Term::unweighted, Term::rank_sum | Term::node_sum}};
    const std::vector<uint32_t> begin{0, 3}, to{1};
    const std::vector<SumTerm> same{{rows.row(0)}, {rows.row(1)}, {rows.row(2), 1, false, true, true}};
    sum_row(RowType::bfloat16, rows.expected(1), same, 300);
    SumParameters parameters;
    parameters.sources[0] = {rows.array().data, rows.array().stride};
    parameters.destination = rows.array();
    parameters.destinations = {to.data(), 0};
    parameters.terms = terms.data();
    parameters.begin = begin.data();
    parameters.elements = 300;
    parameters.rows.most = 1;
    run(sum_launch(RowType::bfloat16, Operands::plain, parameters, 3, {}), random);
    EXPECT_TRUE(rows.as_expected());
  }
}

}  // namespace
}  // namespace epccl::device::kernels::testing
