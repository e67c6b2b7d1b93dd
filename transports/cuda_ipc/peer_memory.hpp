// Memory of the other ranks of a node as addresses of this process, whatever device it is of: GPU memory through CUDA IPC or
// descriptors, the host's windows, and plain pointers between ranks that are threads of one process.
//
//   owner                                         peer
//   handle = offer(buffer, bytes)  --- any way -->  address_of(owner, handle, call)   mapped once, then looked up
//                                                   ... queues use the address in `call` ...
//   frees the buffer
//   handle = offer(any buffer)     ------------->   hear(owner, handles)              names what was freed last: let go when its calls are
//                                                                                     over, by a thread that holds up nobody
//   told(call, frees)                               heard(call)
//   readers_closed(call)           <-------------   closed()                          of what it had heard of by then nothing is open now
//   handle = offer(what lies there now)
//
// Where that cannot be offered before (memory of the user's, that CUDA IPC shares) offer() fails until then; else address_of() finds that
// the old is gone.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "transports/cuda_ipc/unmapper.hpp"

namespace epccl::transports {

class PeerMemory {
 public:
  /// `kept`: mappings of each peer that are kept, at least one; more are made, and the one not used longest gives way.
  PeerMemory(device::Device& device, int local_size, size_t kept = 64);

  device::Device& device() const { return device_; }

  /// What the peers need. Plain bytes.
  Result<device::MemoryHandle> offer(const void* buffer, uint64_t bytes) const;

  // As owner: what peers have closed, so that what lies there now can be offered. Where nobody says, it cannot.

  /// The other processes that are given what is offered; before, it is whoever.
  void set_readers(std::vector<pid_t> processes) { readers_ = std::move(processes); }
  /// Peers hear in this call of so many frees.
  void told(uint64_t call, uint64_t frees);
  /// All of them have closed what they had heard of by that call.
  void readers_closed(uint64_t call);

  // As reader.

  uint64_t frees_heard(int local) const { return peers_[static_cast<size_t>(local)].frees; }
  /// What a peer's handles of one call tell of frees.
  void hear(int local, std::span<const device::MemoryHandle* const> handles);
  /// All ranks have met in this call, and what their handles tell has been heard.
  void heard(uint64_t call);
  /// The last call of which all is closed, in the whole process, that had been heard of by then; 0: none.
  uint64_t closed();

  /// Where this process finds `bytes` bytes of a peer's buffer. `call` counts this rank's calls: the address holds until
  /// calls_over() says that this call is through.
  Result<std::byte*> address_of(int local, const device::MemoryHandle& handle, uint64_t bytes, uint64_t call);

  /// The work of all calls up to this one is through: what only they used may be unmapped. Does not wait for that.
  void calls_over(uint64_t call);

  /// Mappings that calls use or may use again.
  size_t mappings() const;

 private:
  struct Mapping {
    uint64_t base, size, generation;
    std::unique_ptr<device::MappedMemory> memory;
    uint64_t offset;  // of memory->data() in the allocation
    uint64_t last_call;
  };
  using Mappings = std::vector<Mapping>;
  struct Peer {
    Mappings mappings;
    uint64_t frees = 0;         // of its, as far as it has told
    device::MemoryHandle news;  // the handle that did
  };

  static bool is_of(const Mapping& mapping, const device::MemoryHandle& handle) {
    return mapping.base == handle.base && mapping.generation == handle.generation;
  }
  using Handles = std::span<const device::MemoryHandle* const>;
  void retire_what_is_gone(Peer& peer, Handles handles);
  /// The one after it.
  Mappings::iterator retire(Mappings& of_peer, Mappings::iterator mapping);
  void let_go(Mapping& mapping) { unmapper_.end(std::move(mapping.memory)); }
  void make_room(Mappings& of_peer);

  device::Device& device_;
  const size_t kept_;
  std::vector<Peer> peers_;
  Mappings retired_;
  uint64_t over_ = 0;
  uint64_t heard_ = 0, closed_ = 0;
  struct Told {
    uint64_t call = 0, frees = 0;
    bool was_heard = false;
  };
  Told told_;  // what peers are to close next; none: no more than they have
  uint64_t closed_by_readers_ = 0;
  std::optional<std::vector<pid_t>> readers_;
  Unmapper unmapper_;
};

/// One buffer of each rank of a node, exchanged once: scratch, or windows that all register together.
class SharedBuffers {
 public:
  /// `handles`: what each rank offered, by local position. They stay mapped while this lives.
  static Result<SharedBuffers> map(device::Device& device, const std::vector<device::MemoryHandle>& handles);

  std::byte* address(int local) const { return mapped_[static_cast<size_t>(local)]->data(); }
  uint64_t bytes(int local) const { return mapped_[static_cast<size_t>(local)]->bytes(); }
  int count() const { return static_cast<int>(mapped_.size()); }

 private:
  std::vector<std::unique_ptr<device::MappedMemory>> mapped_;
};

}  // namespace epccl::transports
