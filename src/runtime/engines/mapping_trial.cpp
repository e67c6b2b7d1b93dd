#include "runtime/engines/mapping_trial.hpp"

#include <algorithm>

namespace epccl::runtime {
namespace {

constexpr uint64_t trial_bytes = 4096;

void refuse(TrialWord& word, const Status& status) {
  if (status.ok() || word.why_not[0] != 0) return;
  status.message().copy(word.why_not, sizeof word.why_not - 1);
  if (word.why_not[0] == 0) word.why_not[0] = '?';
}

std::string sum_up(const std::vector<TrialWord>& all) {
  const auto first = std::ranges::find_if(all, [](const TrialWord& word) { return word.why_not[0] != 0; });
  return first == all.end() ? "" : fmt::format("rank {}: {}", first - all.begin(), first->why_not);
}

/// Memory for the length of a trial.
class TrialMemory {
 public:
  TrialMemory() = default;
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  ~TrialMemory() {
    if (address_ != nullptr) static_cast<void>(device_->free(address_));
  }
  Result<device::MemoryHandle> allocate(device::Device& device) {
    EPCCL_ASSIGN(address_, device.allocate(device::MemoryKind::shareable, trial_bytes));
    device_ = &device;
    return device.export_memory(address_, trial_bytes);
  }

 private:
  device::Device* device_ = nullptr;
  void* address_ = nullptr;
};

Status map_neighbours(const topology::Cluster& cluster, int rank, device::Device& device,
                      const std::vector<TrialWord>& all) {
  for (int other = 0; other < cluster.ranks(); ++other) {
    const TrialWord& theirs = all[static_cast<size_t>(other)];
    if (other == rank || !cluster.same_node(other, rank) || theirs.has_memory == 0) continue;
    if (const auto mapped = device.import_memory(theirs.memory); !mapped.ok())
      return Status(mapped.status())
          .with_context(fmt::format("GPU {} cannot map memory of GPU {} of rank {}", device.ordinal(),
                                    theirs.memory.ordinal, other));
  }
  return {};
}

}  // namespace

Result<std::string> try_mapping(const topology::Cluster& cluster, int rank,
                                const Result<device::Device*>& mine, const TellAll& tell) {
  TrialMemory memory;  // until all have mapped it
  TrialWord word;
  refuse(word, mine.status());
  if (mine.ok() && *mine != nullptr) {
    auto handle = memory.allocate(**mine);
    refuse(word, handle.status());
    if (handle.ok()) word.memory = *handle, word.has_memory = 1;
  }
  std::vector<TrialWord> all;
  EPCCL_TRY(tell(word, all));
  if (std::string why_not = sum_up(all); !why_not.empty()) return why_not;
  if (word.has_memory != 0) refuse(word, map_neighbours(cluster, rank, **mine, all));
  EPCCL_TRY(tell(word, all));
  return sum_up(all);
}

}  // namespace epccl::runtime
