#include "transports/cuda_ipc/peer_memory.hpp"

#include <algorithm>

namespace epccl::transports {
namespace {

/// Whether the last `count` frees that the handle tells of may be the end of what has this generation.
bool may_have_freed(const device::MemoryHandle& handle, uint64_t count, uint64_t generation) {
  const uint64_t most = handle.freed.size();
  if (count > most) return true;  // more than it can name
  for (uint64_t n = handle.frees - count; n < handle.frees; ++n)
    if (handle.freed[n % most] == generation) return true;
  return false;
}

}  // namespace

PeerMemory::PeerMemory(device::Device& device, int local_size, size_t kept)
    : device_(device), kept_(std::max<size_t>(kept, 1)), peers_(static_cast<size_t>(local_size)) {}

Result<device::MemoryHandle> PeerMemory::offer(const void* buffer, uint64_t bytes) const {
  return device_.export_memory(buffer, bytes, readers_ ? &*readers_ : nullptr);
}

// One thing at a time is waited for: what is freed meanwhile is told when that is through. In a call that does not tell it nobody hears it.
void PeerMemory::told(uint64_t call, uint64_t frees) {
  if (frees < told_.frees && !told_.was_heard) told_ = {};
  if (told_.frees <= closed_by_readers_ && frees > closed_by_readers_) told_ = {call, frees, false};
}

void PeerMemory::readers_closed(uint64_t call) {
  if (call < told_.call || told_.frees <= closed_by_readers_ || !readers_) return;
  closed_by_readers_ = told_.frees;
  for (const pid_t reader : *readers_) device_.closed_by(reader, told_.frees);
}

void PeerMemory::hear(int local, Handles handles) {
  retire_what_is_gone(peers_[static_cast<size_t>(local)], handles);
}

void PeerMemory::heard(uint64_t call) {
  heard_ = std::max(heard_, call);
  told_.was_heard |= told_.call <= call;
}

uint64_t PeerMemory::closed() {
  const auto has_closed = [this](const Peer& peer) {
    return peer.frees == 0 || device_.has_closed_what_was_freed(peer.news);
  };
  if (std::ranges::all_of(peers_, has_closed)) closed_ = heard_;
  return closed_;
}

Result<std::byte*> PeerMemory::address_of(int local, const device::MemoryHandle& handle, uint64_t bytes,
                                          uint64_t call) {
  if (handle.offset > handle.size || bytes > handle.size - handle.offset)
    return error(Code::remote_error, "local rank {} offers {} bytes at {} of an allocation of {}", local,
                 bytes, handle.offset, handle.size);
  Peer& peer = peers_[static_cast<size_t>(local)];
  Mappings& known = peer.mappings;
  const auto find = [&] {
    return std::ranges::find_if(known, [&](const Mapping& mapping) { return is_of(mapping, handle); });
  };
  auto found = find();
  // As a rule it is there, and tells nothing new.
  if (found == known.end() || handle.frees > peer.frees) {
    const device::MemoryHandle* const handles[] = {&handle};
    retire_what_is_gone(peer, handles);
    found = find();
  }
  if (found == known.end()) {
    auto mapped = device_.import_memory(handle);
    if (!mapped.ok())
      return std::move(mapped).take_status().with_context(fmt::format("memory of local rank {}", local));
    make_room(known);
    known.push_back(
        {handle.base, handle.size, handle.generation, std::move(mapped).value(), handle.offset, call});
    found = std::prev(known.end());
  }
  found->last_call = call;
  return found->memory->data() - found->offset + handle.offset;
}

// An allocation begins where it likes in the addresses of those that were freed. Where a peer has freed more since its last handle than
// one names, all that it can have been goes, and what is still used is mapped again. Handles that were made early are used late, so frees
// may seem to shrink.
void PeerMemory::retire_what_is_gone(Peer& peer, Handles handles) {
  const auto* const latest =
      *std::ranges::max_element(handles, {}, [](const auto* handle) { return handle->frees; });
  const uint64_t frees = latest->frees - std::min(peer.frees, latest->frees);
  if (frees > 0) {
    peer.news = *latest;
    device_.hear_of_frees(*latest, handles);
  }
  peer.frees += frees;
  const auto is_gone = [&](const Mapping& mapping) {
    if (std::ranges::any_of(handles, [&](const auto* handle) { return is_of(mapping, *handle); }))
      return false;
    return may_have_freed(*latest, frees, mapping.generation) ||
           std::ranges::any_of(handles, [&](const auto* handle) {
             return mapping.base < handle->base + handle->size && handle->base < mapping.base + mapping.size;
           });
  };
  for (auto it = peer.mappings.begin(); it != peer.mappings.end();)
    it = is_gone(*it) ? retire(peer.mappings, it) : std::next(it);
}

PeerMemory::Mappings::iterator PeerMemory::retire(Mappings& of_peer, Mappings::iterator mapping) {
  if (mapping->last_call > over_)
    retired_.push_back(std::move(*mapping));
  else
    let_go(*mapping);
  return of_peer.erase(mapping);
}

void PeerMemory::make_room(Mappings& of_peer) {
  while (of_peer.size() >= kept_) retire(of_peer, std::ranges::min_element(of_peer, {}, &Mapping::last_call));
}

void PeerMemory::calls_over(uint64_t call) {
  over_ = std::max(over_, call);
  std::erase_if(retired_, [this](Mapping& mapping) {
    if (mapping.last_call > over_) return false;
    let_go(mapping);
    return true;
  });
}

size_t PeerMemory::mappings() const {
  size_t count = retired_.size();
  for (const Peer& peer : peers_) count += peer.mappings.size();
  return count;
}

Result<SharedBuffers> SharedBuffers::map(device::Device& device,
                                         const std::vector<device::MemoryHandle>& handles) {
  SharedBuffers buffers;
  for (size_t local = 0; local < handles.size(); ++local) {
    auto mapped = device.import_memory(handles[local]);
    if (!mapped.ok())
      return std::move(mapped).take_status().with_context(fmt::format("memory of local rank {}", local));
    buffers.mapped_.push_back(std::move(mapped).value());
  }
  return buffers;
}

}  // namespace epccl::transports
