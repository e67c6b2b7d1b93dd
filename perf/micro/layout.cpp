// The host part of the layout exchange: what a rank computes when a handle gets a new routing. 4 nodes x 8 ranks, 256 experts,
// top-8, uniform.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "ep/layout/layout.hpp"
#include "ep/routing/source_header.hpp"

namespace epccl {
namespace {

constexpr uint32_t experts_count = 256, k = 8;
constexpr ep::BlockLimits limits{14336, 128 << 10, 8 << 20};

std::vector<int64_t> random_table(uint32_t tokens, int rank) {
  std::mt19937 random(static_cast<uint32_t>(rank));
  std::vector<int64_t> deck(experts_count), table;
  std::iota(deck.begin(), deck.end(), 0);
  for (uint32_t token = 0; token < tokens; ++token)
    for (uint32_t position = 0; position < k; ++position) {
      std::swap(deck[position], deck[position + random() % (experts_count - position)]);
      table.push_back(deck[position]);
    }
  return table;
}

struct Setting {
  topology::Cluster cluster = topology::Cluster::uniform(4, 8);
  ep::ExpertMap experts = ep::ExpertMap::make(cluster, experts_count, {}).value();

  static ep::TopK topk(const std::vector<int64_t>& table) {
    return {table.data(), true, static_cast<uint32_t>(table.size() / k), k};
  }
  ep::Routing route(const std::vector<int64_t>& table) const { return {cluster, experts, topk(table)}; }
  ep::SourceMessages tell(int source, const ep::Routing& routing, uint32_t tokens,
                          ep::SourceMessages before = {}) const {
    ep::SourceHeader header;
    header.tokens = tokens;
    header.k = k;
    describe_source(cluster, source, routing, limits, header);
    return make_messages(cluster, source, header, routing, std::move(before));
  }
};

/// As source: from the top-k table, which is checked, to the messages for all ranks; with a handle that had others before.
void layout_as_source(benchmark::State& state) {
  const Setting setting;
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const auto table = random_table(tokens, 0);
  ep::Routing routing(setting.cluster, setting.experts);
  ep::SourceMessages messages;
  for (auto _ : state) {
    routing.read(Setting::topk(table));
    messages = setting.tell(0, routing, tokens, std::move(messages));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * tokens * k);
}
BENCHMARK(layout_as_source)->ArgName("tokens")->Arg(256)->Arg(1024)->Arg(4096)->Unit(benchmark::kMicrosecond);

/// What all sources have told rank 0.
struct Told {
  Told(const Setting& setting, uint32_t tokens) {
    for (int source = 0; source < setting.cluster.ranks(); ++source)
      messages.push_back(setting.tell(source, setting.route(random_table(tokens, source)), tokens));
  }
  std::vector<ep::SourceLayout> read(const Setting& setting) const {
    std::vector<ep::SourceLayout> sources;
    for (int source = 0; source < setting.cluster.ranks(); ++source) {
      const auto& from = messages[static_cast<size_t>(source)];
      const auto words = std::span(from.words).subspan(from.begin[0], from.begin[1] - from.begin[0]);
      sources.push_back(
          read_message(setting.cluster, setting.experts, {ep::max_tokens}, source, 0, words).value());
    }
    return sources;
  }

  std::vector<ep::SourceMessages> messages;
};

ep::SlotRules flat_rules(uint32_t tokens) {
  return {ep::SlotLayout::flat, tokens, 1, 0, false, 0};
}

/// As receiver and relay: from all ranks' messages to the tables that a dispatch runs with.
void layout_as_receiver(benchmark::State& state) {
  const Setting setting;
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const Told told(setting, tokens);
  const ep::Routing own = setting.route(random_table(tokens, 0));
  for (auto _ : state) {
    const auto sources = told.read(setting);
    const ep::NodeSlots slots(setting.cluster, setting.experts, 0, flat_rules(tokens), sources);
    benchmark::DoNotOptimize(
        ep::make_exchange({setting.cluster, setting.experts, 0, ep::Strategy::dedup, own, slots, sources}));
  }
  state.SetItemsProcessed(state.iterations() * tokens * k);
}
BENCHMARK(layout_as_receiver)
    ->ArgName("tokens")
    ->Arg(256)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMicrosecond);

/// What the first combine adds to that.
void layout_for_combine(benchmark::State& state) {
  const Setting setting;
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const Told told(setting, tokens);
  const ep::Routing own = setting.route(random_table(tokens, 0));
  const auto sources = told.read(setting);
  const ep::NodeSlots slots(setting.cluster, setting.experts, 0, flat_rules(tokens), sources);
  const ep::LayoutView layout{setting.cluster, setting.experts, 0, ep::Strategy::dedup, own, slots, sources};
  auto exchange = ep::make_exchange(layout).value();
  for (auto _ : state) ep::add_sums(layout, exchange);
  state.SetItemsProcessed(state.iterations() * tokens * k);
}
BENCHMARK(layout_for_combine)
    ->ArgName("tokens")
    ->Arg(256)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace epccl
