#include "ep/layout_message.hpp"

#include <cstring>

namespace epccl::ep {
namespace {

constexpr size_t header_words = sizeof(SourceHeader) / sizeof(uint32_t);
static_assert(sizeof(SourceHeader) % sizeof(uint32_t) == 0);

void append(std::vector<uint32_t>& words, std::span<const uint32_t> more) { words.insert(words.end(), more.begin(), more.end()); }

}  // namespace

int relay_of(const topology::Cluster& cluster, int source, int node) {
  if (cluster.node_of(source) == node) return source;
  return cluster.rank_at(node, cluster.local_of(source) % cluster.local_size(node));
}

std::vector<Rows> split_by_rank(const Rows& rows, const topology::Cluster& cluster, const ExpertMap& experts, int node) {
  const auto& owner = experts.owner_local(node);
  std::vector<Rows> split(cluster.members(node).size());
  rows.for_each([&](uint32_t token, std::span<const uint32_t> entries) {
    for (size_t first = 0, last = 0; first < entries.size(); first = last) {
      const uint16_t local = owner[Entry{entries[first]}.node_index()];
      while (last < entries.size() && owner[Entry{entries[last]}.node_index()] == local) ++last;
      split[local].add(token, entries.subspan(first, last - first));
    }
  });
  return split;
}

SourceMessages make_messages(const topology::Cluster& cluster, const ExpertMap& experts, int source,
                             const SourceHeader& header, const Routing& routing) {
  SourceMessages messages;
  messages.begin.assign(static_cast<size_t>(cluster.ranks()) + 1, 0);
  std::vector<std::vector<Rows>> split(static_cast<size_t>(cluster.nodes()));
  const bool good = header.problem == SourceHeader::none;
  for (int node = 0; good && node < cluster.nodes(); ++node)
    if (cluster.local_size(node) > 1)
      split[static_cast<size_t>(node)] = split_by_rank(routing.to_node(node), cluster, experts, node);
  for (int receiver = 0; receiver < cluster.ranks(); ++receiver) {
    const int node = cluster.node_of(receiver);
    const bool relays = relay_of(cluster, source, node) == receiver;
    static const Rows nothing;
    const Rows& rows = !good    ? nothing
                       : relays ? routing.to_node(node)
                                : split[static_cast<size_t>(node)][static_cast<size_t>(cluster.local_of(receiver))];
    SourceHeader with_rows = header;
    with_rows.row_count = rows.count();
    const size_t at = messages.words.size();
    messages.begin[static_cast<size_t>(receiver)] = at;
    messages.words.resize(at + header_words);
    std::memcpy(messages.words.data() + at, &with_rows, sizeof with_rows);
    if (!good) continue;
    for (const int member : cluster.members(node)) messages.words.push_back(routing.tokens_to(member));
    append(messages.words, routing.expert_entries(node));
    append(messages.words, rows.words());
  }
  messages.begin.back() = messages.words.size();
  return messages;
}

Result<SourceLayout> read_message(const topology::Cluster& cluster, const ExpertMap& experts, int source, int receiver,
                                  std::span<const uint32_t> words) {
  SourceLayout layout;
  if (words.size() < header_words)
    return error(Code::remote_error, "the layout message of rank {} is cut short: {} words", source, words.size());
  std::memcpy(static_cast<void*>(&layout.header), words.data(), sizeof layout.header);
  if (layout.header.problem != SourceHeader::none) return layout;
  const int node = cluster.node_of(receiver);
  const size_t locals = cluster.members(node).size(), node_experts = experts.node_size(node);
  if (words.size() < header_words + locals + node_experts)
    return error(Code::remote_error, "the layout message of rank {} is cut short: {} words", source, words.size());
  const auto tables = words.subspan(header_words);
  layout.rank_tokens.assign(tables.begin(), tables.begin() + static_cast<std::ptrdiff_t>(locals));
  layout.expert_entries.assign(tables.begin() + static_cast<std::ptrdiff_t>(locals),
                               tables.begin() + static_cast<std::ptrdiff_t>(locals + node_experts));
  auto rows = Rows::read(tables.subspan(locals + node_experts), layout.header.row_count, layout.header.tokens,
                         static_cast<uint32_t>(node_experts), layout.header.k);
  if (!rows.ok()) return std::move(rows).take_status().with_context(fmt::format("rank {}", source));
  layout.rows = std::move(rows).value();
  return layout;
}

}  // namespace epccl::ep
