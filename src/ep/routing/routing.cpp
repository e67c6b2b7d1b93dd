#include "ep/routing/routing.hpp"

#include <algorithm>

#include "device/host/index_lists.hpp"

namespace epccl::ep {
namespace {

/// Words that all lists together have, at most.
size_t most_words(const topology::Cluster& cluster, const ExpertMap& experts, const TopK& topk) {
  const auto nodes = static_cast<size_t>(cluster.nodes());
  const size_t node_tokens = std::min(nodes * topk.tokens, topk.size());
  // Lists of tokens may be written on behind their end.
  return static_cast<size_t>(cluster.ranks()) + experts.experts() + node_tokens + topk.tokens +
         2 * topk.size();
}

}  // namespace

void Routing::read(const TopK& topk) {
  wrong_ = sorter_.read(topk);
  if (wrong_) return;
  sorter_.sort();
  uint32_t* const words = words_.reserve(most_words(cluster_, experts_, topk));
  uint32_t* end = words;
  begin_.clear();
  ranks_.resize(static_cast<size_t>(cluster_.ranks()));
  const auto begin_part = [&] { begin_.push_back(static_cast<size_t>(end - words)); };
  for (int node = 0; node < cluster_.nodes(); ++node) {
    begin_part();
    uint32_t* rank_tokens = end;
    end += cluster_.local_size(node);
    begin_part();
    for (const uint32_t expert : experts_.node_experts(node)) *end++ = sorter_.entries_of(expert);
    begin_part();
    end += sorter_.list_tokens(node, end);
    begin_part();
    for (const int member : cluster_.members(node)) {
      const auto entries = sorter_.to_rank(member);
      uint32_t* tokens = end + entries.size();
      Place& place = ranks_[static_cast<size_t>(member)];
      place = {static_cast<size_t>(end - words), static_cast<uint32_t>(entries.size()),
               static_cast<uint32_t>(device::split_runs(entries, end, tokens))};
      *rank_tokens++ = place.tokens;
      end = tokens + place.tokens;
    }
  }
  begin_part();
}

}  // namespace epccl::ep
