// Where the buffers and the scratch of a node's ranks lie in a call, as this rank's device reaches them, and which ranks share its GPU.
#pragma once

#include <array>
#include <cstddef>

#include "base/status.hpp"
#include "runtime/engines/device_scratch.hpp"
#include "runtime/engines/gpu_sharing.hpp"
#include "runtime/executor/node_calls.hpp"
#include "runtime/queues/near_words.hpp"
#include "runtime/queues/queue_feed.hpp"
#include "runtime/queues/queue_program.hpp"
#include "transports/cuda_ipc/peer_memory.hpp"

namespace epccl::runtime {

/// What peers read or write of a rank's buffers, where a plan is direct.
struct PeersUse {
  bool inputs = true, outputs = true;
};

/// What follows about a call holds once its ranks have met. The thread of calls alone.
class PeerBuffers {
 public:
  PeerBuffers(device::Device& device, const topology::Cluster& cluster, int rank,
              transports::NodeMemory& node);
  PeerBuffers(const PeerBuffers&) = delete;
  PeerBuffers& operator=(const PeerBuffers&) = delete;

  // This rank's scratch, of calls on a device.
  Status make_scratch();
  bool has_scratch() const { return scratch_.is_made(); }
  /// Has the queue make its near words ready.
  Status clear_near_words(device::Queue& queue) { return scratch_.clear_near_words(queue); }
  std::byte* own_scratch(uint64_t sequence) const { return scratch_.of_call(scratch_.data(), sequence); }

  /// What calls on a device tell of it.
  const CallDevice& on();
  /// Peers' memory, mapped once for all who make calls.
  transports::PeerMemory& mapped() { return mapped_; }

  /// Whether peers map all that they use of the buffers: alike on all ranks.
  bool all_mapped(const PeersUse& use, uint64_t sequence) const;
  const GpuSharing& sharing(uint64_t sequence);
  bool is_on_one_gpu(uint64_t sequence) { return sharing(sequence).ranks == node_.local_size(); }

  /// Where this process finds a peer's buffer of a call.
  Result<std::byte*> address_of(int local, const transports::BufferRef& buffer, uint64_t sequence);
  /// To be held until the call is over.
  NearWords near_words(uint64_t sequence);
  /// All that queues need to make a call.
  Result<QueueCall> find(const Call& call, const QueueProgram& program, const Movers& movers);

 private:
  bool on_host() const { return device_.kind() == device::DeviceKind::host; }
  bool is_mapped(const transports::BufferRef& buffer) const;
  Result<std::byte*> base_of_scratch(int local, uint64_t sequence);
  Result<std::byte*> scratch_of(int local, const Call& call);
  Result<std::array<std::byte*, 3>> buffers_of(int local, const Call& call, const BufferUses& uses);
  device::SignalWord* near_words_of(int local, uint64_t sequence);

  device::Device& device_;
  const topology::Cluster& cluster_;
  const int rank_;
  transports::NodeMemory& node_;
  DeviceScratch scratch_;  // not of the host
  transports::PeerMemory mapped_;
  CallDevice on_;
  GpuSharing sharing_;  // of a GPU, once a call has told
};

}  // namespace epccl::runtime
