#include "ep/routing/entry_sorter.hpp"

#include <algorithm>

#include "device/host/index_lists.hpp"

namespace epccl::ep {

EntrySorter::EntrySorter(const topology::Cluster& cluster, const ExpertMap& experts)
    : cluster_(cluster), experts_(experts), many_nodes_(cluster.nodes() > 64) {
  targets_.reserve(experts.experts() + 1);
  targets_.push_back({static_cast<uint32_t>(cluster.ranks()), 0, 0});
  for (uint32_t expert = 0; expert < experts.experts(); ++expert) {
    const ExpertMap::Place& place = experts.place(expert);
    targets_.push_back({static_cast<uint32_t>(place.rank),
                        Entry::of(place.node_index - experts.first(place.rank), 0, false).word,
                        many_nodes_ ? 0 : uint64_t{1} << place.node});
  }
}

std::optional<size_t> EntrySorter::read(const TopK& topk) {
  tokens_ = topk.tokens;
  k_ = topk.k;
  const auto wrong = topk.wide ? number(static_cast<const int64_t*>(topk.data))
                               : number(static_cast<const int32_t*>(topk.data));
  if (wrong) return wrong;
  count();
  if (many_nodes_) list_tokens_of_many_nodes();
  return {};
}

template <typename Id>
std::optional<size_t> EntrySorter::number(const Id* table) {
  const std::span ids(table, size_t{tokens_} * k_);
  if (device::number_from_one(ids, experts_.experts(), numbers_.reserve(ids.size()))) return {};
  const auto last = static_cast<Id>(experts_.experts() - 1);
  const auto wrong = std::ranges::find_if(ids, [last](Id id) { return id < -1 || id > last; });
  return static_cast<size_t>(wrong - ids.begin());
}

// (Local copies: counters, for all the compiler knows, might be the members.)
void EntrySorter::count() {
  entries_.assign(targets_.size(), 0);
  uint32_t* entries = entries_.data();
  uint64_t* nodes_of_token = nodes_.reserve(tokens_);
  const Target* targets = targets_.data();
  const uint32_t* next = numbers_.data();
  const uint32_t tokens = tokens_, k = k_;
  for (uint32_t token = 0; token < tokens; ++token) {
    uint64_t nodes = 0;
    for (uint32_t position = 0; position < k; ++position) {
      const uint32_t number = *next++;
      ++entries[number];
      nodes |= targets[number].node_bit;
    }
    nodes_of_token[token] = nodes;
  }
}

void EntrySorter::sort() {
  rank_begin_.assign(static_cast<size_t>(cluster_.ranks()) + 2, 0);
  for (size_t number = 0; number < targets_.size(); ++number)
    rank_begin_[targets_[number].rank + 1] += entries_[number];
  for (size_t rank = 1; rank < rank_begin_.size(); ++rank) rank_begin_[rank] += rank_begin_[rank - 1];
  words_.reserve(rank_begin_.back());
  std::vector<uint64_t*> ends;
  for (const size_t begin : rank_begin_) ends.push_back(words_.data() + begin);
  uint64_t** end = ends.data();
  const Target* targets = targets_.data();
  const uint32_t* next = numbers_.data();
  const uint32_t tokens = tokens_, k = k_;
  for (uint32_t token = 0; token < tokens; ++token)
    for (uint32_t position = 0; position < k; ++position) {
      const Target& target = targets[*next++];
      *end[target.rank]++ = uint64_t{token} << 32 | target.word | Entry::of(0, position, false).word;
    }
}

size_t EntrySorter::list_tokens(int node, uint32_t* to) const {
  const auto n = static_cast<size_t>(node);
  if (!many_nodes_)
    return device::indices_with_bit({nodes_.data(), tokens_}, static_cast<unsigned>(node), to);
  std::copy_n(node_tokens_.data() + node_begin_[n], node_count_[n], to);
  return node_count_[n];
}

// Every list is written at its own end, without branches: where a token goes is as good as random.
void EntrySorter::list_tokens_of_many_nodes() {
  std::vector<size_t> room(static_cast<size_t>(cluster_.nodes()) + 1, 0);
  for (uint32_t expert = 0; expert < experts_.experts(); ++expert)
    room[static_cast<size_t>(experts_.place(expert).node)] += entries_of(expert);
  node_begin_.clear();
  size_t places = 0;
  for (const size_t entries : room) {
    node_begin_.push_back(places);
    places += std::min<size_t>(entries, tokens_) + 1;  // the place after the end is written, too
  }
  node_tokens_.resize(places);
  node_count_.assign(room.size(), 0);
  std::vector<uint32_t> last(room.size(), UINT32_MAX);
  const uint32_t* next = numbers_.data();
  for (uint32_t token = 0; token < tokens_; ++token)
    for (uint32_t position = 0; position < k_; ++position) {
      const uint32_t number = *next++;
      if (number == 0) continue;
      const auto node = static_cast<size_t>(experts_.place(number - 1).node);
      node_tokens_[node_begin_[node] + node_count_[node]] = token;
      node_count_[node] += last[node] != token ? 1 : 0;
      last[node] = token;
    }
}

}  // namespace epccl::ep
