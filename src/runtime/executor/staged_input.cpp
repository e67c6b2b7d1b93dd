#include "runtime/executor/staged_input.hpp"

#include <unistd.h>

#include "device/host/host_copy.hpp"

namespace epccl::runtime {
namespace {

constexpr uint64_t page = 4 << 10;

// Ranks that are threads of one process have the same addresses.
bool peers_share_addresses(const transports::NodeMemory& node) {
  for (int local = 0; local < node.local_size(); ++local)
    if (node.pid(local) != getpid()) return false;
  return true;
}

}  // namespace

std::optional<transports::BufferRef> stage_input(const transports::NodeMemory& node, const CompiledPlan& plan,
                                                 const Call& call) {
  const plan::Extent& offered = plan.offered;
  if (offered.empty() || node.my_call(call.sequence).inputs[0].has_window != 0) return std::nullopt;
  const uint64_t begin = (plan.scratch_bytes + page - 1) / page * page;
  const uint64_t room = node.scratch_bytes(call.scratch());
  if (begin > room || offered.end > room - begin || peers_share_addresses(node)) return std::nullopt;
  std::byte* const staged = node.scratch(node.local(), call.scratch()) + begin;
  // Past the cache: a core that writes what another one has read waits for each line to become its own, 2 to 9 GB/s where stores
  // past the cache make 30.
  device::copy_bytes(staged + offered.begin, static_cast<const std::byte*>(call.input) + offered.begin,
                     offered.end - offered.begin, true);
  return node.describe_in_segment(staged, offered.end);
}

}  // namespace epccl::runtime
