#include "ep_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "ep/routing/source_header.hpp"
#include "shapes.hpp"

namespace epccl::tests {

using ep::SlotLayout;

std::string EpCase::text() const {
  std::string tokens_text;
  for (int rank = 0; rank < cluster.ranks(); ++rank) tokens_text += fmt::format(" {}", tokens(rank));
  return fmt::format(
      "{} layout {} experts {} k {} alignment {} capacity {} pad {} chunk {} scratch {} tokens{}",
      shape_text(cluster), to_string(rules.layout), experts, k, rules.alignment, rules.capacity, rules.pad,
      chunk_bytes, scratch_bytes, tokens_text);
}

namespace {

std::vector<int64_t> random_table(const EpCase& what, uint32_t tokens, std::mt19937_64& random) {
  std::vector<int64_t> table;
  for (uint32_t i = 0; i < tokens * what.k; ++i)
    table.push_back(random() % 8 == 0 ? -1 : static_cast<int64_t>(random() % what.experts));
  return table;
}

}  // namespace

EpCase random_case(const topology::Cluster& cluster, SlotLayout layout, std::mt19937_64& random) {
  const auto below = [&](uint64_t limit) { return static_cast<uint32_t>(random() % limit); };
  EpCase made{cluster, 1 + below(24), {}, 1 + below(8), {}, {}, 0, 0};
  if (below(2) == 0)
    for (uint32_t expert = 0; expert < made.experts; ++expert)
      made.expert_to_rank.push_back(static_cast<int>(below(static_cast<uint64_t>(cluster.ranks()))));
  uint32_t most = 0;
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    made.topk.push_back(random_table(made, below(4) == 0 ? 0 : below(30), random));
    most = std::max(most, made.tokens(rank));
  }
  // No group has a maximum of 0.
  made.rules = {layout, std::max(1U, most + below(3)), 1, 0, false, made.k};
  if (layout == SlotLayout::expert_major) {
    made.rules.alignment = 1 + below(5);
    if (below(2) == 0) made.rules.capacity = 1 + below(20);
    made.rules.pad = made.rules.capacity > 0 && below(2) == 0;
  }
  // From messages of one row to everything in one.
  made.chunk_bytes = below(3) == 0 ? 1 : ep_row * (1 + below(12));
  made.scratch_bytes = below(3) == 0 ? 8 << 20 : 4 * ep_row * (64 + below(100));
  return made;
}

EpCase other_routing(const EpCase& like, std::mt19937_64& random) {
  EpCase made = like;
  for (auto& table : made.topk)
    table = random_table(made, static_cast<uint32_t>(random() % (like.rules.max_tokens + 1)), random);
  return made;
}

ep::ExpertMap experts_of(const EpCase& what) {
  return ep::ExpertMap::make(what.cluster, what.experts, what.expert_to_rank).value();
}

EpViews exchange_layouts(const EpCase& what, const ep::ExpertMap& experts) {
  EpViews views;
  const int ranks = what.cluster.ranks();
  for (int rank = 0; rank < ranks; ++rank) {
    ep::SourceHeader header;
    header.tokens = what.tokens(rank);
    header.k = what.k;
    const ep::TopK topk{what.topk[static_cast<size_t>(rank)].data(), true, header.tokens, what.k};
    views.routings.emplace_back(what.cluster, experts, topk);
    describe_source(what.cluster, rank, views.routings.back(), {ep_row, what.chunk_bytes, what.scratch_bytes},
                    header);
    views.messages.push_back(make_messages(what.cluster, rank, header, views.routings.back()));
    views.headers.push_back(header);
  }
  views.sources.resize(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (int source = 0; source < ranks; ++source) {
      const auto& from = views.messages[static_cast<size_t>(source)];
      const size_t begin = from.begin[static_cast<size_t>(rank)],
                   end = from.begin[static_cast<size_t>(rank) + 1];
      views.sources[static_cast<size_t>(rank)].push_back(
          read_message(what.cluster, experts, {what.rules.max_tokens}, source, rank,
                       std::span(from.words).subspan(begin, end - begin))
              .value());
    }
    views.slots.emplace_back(what.cluster, experts, what.cluster.node_of(rank), what.rules,
                             views.sources[static_cast<size_t>(rank)]);
  }
  return views;
}

EpViews exchange_static_layouts(const EpCase& what, const ep::ExpertMap& experts) {
  EpViews views = exchange_layouts(what, experts);
  for (int source = 0; source < what.cluster.ranks(); ++source) {
    ep::SourceHeader maxima;
    describe_maxima(what.cluster, experts, source, what.rules.max_tokens, what.k,
                    {ep_row, what.chunk_bytes, what.scratch_bytes}, maxima);
    for (auto& of_rank : views.sources)
      of_rank[static_cast<size_t>(source)].header.block_tokens = maxima.block_tokens;
    views.headers[static_cast<size_t>(source)] = maxima;
  }
  return views;
}

EpOracle::EpOracle(const EpCase& what) : case_(what), rows_(static_cast<size_t>(what.cluster.ranks())) {
  for (uint32_t expert = 0; expert < what.experts; ++expert)
    owner_.push_back(
        what.expert_to_rank.empty()
            ? static_cast<int>(uint64_t{expert} * static_cast<uint64_t>(what.cluster.ranks()) / what.experts)
            : what.expert_to_rank[expert]);
  for (const auto& table : what.topk) slot_.emplace_back(table.size(), dropped);
  if (what.rules.layout == SlotLayout::expert_major)
    place_by_expert();
  else
    place_by_token();
}

