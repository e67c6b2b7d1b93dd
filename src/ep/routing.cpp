#include "ep/routing.hpp"

#include <algorithm>
#include <utility>

namespace epccl::ep {

Result<Rows> Rows::read(std::span<const uint32_t> words, uint32_t count, uint32_t tokens, uint32_t node_experts, uint32_t k) {
  const auto broken = [](const char* what) { return error(Code::remote_error, "a layout message is damaged: {}", what); };
  Rows rows;
  int64_t last = -1;
  size_t at = 0;
  for (; at < words.size() && rows.count_ < count; ++rows.count_) {
    const uint32_t token = words[at] >> 6, entries = (words[at] & 63) + 1;
    if (token >= tokens || token <= last) return broken("tokens do not ascend");
    if (at + 1 + entries > words.size()) return broken("a row is cut short");
    for (const uint32_t word : words.subspan(at + 1, entries))
      if (Entry{word}.node_index() >= node_experts || Entry{word}.k() >= k) return broken("an entry names no expert");
    last = token;
    at += 1 + entries;
  }
  if (at != words.size() || rows.count_ != count) return broken("it has another number of rows than it says");
  rows.words_.assign(words.begin(), words.end());
  return rows;
}

Routing Routing::make(const topology::Cluster& cluster, const ExpertMap& experts, const TopK& topk) {
  const auto nodes = static_cast<size_t>(cluster.nodes());
  Routing routing;
  routing.by_node_.resize(nodes);
  routing.rank_tokens_.resize(static_cast<size_t>(cluster.ranks()));
  routing.expert_entries_.resize(nodes);
  for (size_t node = 0; node < nodes; ++node) routing.expert_entries_[node].resize(experts.node_size(static_cast<int>(node)));

  // The open row of each node, and for each rank the last token that had it: + 1, so that 0 is none.
  std::vector<size_t> row_at(nodes);
  std::vector<uint32_t> node_seen(nodes), rank_seen(routing.rank_tokens_.size());
  for (Rows& rows : routing.by_node_) rows.words_.reserve(size_t{topk.tokens} * (std::min<size_t>(topk.k, 3) + 1));
  for (uint32_t token = 0; token < topk.tokens; ++token) {
    for (uint32_t k = 0; k < topk.k; ++k) {
      const int64_t expert = topk.at(size_t{token} * topk.k + k);
      if (expert == -1) continue;
      const ExpertMap::Place& place = experts.place(static_cast<uint32_t>(expert));
      const auto node = static_cast<size_t>(place.node), rank = static_cast<size_t>(place.rank);
      Rows& rows = routing.by_node_[node];
      if (node_seen[node] != token + 1) {
        node_seen[node] = token + 1;
        row_at[node] = rows.words_.size();
        rows.words_.push_back((token << 6) - 1);
        ++rows.count_;
      }
      if (std::exchange(rank_seen[rank], token + 1) != token + 1) ++routing.rank_tokens_[rank];
      ++routing.expert_entries_[node][place.node_index];
      // Into its place among the row's entries.
      rows.words_.push_back(Entry::of(place.node_index, k).word);
      for (size_t i = rows.words_.size() - 1; i > row_at[node] + 1 && rows.words_[i - 1] > rows.words_[i]; --i)
        std::swap(rows.words_[i - 1], rows.words_[i]);
      ++rows.words_[row_at[node]];
    }
  }
  return routing;
}

}  // namespace epccl::ep
