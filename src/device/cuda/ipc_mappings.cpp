#include "device/cuda/ipc_mappings.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "device/cuda/identity.hpp"
#include "device/held_streams.hpp"

namespace epccl::device::cuda {
namespace {

/// What the driver may have open, of all GPUs of this process, and what of it was freed.
class Openings {
 public:
  static Openings& of_process() {
    static auto* const instance = new Openings;  // NOLINT: mappings may end after static objects
    return *instance;
  }
  uint64_t begin(const MemoryHandle& handle) {
    const std::lock_guard lock(mutex_);
    all_.push_back({++last_, exporter_of(handle), handle.generation, false});
    return last_;
  }
  void end(uint64_t number) {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [number](const Opening& each) { return each.number == number; });
  }
  void hear_of_frees(const MemoryHandle& handle, std::span<const MemoryHandle* const> alive) {
    const std::lock_guard lock(mutex_);
    const Exporter exporter = exporter_of(handle);
    uint64_t& heard = heard_[exporter];
    if (handle.frees <= heard) return;
    const uint64_t count = handle.frees - std::exchange(heard, handle.frees), named = handle.freed.size();
    const auto may_be_freed = [&](uint64_t generation) {
      for (uint64_t n = handle.frees - std::min(count, named); n < handle.frees; ++n)
        if (handle.freed[n % named] == generation) return true;
      return count > named && std::ranges::none_of(alive, [generation](const MemoryHandle* each) {
               return each->generation == generation;
             });
    };
    for (Opening& each : all_)
      if (each.exporter == exporter && may_be_freed(each.generation)) each.is_freed = true;
  }
  bool has_closed_what_was_freed(const MemoryHandle& by) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::none_of(all_, [exporter = exporter_of(by)](const Opening& each) {
      return each.is_freed && each.exporter == exporter;
    });
  }

 private:
  using Exporter = std::pair<uint64_t, int>;  // process, GPU
  struct Opening {
    uint64_t number;
    Exporter exporter;
    uint64_t generation;
    bool is_freed;
  };
  static Exporter exporter_of(const MemoryHandle& handle) {
    return {process_of(handle.generation), handle.ordinal};
  }

  mutable std::mutex mutex_;
  std::vector<Opening> all_;
  std::map<Exporter, uint64_t> heard_;  // MemoryHandle::frees
  uint64_t last_ = 0;
};

}  // namespace

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
  mapping.opening = Openings::of_process().begin(handle);
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
  if (!status.ok()) {
    Openings::of_process().end(mapping.opening);
    return status;
  }
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
  }
  HeldStreams::when_none([this, mapping = std::move(mapping)] {
    const std::lock_guard lock(mutex_);
    if (!mapping->is_closed) close(*mapping);
    std::erase(open_, mapping);
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
  Openings::of_process().end(mapping.opening);
}

void hear_of_frees(const MemoryHandle& handle, std::span<const MemoryHandle* const> alive) {
  Openings::of_process().hear_of_frees(handle, alive);
}

bool has_closed_what_was_freed(const MemoryHandle& by) {
  return Openings::of_process().has_closed_what_was_freed(by);
}

}  // namespace epccl::device::cuda
