#include "ep/placement/slot_choice.hpp"

#include <algorithm>
#include <numeric>

namespace epccl::ep {

SlotChooser::SlotChooser(const topology::Cluster& cluster, int slots_per_rank, std::span<const int> placement,
                         int experts, int rank, SlotChoice choice)
    : first_(static_cast<size_t>(experts) + 1), rank_(static_cast<uint32_t>(rank)) {
  const auto distance = [&](int slot) {
    const int holder = slot / slots_per_rank;
    if (choice == SlotChoice::even || holder == rank) return 0;
    return cluster.same_node(holder, rank) ? 1 : 2;
  };
  std::vector<std::vector<int>> holders(static_cast<size_t>(experts));
  for (size_t slot = 0; slot < placement.size(); ++slot)
    if (placement[slot] >= 0) holders[static_cast<size_t>(placement[slot])].push_back(static_cast<int>(slot));
  for (size_t expert = 0; expert < holders.size(); ++expert) {
    const auto& all = holders[expert];
    const int nearest = all.empty() ? 0 : distance(*std::ranges::min_element(all, {}, distance));
    std::ranges::copy_if(all, std::back_inserter(slots_),
                         [&](int slot) { return distance(slot) == nearest; });
    first_[expert + 1] = static_cast<uint32_t>(slots_.size());
  }
}

template <typename Index>
Status SlotChooser::choose(std::span<const Index> table, std::span<Index> slots) {
  const size_t experts = first_.size() - 1;
  next_.resize(experts);
  for (size_t expert = 0; expert < experts; ++expert) {
    const uint32_t copies = first_[expert + 1] - first_[expert];
    // Other copies for ranks that follow each other, and for every second one, where the others have no tokens.
    next_[expert] = copies == 0 ? 0 : static_cast<int>((rank_ + rank_ / copies) % copies);
  }
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i] == -1) {
      slots[i] = -1;
      continue;
    }
    if (table[i] < 0 || static_cast<uint64_t>(table[i]) >= experts)
      return error(Code::invalid_argument, "entry {} of topk_idx is expert {}, of {}", i, table[i], experts);
    const auto expert = static_cast<size_t>(table[i]);
    const auto copies = static_cast<int>(first_[expert + 1] - first_[expert]);
    if (copies == 0)
      return error(Code::invalid_argument, "entry {} of topk_idx is expert {}, of which no slot has a copy",
                   i, expert);
    slots[i] = static_cast<Index>(slots_[first_[expert] + static_cast<size_t>(next_[expert])]);
    if (++next_[expert] == copies) next_[expert] = 0;
  }
  return {};
}

template Status SlotChooser::choose<int32_t>(std::span<const int32_t>, std::span<int32_t>);
template Status SlotChooser::choose<int64_t>(std::span<const int64_t>, std::span<int64_t>);

}  // namespace epccl::ep
