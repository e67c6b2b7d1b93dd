#include "device/cuda/ipc_mappings.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "device/cuda/identity.hpp"
#include "device/held_streams.hpp"

namespace epccl::device::cuda {

Result<std::shared_ptr<const IpcMappings::Mapping>> IpcMappings::open(const MemoryHandle& handle) {
  Mapping mapping{process_of(handle.generation), handle.base, handle.size, handle.generation};
  CUipcMemHandle ipc{};
  std::memcpy(&ipc, handle.opaque.data(), sizeof ipc);
  // An exporter has one allocation at an address at a time: of two that overlap, one was freed. Where that did not do, the driver counts
  // what lies around, too.
  const std::array<IsMeant, 2> in_the_way{
      [&](const Mapping& it) {
        return it.process == mapping.process && it.generation != mapping.generation &&
               it.base < mapping.base + mapping.size && mapping.base < it.base + it.size;
      },
      [&](const Mapping& it) { return it.process == mapping.process && !it.is_used; }};
  EPCCL_CURRENT(context_);
  const auto lock = lock_as_a_call(mutex_, "the opening or closing of other memory by another thread");
  CUresult result = CUDA_SUCCESS;
  const auto attempt = [&] {
    return context_.call_for(result, context_.driver().ipc_open, &mapping.at, ipc,
                             static_cast<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  };
  Status status = attempt();
  for (const IsMeant& is_meant : in_the_way) {
    if (result != CUDA_ERROR_ALREADY_MAPPED) break;
    close_all(is_meant);
    status = attempt();
  }
  EPCCL_TRY(std::move(status));
  return std::shared_ptr<const Mapping>(open_.emplace_back(std::make_shared<Mapping>(mapping)));
}

void IpcMappings::end(std::shared_ptr<const Mapping> ended) {
  std::shared_ptr<Mapping> mapping;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(open_, [&](const auto& it) { return it == ended; });
    if (found == open_.end()) return;  // closed to make room for another
    mapping = *found;
    mapping->is_used = false;
    closing_.fetch_add(1, std::memory_order_relaxed);
  }
  HeldStreams::when_none([this, mapping = std::move(mapping)] {
    const std::lock_guard lock(mutex_);
    if (!mapping->is_closed) close(*mapping);
    std::erase(open_, mapping);
    closing_.fetch_sub(1, std::memory_order_release);
  });
}

/// The mutex is held, and as a rule the stream of the call that needs the room.
void IpcMappings::close_all(const IsMeant& is_meant) {
  const HeldStreams::Quiet quiet(HeldStreams::Quiet::Waits::not_at_all);
  std::erase_if(open_, [&](const std::shared_ptr<Mapping>& mapping) {
    if (!is_meant(*mapping)) return false;
    close(*mapping);
    return true;
  });
}

/// The mutex is held.
void IpcMappings::close(Mapping& mapping) {
  const CurrentContext current(context_);
  context_.driver().ipc_close(mapping.at);
  mapping.is_closed = true;
}

}  // namespace epccl::device::cuda
