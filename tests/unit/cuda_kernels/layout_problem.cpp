#include "layout_problem.hpp"

#include <cstring>

#include "launched.hpp"

namespace epccl::device::kernels::testing {
namespace {

constexpr uint32_t poison = 0xdeadbeef;

}  // namespace

DeviceLayout::DeviceLayout(const tests::EpCase& what, const ep::ExpertMap& experts, int rank, bool wide) {
  const auto ranks = static_cast<uint32_t>(what.cluster.ranks());
  parameters.shape = {
      ranks, what.rules.max_tokens, what.k, what.experts, ranks, static_cast<uint32_t>(what.cluster.nodes())};
  parameters.rules = {what.rules.layout == ep::SlotLayout::expert_major,
                      what.rules.layout == ep::SlotLayout::rank_major, what.rules.alignment,
                      what.rules.capacity, what.rules.pad};
  parameters.rank = static_cast<uint32_t>(rank);
  set_tables(what, wide);
  set_places(what, experts);
  set_results();
}

void DeviceLayout::set_tables(const tests::EpCase& what, bool wide) {
  // Whether ids are wide, tokens, then the table. Every other source has the other width, if records say so.
  const bool each_says = what.k % 2 == 0;
  // Now and then records are not in the order of sources.
  for (uint32_t source = 0; source < parameters.shape.sources; ++source)
    record_of_.push_back(what.k % 3 == 0 ? parameters.shape.sources - 1 - source : source);
  if (what.k % 3 == 0) parameters.record_of = record_of_.data();
  const uint64_t words = 2 + uint64_t{what.rules.max_tokens} * what.k;
  records_.assign(words * parameters.shape.sources, 0);
  for (uint32_t source = 0; source < parameters.shape.sources; ++source) {
    auto* record = reinterpret_cast<std::byte*>(records_.data() + record_of_[source] * words);
    const uint32_t tokens = what.tokens(static_cast<int>(source));
    std::memcpy(record + 4, &tokens, sizeof tokens);
    const uint32_t is_wide = each_says ? (wide ? 1 : 0) ^ (source & 1) : wide ? 1 : 0;
    std::memcpy(record, &is_wide, sizeof is_wide);
    const auto& table = what.topk[source];
    for (size_t i = 0; i < table.size(); ++i) {
      const auto narrow = static_cast<int32_t>(table[i]);
      if (is_wide != 0)
        std::memcpy(record + 8 + 8 * i, &table[i], 8);
      else
        std::memcpy(record + 8 + 4 * i, &narrow, 4);
    }
  }
  parameters.records = reinterpret_cast<const std::byte*>(records_.data());
  parameters.record_bytes = 8 * words;
  parameters.tokens_at = 4;
  parameters.table_at = 8;
  parameters.wide = wide;
  if (each_says) parameters.wide_at = 0;
}

const uint32_t* DeviceLayout::own_tokens() const {
  return reinterpret_cast<const uint32_t*>(
      parameters.records + record_of_[parameters.rank] * parameters.record_bytes + parameters.tokens_at);
}

void DeviceLayout::set_places(const tests::EpCase& what, const ep::ExpertMap& experts) {
  std::vector<uint32_t> node_begin{0};
  for (int node = 0; node < what.cluster.nodes(); ++node)
    node_begin.push_back(node_begin.back() + experts.node_size(node));
  for (uint32_t expert = 0; expert < what.experts; ++expert) {
    const auto& place = experts.place(expert);
    expert_places_.push_back({node_begin[static_cast<size_t>(place.node)] + place.node_index,
                              static_cast<uint32_t>(place.rank), static_cast<uint32_t>(place.node)});
  }
  const int own_node = what.cluster.node_of(static_cast<int>(parameters.rank));
  for (int rank = 0; rank < what.cluster.ranks(); ++rank) {
    const int node = what.cluster.node_of(rank);
    rank_places_.push_back({node_begin[static_cast<size_t>(node)] + experts.first(rank), experts.count(rank),
                            node == own_node ? static_cast<uint32_t>(what.cluster.local_of(rank)) : no_row});
  }
  parameters.experts = expert_places_.data();
  parameters.ranks = rank_places_.data();
}

void DeviceLayout::set_results() {
  const LayoutShape& shape = parameters.shape;
  const auto room = [](auto& list, auto*& pointer, uint64_t count) {
    list.resize(count);
    if (count > 0) std::memset(static_cast<void*>(list.data()), 0xab, count * sizeof list[0]);
    pointer = list.data();
  };
  const uint64_t table = uint64_t{shape.max_tokens} * shape.k;
  room(counts_, parameters.counts, shape.count_words());
  room(totals, parameters.totals, shape.total_words());
  room(wrong, parameters.wrong, shape.sources);
  room(before, parameters.before, uint64_t{shape.sources} * shape.experts);
  room(first_row, parameters.first_row, uint64_t{shape.sources} * shape.ranks);
  room(entries, parameters.entries, shape.experts);
  room(zone_begin, parameters.zone_begin, shape.experts);
  room(zone_rows, parameters.zone_rows, shape.experts);
  room(rows, parameters.rows, shape.ranks);
  room(targets, parameters.targets, table);
  room(dropped, parameters.dropped, table);
  room(rank_tokens, parameters.rank_tokens, uint64_t{shape.ranks} * shape.max_tokens);
  room(rank_entries, parameters.rank_entries, shape.ranks * table);
  room(homes, parameters.homes, table);
  room(home_counts, parameters.home_counts, table);
  room(node_tokens, parameters.node_tokens, uint64_t{shape.nodes} * shape.max_tokens);
  terms.assign(table, {poison});
  term_counts.assign(shape.max_tokens, poison);
}

void DeviceLayout::make(std::mt19937_64& random) {
  const auto launches = layout_launches(parameters, {1 + static_cast<uint32_t>(random() % 3)});
  for (size_t i = 0; i < 3; ++i) run(launches[i], random);
  // How many rows come is known now.
  const uint32_t count = rows[parameters.rank];
  row_entries.assign(count, poison);
  row_topk.assign(uint64_t{count} * shape().k, static_cast<int32_t>(poison));
  row_terms.assign(count, {poison});
  row_counts.assign(count, poison);
  LayoutParameters whole = parameters;
  whole.most_rows = count;
  whole.row_entries = row_entries.data();
  whole.row_topk = row_topk.data();
  whole.row_terms = row_terms.data();
  whole.row_counts = row_counts.data();
  for (const auto& launch : layout_launches(whole, {1 + static_cast<uint32_t>(random() % 3)}))
    run(launch, random);
  TermsParameters to_terms;
  to_terms.targets = targets.data();
  to_terms.rows = {own_tokens(), shape().max_tokens};
  to_terms.width = shape().k;
  to_terms.by_expert = parameters.rules.by_expert;
  to_terms.terms = terms.data();
  to_terms.counts = term_counts.data();
  run(terms_launch(to_terms, {2}), random);
}

}  // namespace epccl::device::kernels::testing
