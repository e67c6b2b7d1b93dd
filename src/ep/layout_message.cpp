#include "ep/layout_message.hpp"

#include <algorithm>
#include <cstring>

namespace epccl::ep {
namespace {

constexpr size_t header_words = sizeof(SourceHeader) / sizeof(uint32_t);
static_assert(sizeof(SourceHeader) == (2 + 9 + 12 + 1) * sizeof(uint32_t), "no padding: it is sent as it is");

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

bool ascend_below(std::span<const uint32_t> tokens, uint32_t limit) {
  int32_t falls = 0;
  for (size_t i = 1; i < tokens.size(); ++i)
    falls += static_cast<int32_t>(tokens[i - 1]) >= static_cast<int32_t>(tokens[i]) ? 1 : 0;
  // With the first below the last, none of them is one that only looks small as a signed number.
  return falls == 0 && (tokens.empty() || (tokens.front() <= tokens.back() && tokens.back() < limit));
}

bool entries_fit(const RankRows& rows, uint32_t experts, uint32_t k) {
  // Signed: that is what every machine's vectors compare.
  const auto expert_limit = static_cast<int32_t>(experts), k_limit = static_cast<int32_t>(k);
  int32_t wrong = 0, firsts = 0;  // counted to the end: quicker than looking at each
  for (const uint32_t word : rows.entries) {
    wrong += (static_cast<int32_t>(Entry{word}.expert()) >= expert_limit ? 1 : 0) +
             (static_cast<int32_t>(Entry{word}.k()) >= k_limit ? 1 : 0);
    firsts += static_cast<int32_t>(word & 1);
  }
  if (rows.entries.empty()) return rows.tokens.empty();
  return wrong == 0 && static_cast<size_t>(firsts) == rows.tokens.size() && Entry{rows.entries[0]}.first();
}

}  // namespace

int relay_of(const topology::Cluster& cluster, int source, int node) {
  if (cluster.node_of(source) == node) return source;
  return cluster.rank_at(node, cluster.local_of(source) % cluster.local_size(node));
}

SourceMessages make_messages(const topology::Cluster& cluster, int source, const SourceHeader& header,
                             const Routing& routing) {
  SourceMessages messages;
  const bool good = header.problem == SourceHeader::none;
  const auto ranks = static_cast<size_t>(cluster.ranks());
  messages.words.reserve(ranks * (header_words + 64) + 6 * size_t{header.tokens} * header.k * (good ? 1 : 0));
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
    for (const int member : cluster.members(node))
      messages.words.push_back(static_cast<uint32_t>(routing.to_rank(member).tokens.size()));
    append(messages.words, routing.expert_entries(node));
    if (relays) append(messages.words, routing.to_node(node));
    for (const int member : cluster.members(node)) {
      if (!relays && member != receiver) continue;
      append(messages.words, routing.to_rank(member).tokens);
      append(messages.words, routing.to_rank(member).entries);
    }
  }
  messages.begin.push_back(messages.words.size());
  return messages;
}

Result<SourceLayout> read_message(const topology::Cluster& cluster, const ExpertMap& experts, int source,
                                  int receiver, std::span<const uint32_t> words) {
  const auto broken = [source](const char* what) {
    return error(Code::remote_error, "the layout message of rank {} is damaged: {}", source, what);
  };
  SourceLayout layout;
  Reader reader(words);
  std::span<const uint32_t> head;
  if (!reader.take(header_words, head)) return broken("it is cut short");
  std::memcpy(static_cast<void*>(&layout.header), head.data(), sizeof layout.header);
  if (layout.header.problem != SourceHeader::none) return layout;
  const int node = cluster.node_of(receiver);
  const auto& members = cluster.members(node);
  if (!reader.take(members.size(), layout.rank_tokens) ||
      !reader.take(experts.node_size(node), layout.expert_entries))
    return broken("it is cut short");
  layout.relayed = relay_of(cluster, source, node) == receiver;
  if (layout.relayed && !reader.take(layout.header.node_rows, layout.node_tokens))
    return broken("it is cut short");
  if (!ascend_below(layout.node_tokens, layout.header.tokens)) return broken("tokens do not ascend");
  for (size_t local = 0; local < members.size(); ++local) {
    const int member = members[local];
    if (!layout.relayed && member != receiver) continue;
    uint64_t entries = 0;
    for (const uint32_t count : layout.expert_entries.subspan(experts.first(member), experts.count(member)))
      entries += count;
    RankRows rows;
    if (!reader.take(layout.rank_tokens[local], rows.tokens) || !reader.take(entries, rows.entries))
      return broken("it is cut short");
    if (!ascend_below(rows.tokens, layout.header.tokens)) return broken("tokens do not ascend");
    if (!entries_fit(rows, experts.count(member), layout.header.k)) return broken("entries name no expert");
    layout.rows.push_back(rows);
  }
  if (!reader.at_end()) return broken("it is longer than it says");
  return layout;
}

}  // namespace epccl::ep
