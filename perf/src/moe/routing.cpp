#include "perf/src/moe/routing.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "epccl/ep.h"
#include "perf/src/random.hpp"

namespace epccl::perf::moe {
namespace {

constexpr uint64_t permutation_stream = ~uint64_t{0};  // apart from the ranks' numbers

/// Tables whose tokens do not know of each other.
class DrawnRouting : public Routing {
 public:
  DrawnRouting(uint32_t experts, uint32_t topk, uint64_t seed)
      : experts_(experts), topk_(topk), seed_(seed) {}

  TopkTable table(int rank, uint32_t tokens) const final {
    TopkTable table{tokens, topk_, std::vector<int64_t>(size_t{tokens} * topk_)};
    for (uint32_t token = 0; token < tokens; ++token) {
      Random random(mix(seed_, static_cast<uint64_t>(rank), token));
      draw(random, std::span(table.experts).subspan(size_t{token} * topk_, topk_));
    }
    return table;
  }

 protected:
  virtual void draw(Random& random, std::span<int64_t> row) const = 0;

  uint32_t experts() const { return experts_; }

  /// Fills the row, behind its first `have` entries, with candidates that it does not have yet.
  template <typename Candidate>
  static void fill_distinct(std::span<int64_t> row, size_t have, Candidate candidate) {
    while (have < row.size()) {
      const int64_t expert = candidate();
      const auto end = row.begin() + static_cast<std::ptrdiff_t>(have);
      if (std::find(row.begin(), end, expert) == end) row[have++] = expert;
    }
  }

  int64_t any(Random& random) const { return static_cast<int64_t>(random.below(experts_)); }

  /// Experts from the hottest on: else the first rank would have them all.
  std::vector<int64_t> shuffled_experts() const {
    std::vector<int64_t> order(experts_);
    std::iota(order.begin(), order.end(), 0);
    Random random(mix(seed_, permutation_stream, 0));
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    return order;
  }

 private:
  const uint32_t experts_, topk_;
  const uint64_t seed_;
};

class UniformRouting final : public DrawnRouting {
 public:
  using DrawnRouting::DrawnRouting;

 private:
  void draw(Random& random, std::span<int64_t> row) const override {
    fill_distinct(row, 0, [&] { return any(random); });
  }
};

class GroupRouting final : public DrawnRouting {
 public:
  GroupRouting(const RoutingRule& rule, uint32_t experts, uint32_t topk, uint64_t seed)
      : DrawnRouting(experts, topk, seed), chosen_(rule.chosen), groups_(rule.groups) {}

 private:
  void draw(Random& random, std::span<int64_t> row) const override {
    std::vector<int64_t> groups(chosen_);
    fill_distinct(groups, 0, [&] { return static_cast<int64_t>(random.below(groups_)); });
    const uint64_t size = experts() / groups_;
    fill_distinct(row, 0, [&] {
      const uint64_t at = random.below(chosen_ * size);
      return groups[at / size] * static_cast<int64_t>(size) + static_cast<int64_t>(at % size);
    });
  }

  const uint32_t chosen_, groups_;
};

class HotRouting final : public DrawnRouting {
 public:
  HotRouting(const RoutingRule& rule, uint32_t experts, uint32_t topk, uint64_t seed)
      : DrawnRouting(experts, topk, seed), hot_(shuffled_experts()) {
    hot_.resize(rule.hot);
  }

 private:
  void draw(Random& random, std::span<int64_t> row) const override {
    row[0] = hot_[random.below(hot_.size())];
    fill_distinct(row, 1, [&] { return any(random); });
  }

  std::vector<int64_t> hot_;
};

/// Expert number i of a seeded order has weight 1 / (1 + i)^exponent.
class ZipfRouting final : public DrawnRouting {
 public:
  ZipfRouting(const RoutingRule& rule, uint32_t experts, uint32_t topk, uint64_t seed)
      : DrawnRouting(experts, topk, seed), order_(shuffled_experts()) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < experts; ++i) {
      // Integers: ranks on machines whose pow() differs in the last bit still agree on every token.
      const double weight = std::pow(1.0 / (1.0 + i), rule.exponent);
      end += std::max<uint64_t>(static_cast<uint64_t>(std::llround(0x1p32 * weight)), 1);
      ends_.push_back(end);
    }
  }

 private:
  void draw(Random& random, std::span<int64_t> row) const override {
    size_t have = 0;
    std::array<size_t, EPCCL_EP_MAX_TOPK> places;  // of those that it has, in the order
    const auto taken = [&] { return std::span(places).first(have); };
    for (int attempts = 0; have < row.size() && attempts < 4 * static_cast<int>(row.size()); ++attempts) {
      const size_t place = place_of(random.below(ends_.back()));
      if (std::ranges::find(taken(), place) != taken().end()) continue;
      row[have] = order_[place];
      places[have++] = place;
    }
    for (; have < row.size(); ++have) {
      std::ranges::sort(taken());
      places[have] = draw_other(random, taken());
      row[have] = order_[places[have]];
    }
  }

  /// Whose share of the weight this one of them all lies in.
  size_t place_of(uint64_t weight) const {
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), weight) - ends_.begin());
  }

  /// As drawing again until the place is none of `taken`, which may take forever where these have almost all weight. `taken` is sorted.
  size_t draw_other(Random& random, std::span<const size_t> taken) const {
    const auto begin = [&](size_t place) { return place == 0 ? 0 : ends_[place - 1]; };
    uint64_t free = ends_.back();
    for (const size_t place : taken) free -= ends_[place] - begin(place);
    uint64_t weight = random.below(free);
    for (const size_t place : taken) {  // as far on as what is not free before it
      if (weight < begin(place)) break;
      weight += ends_[place] - begin(place);
    }
    return place_of(weight);
  }

  std::vector<int64_t> order_;
  std::vector<uint64_t> ends_;  // of the experts' shares, in that order
};

}  // namespace

std::unique_ptr<Routing> make_routing(const RoutingRule& rule, uint32_t experts, uint32_t topk,
                                      uint64_t seed) {
  switch (rule.kind) {
    case RoutingRule::Kind::zipf:
      return std::make_unique<ZipfRouting>(rule, experts, topk, seed);
    case RoutingRule::Kind::groups:
      return std::make_unique<GroupRouting>(rule, experts, topk, seed);
    case RoutingRule::Kind::hot:
      return std::make_unique<HotRouting>(rule, experts, topk, seed);
    default:
      return std::make_unique<UniformRouting>(experts, topk, seed);
  }
}

std::vector<TopkTable> all_tables(const Routing& routing, int ranks, uint32_t tokens) {
  std::vector<TopkTable> tables;
  for (int rank = 0; rank < ranks; ++rank) tables.push_back(routing.table(rank, tokens));
  return tables;
}

}  // namespace epccl::perf::moe
