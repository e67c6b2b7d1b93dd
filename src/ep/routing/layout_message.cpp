#include "ep/routing/layout_message.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/host/index_lists.hpp"

namespace epccl::ep {
namespace {

constexpr size_t header_words = sizeof(SourceHeader) / sizeof(uint32_t);
static_assert(sizeof(SourceHeader) == (4 + 11 + 12 + 1) * sizeof(uint32_t),
              "no padding: it is sent as it is");

void append(std::vector<uint32_t>& words, std::span<const uint32_t> more) {
  words.insert(words.end(), more.begin(), more.end());
}

/// Takes a message apart.
class Reader {
 public:
  explicit Reader(std::span<const uint32_t> words) : rest_(words) {}
  bool take(size_t count, std::span<const uint32_t>& out) {
    if (rest_.size() < count) return false;
    out = rest_.first(count);
    rest_ = rest_.subspan(count);
    return true;
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::span<const uint32_t> rest_;
};

bool entries_fit(const RankRows& rows, uint32_t experts, uint32_t k) {
  constexpr uint32_t positions = Entry::of(0, max_topk - 1, false).word;
  size_t firsts = 0;
  const bool fit = device::words_fit(
      rows.entries,
      {Entry::of(experts, 0, false).word, positions, Entry::of(0, std::min(k, max_topk), false).word},
      firsts);
  if (rows.entries.empty()) return rows.tokens.empty();
  return fit && firsts == rows.tokens.size() && Entry{rows.entries[0]}.first();
}

/// Sizes of everything follow from these.
std::string wrong_header(const SourceHeader& header, uint32_t most_tokens) {
  if (header.tokens > most_tokens)
    return fmt::format("it has {} tokens, where at most {} are allowed", header.tokens, most_tokens);
  if (header.k > max_topk) return fmt::format("it has {} experts a token", header.k);
  for (const Strategy strategy : strategies) {
    const auto i = static_cast<size_t>(strategy);
    if (header.block_tokens[i] > std::max(header.tokens, 1U) || header.turn_blocks[i] == 0)
      return fmt::format("it has blocks of {} tokens, {} in a turn", header.block_tokens[i],
                         header.turn_blocks[i]);
  }
  return {};
}

std::string wrong_counts(const SourceLayout& layout) {
  const uint64_t tokens = layout.header.tokens, most_entries = tokens * layout.header.k;
  for (const uint32_t of_rank : layout.rank_tokens)
    if (of_rank > tokens) return fmt::format("{} of its {} tokens go to one rank", of_rank, tokens);
  uint64_t entries = 0;
  for (const uint32_t of_expert : layout.expert_entries) entries += of_expert;
  if (entries > most_entries) return fmt::format("it has {} entries, of {} tokens", entries, tokens);
  return {};
}

/// At most.
size_t words_after_headers(const topology::Cluster& cluster, const Routing& routing) {
  size_t words = 0;
  for (int node = 0; node < cluster.nodes(); ++node) {
    const auto members = static_cast<size_t>(cluster.local_size(node));
    words += 2 * routing.all_of(node).size() +
             members * (routing.rank_tokens(node).size() + routing.expert_entries(node).size());
  }
  return words;
}

}  // namespace

int relay_of(const topology::Cluster& cluster, int source, int node) {
  if (cluster.node_of(source) == node) return source;
  return cluster.rank_at(node, cluster.local_of(source) % cluster.local_size(node));
}

uint64_t sources_of_relay(const topology::Cluster& cluster, int rank) {
  const int node = cluster.node_of(rank);
  uint64_t sources = 0;
  for (int source = 0; source < cluster.ranks(); ++source)
    sources += cluster.node_of(source) != node && relay_of(cluster, source, node) == rank ? 1 : 0;
  return sources;
}

SourceMessages make_messages(const topology::Cluster& cluster, int source, const SourceHeader& header,
                             const Routing& routing, SourceMessages before) {
  SourceMessages messages = std::move(before);
  messages.words.clear();
  messages.begin.clear();
  const bool good = header.problem == SourceHeader::none;
  const auto ranks = static_cast<size_t>(cluster.ranks());
  messages.words.reserve(ranks * header_words + (good ? words_after_headers(cluster, routing) : 0));
  for (int receiver = 0; receiver < cluster.ranks(); ++receiver) {
    const int node = cluster.node_of(receiver);
    const bool relays = relay_of(cluster, source, node) == receiver;
    SourceHeader own = header;
    own.node_rows = good && relays ? static_cast<uint32_t>(routing.to_node(node).size()) : 0;
    const size_t at = messages.words.size();
    messages.begin.push_back(at);
    messages.words.resize(at + header_words);
    std::memcpy(messages.words.data() + at, &own, sizeof own);
    if (!good) continue;
    if (relays) {
      append(messages.words, routing.all_of(node));
      continue;
    }
    append(messages.words, routing.rank_tokens(node));
    append(messages.words, routing.expert_entries(node));
    append(messages.words, routing.to_rank(receiver).entries);
    append(messages.words, routing.to_rank(receiver).tokens);
  }
  messages.begin.push_back(messages.words.size());
  return messages;
}

Result<SourceLayout> read_message(const topology::Cluster& cluster, const ExpertMap& experts,
                                  const GroupFacts& group, int source, int receiver,
                                  std::span<const uint32_t> words) {
  const auto broken = [source](const std::string& what) {
    return error(Code::remote_error, "the layout message of rank {} is damaged: {}", source, what);
  };
  SourceLayout layout;
  Reader reader(words);
  std::span<const uint32_t> head;
  if (!reader.take(header_words, head)) return broken("it is cut short");
  std::memcpy(static_cast<void*>(&layout.header), head.data(), sizeof layout.header);
  if (layout.header.problem != SourceHeader::none || layout.header.group != group.number) return layout;
  if (const std::string wrong = wrong_header(layout.header, group.most_tokens); !wrong.empty())
    return broken(wrong);
  const int node = cluster.node_of(receiver);
  const auto& members = cluster.members(node);
  if (!reader.take(members.size(), layout.rank_tokens) ||
      !reader.take(experts.node_size(node), layout.expert_entries))
    return broken("it is cut short");
  // Where others' rows lie follows from these, whatever of the lists comes here.
  if (const std::string wrong = wrong_counts(layout); !wrong.empty()) return broken(wrong);
  layout.relayed = relay_of(cluster, source, node) == receiver;
  if (layout.relayed && !reader.take(layout.header.node_rows, layout.node_tokens))
    return broken("it is cut short");
  if (!device::ascend_below(layout.node_tokens, layout.header.tokens)) return broken("tokens do not ascend");
  for (size_t local = 0; local < members.size(); ++local) {
    const int member = members[local];
    if (!layout.relayed && member != receiver) continue;
    uint64_t entries = 0;
    for (const uint32_t count : layout.expert_entries.subspan(experts.first(member), experts.count(member)))
      entries += count;
    RankRows rows;
    if (!reader.take(entries, rows.entries) || !reader.take(layout.rank_tokens[local], rows.tokens))
      return broken("it is cut short");
    if (!device::ascend_below(rows.tokens, layout.header.tokens)) return broken("tokens do not ascend");
    if (!entries_fit(rows, experts.count(member), layout.header.k)) return broken("entries name no expert");
    layout.rows.push_back(rows);
  }
  if (!reader.at_end()) return broken("it is longer than it says");
  return layout;
}

}  // namespace epccl::ep