void EpOracle::place_by_token() {
  const bool fixed = case_.rules.layout == SlotLayout::rank_major;
  for (int rank = 0; rank < case_.cluster.ranks(); ++rank) {
    uint32_t next = 0;
    for (int source = 0; source < case_.cluster.ranks(); ++source) {
      if (fixed) next = static_cast<uint32_t>(source) * case_.rules.max_tokens;
      const auto& table = case_.topk[static_cast<size_t>(source)];
      for (uint32_t token = 0; token < case_.tokens(source); ++token) {
        bool any = false;
        for (uint32_t k = 0; k < case_.k; ++k) {
          const size_t at = size_t{token} * case_.k + k;
          if (table[at] < 0 || owner(table[at]) != rank) continue;
          slot_[static_cast<size_t>(source)][at] = next;
          any = true;
        }
        if (any) ++next;
      }
    }
    rows_[static_cast<size_t>(rank)] =
        fixed ? static_cast<uint32_t>(case_.cluster.ranks()) * case_.rules.max_tokens : next;
  }
}

void EpOracle::place_by_expert() {
  for (uint32_t expert = 0; expert < case_.experts; ++expert) {
    uint32_t& end = rows_[static_cast<size_t>(owner(expert))];
    uint32_t index = 0;
    for (int source = 0; source < case_.cluster.ranks(); ++source) {
      const auto& table = case_.topk[static_cast<size_t>(source)];
      for (size_t at = 0; at < table.size(); ++at) {
        if (table[at] != static_cast<int64_t>(expert)) continue;
        if (case_.rules.capacity == 0 || index < case_.rules.capacity)
          slot_[static_cast<size_t>(source)][at] = end + index;
        ++index;
      }
    }
    if (case_.rules.capacity > 0)
      index = case_.rules.pad ? case_.rules.capacity : std::min(index, case_.rules.capacity);
    while (index % case_.rules.alignment != 0) ++index;
    end += index;
  }
}

uint64_t EpOracle::tokens_for_node(int source, int node) const {
  uint64_t count = 0;
  for (uint32_t token = 0; token < case_.tokens(source); ++token)
    for (uint32_t k = 0; k < case_.k; ++k) {
      const int64_t expert = case_.topk[static_cast<size_t>(source)][size_t{token} * case_.k + k];
      if (expert < 0 || case_.cluster.node_of(owner(expert)) != node) continue;
      ++count;
      break;
    }
  return count;
}

uint64_t EpOracle::tokens_for_rank(int source, int rank) const {
  uint64_t count = 0;
  for (uint32_t token = 0; token < case_.tokens(source); ++token)
    for (uint32_t k = 0; k < case_.k; ++k) {
      const int64_t expert = case_.topk[static_cast<size_t>(source)][size_t{token} * case_.k + k];
      if (expert < 0 || owner(expert) != rank) continue;
      ++count;
      break;
    }
  return count;
}

std::vector<plan::Transfer> EpOracle::dispatch() const {
  std::set<std::tuple<int, uint32_t, int, uint32_t>> moves;  // source, token, receiver, slot
  for (int source = 0; source < case_.cluster.ranks(); ++source)
    for (uint32_t token = 0; token < case_.tokens(source); ++token)
      for (uint32_t k = 0; k < case_.k; ++k)
        if (slot(source, token, k) != dropped)
          moves.emplace(source, token,
                        owner(case_.topk[static_cast<size_t>(source)][size_t{token} * case_.k + k]),
                        slot(source, token, k));
  std::vector<plan::Transfer> transfers;
  for (const auto& [source, token, receiver, row] : moves)
    transfers.push_back({source, token * ep_row, receiver, row * ep_row, ep_row});
  return transfers;
}

// By node; in a node by rank; on a rank by position in the top-k. Rows that several experts of a rank share count once.
std::vector<plan::RowSum::Term> EpOracle::terms(int source, uint32_t token) const {
  std::vector<std::tuple<int, int, uint32_t>> uses;  // node, rank, position
  for (uint32_t k = 0; k < case_.k; ++k) {
    const int64_t expert = case_.topk[static_cast<size_t>(source)][size_t{token} * case_.k + k];
    if (slot(source, token, k) != dropped)
      uses.emplace_back(case_.cluster.node_of(owner(expert)), owner(expert), k);
  }
  std::ranges::sort(uses);
  const bool by_expert = case_.rules.layout == SlotLayout::expert_major;
  std::vector<plan::RowSum::Term> terms;
  for (size_t i = 0; i < uses.size(); ++i) {
    const auto& [node, rank, k] = uses[i];
    const bool last_of_rank = i + 1 == uses.size() || std::get<1>(uses[i + 1]) != rank;
    const bool last_of_node = i + 1 == uses.size() || std::get<0>(uses[i + 1]) != node;
    if (!by_expert && !last_of_rank) continue;
    const int ends =
        (last_of_rank ? plan::RowTerm::rank_sum : 0) | (last_of_node ? plan::RowTerm::node_sum : 0);
    terms.push_back({rank, slot(source, token, k) * ep_row,
                     static_cast<uint8_t>(by_expert ? k : plan::RowTerm::unweighted),
                     static_cast<uint8_t>(ends)});
  }
  return terms;
}

std::vector<plan::RowSum> EpOracle::combine() const {
  std::vector<plan::RowSum> sums;
  for (int source = 0; source < case_.cluster.ranks(); ++source)
    for (uint32_t token = 0; token < case_.tokens(source); ++token)
      sums.push_back({source, token * ep_row, ep_row, terms(source, token)});
  return sums;
}

}  // namespace epccl::tests
