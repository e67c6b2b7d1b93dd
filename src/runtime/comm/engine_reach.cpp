#include "runtime/comm/engine_reach.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace epccl::runtime {
namespace {

constexpr uint64_t trial_bytes = 4096;

/// What a rank tells the others: as it is in memory, so plain bytes.
struct Verdict {
  device::MemoryHandle memory;
  char why_not[256] = {};  // empty: it can

  void refuse(const Status& status) {
    if (status.ok() || why_not[0] != 0) return;
    status.message().copy(why_not, sizeof why_not - 1);
    if (why_not[0] == 0) why_not[0] = '?';
  }
};

using Verdicts = std::vector<Verdict>;

Status tell(Communicator& communicator, const Verdict& mine, Verdicts& all) {
  all.assign(static_cast<size_t>(communicator.ranks()), Verdict{});
  return communicator.tell_all(&mine, sizeof mine, reinterpret_cast<std::byte*>(all.data()),
                               "whether copy engines reach all ranks");
}

EngineReach sum_up(const Verdicts& all) {
  const auto refuses = [](const Verdict& one) { return one.why_not[0] != 0; };
  const auto first = std::ranges::find_if(all, refuses);
  if (first == all.end()) return {true, ""};
  return {false, fmt::format("rank {}: {}", first - all.begin(), first->why_not)};
}

Status check_settings(const Communicator& communicator) {
  if (communicator.cluster().nodes() > 1)
    return error(Code::invalid_usage, "there are {} nodes", communicator.cluster().nodes());
  if (communicator.engine_use() == EngineUse::never)
    return {Code::invalid_usage, "the copy engine is never to be used"};
  return {};
}

Status map_others(device::Device& device, int rank, const Verdicts& all) {
  for (size_t other = 0; other < all.size(); ++other) {
    if (other == static_cast<size_t>(rank)) continue;
    const auto mapped = device.import_memory(all[other].memory);
    if (!mapped.ok()) return Status(mapped.status()).with_context(fmt::format("memory of rank {}", other));
  }
  return {};
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

}  // namespace

Result<EngineReach> find_engine_reach(Communicator& communicator, const Result<device::Device*>& mine) {
  TrialMemory memory;  // until all have mapped it
  Verdict verdict;
  verdict.refuse(check_settings(communicator));
  verdict.refuse(mine.status());
  if (verdict.why_not[0] == 0) {
    auto handle = memory.allocate(**mine);
    verdict.refuse(handle.status());
    if (handle.ok()) verdict.memory = *handle;
  }
  Verdicts all;
  EPCCL_TRY(tell(communicator, verdict, all));
  if (EngineReach known = sum_up(all); !known.is_enough) return known;
  verdict.refuse(map_others(**mine, communicator.rank(), all));
  EPCCL_TRY(tell(communicator, verdict, all));
  return sum_up(all);
}

}  // namespace epccl::runtime
