#include "runtime/engines/peer_buffers.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace epccl::runtime {

PeerBuffers::PeerBuffers(device::Device& device, const topology::Cluster& cluster, int rank,
                         transports::NodeMemory& node)
    : device_(device),
      cluster_(cluster),
      rank_(rank),
      node_(node),
      scratch_(device, node.local_size()),
      mapped_(device, node.local_size()),
      on_{&device, &mapped_} {}

// A call uses one part of it, and the calls before and after it others, as with the host's scratch.
Status PeerBuffers::make_scratch() {
  EPCCL_TRY(scratch_.make(node_.segment().spec().scratch_bytes, transports::call_halves));
  mapped_.set_readers(node_.other_processes());
  on_.scratch = describe_on(mapped_, scratch_.data(), scratch_.bytes());
  return {};
}

// A rank that has near words says so by how long its scratch is.
const CallDevice& PeerBuffers::on() {
  if (scratch_.has_near_words()) on_.scratch.bytes = scratch_.bytes_with_near_words();
  return on_;
}

// Of all ranks, so that all find the same.
bool PeerBuffers::all_mapped(const PeersUse& use, uint64_t sequence) const {
  for (int local = 0; local < node_.local_size(); ++local) {
    const transports::CallRecord& record = node_.call(local, sequence);
    if (use.inputs && !is_mapped(record.inputs[0])) return false;
    if (use.outputs && !is_mapped(record.outputs[0])) return false;
  }
  return true;
}

bool PeerBuffers::is_mapped(const transports::BufferRef& buffer) const {
  if (buffer.bytes == 0 || (on_host() ? buffer.has_window : buffer.has_memory) != 0) return true;
  return node_.is_one_process();
}

// By where their scratch lies, which every call on a GPU tells, and which stays.
const GpuSharing& PeerBuffers::sharing(uint64_t sequence) {
  if (on_host() || !sharing_.here.empty()) return sharing_;
  std::vector<RankPlace> places;
  for (int local = 0; local < node_.local_size(); ++local) {
    const transports::BufferRef& scratch = node_.call(local, sequence).scratch;
    places.push_back({scratch.has_memory != 0 ? scratch.memory.place : 0, node_.pid(local)});
  }
  sharing_ = find_sharing(places, node_.local(), device_.serves_processes_at_once());
  return sharing_;
}

Result<std::byte*> PeerBuffers::address_of(int local, const transports::BufferRef& buffer,
                                           uint64_t sequence) {
  if (on_host()) return node_.address_of(local, buffer);
  if (buffer.has_memory == 0 && node_.is_of_this_process(local))
    return reinterpret_cast<std::byte*>(buffer.address);  // NOLINT(performance-no-int-to-ptr): of a thread
  if (buffer.has_memory == 0)
    return error(Code::device_error, "memory of rank {} on a GPU cannot be mapped by other processes",
                 cluster_.rank_at(cluster_.node_of(rank_), local));
  return mapped_.address_of(local, buffer.memory, buffer.bytes, sequence);
}

Result<std::byte*> PeerBuffers::base_of_scratch(int local, uint64_t sequence) {
  if (local == node_.local()) return scratch_.data();
  return address_of(local, node_.call(local, sequence).scratch, sequence);
}

Result<std::byte*> PeerBuffers::scratch_of(int local, const Call& call) {
  if (on_host()) return node_.scratch(local, call.scratch());
  EPCCL_ASSIGN(std::byte* const base, base_of_scratch(local, call.sequence));
  return scratch_.of_call(base, call.sequence);
}

// Kernels that wait are no way for processes that take turns: each would wait for a turn of another's. Nor for streams of users, which may
// have a kernel that needs all of the GPU before they come to the call; peers' memory is mapped in such calls too, or the first call whose
// stream is held would do that.
NearWords PeerBuffers::near_words(uint64_t sequence) {
  if (on_host() || !scratch_.has_near_words()) return {};
  const GpuSharing& sharing = this->sharing(sequence);
  if (sharing.ranks < 2 || sharing.at_once < sharing.ranks) return {};
  constexpr int most_waiting = 64;  // on a GPU, of 128 kernels
  int of_process = 0;
  bool has_behind = false;
  std::vector<device::SignalWord*> near(static_cast<size_t>(node_.local_size()));
  for (int local = 0; local < node_.local_size(); ++local) {
    has_behind |= node_.call(local, sequence).is_behind != 0;
    if (!sharing.here[static_cast<size_t>(local)]) continue;
    of_process += node_.is_of_this_process(local) ? 1 : 0;
    near[static_cast<size_t>(local)] = near_words_of(local, sequence);
  }
  if (has_behind) return {};  // nobody looks
  return {std::move(near), scratch_.near_words(scratch_.data()),
          take_waiting_kernel(std::max(most_waiting * of_process / sharing.ranks, 1))};
}

device::SignalWord* PeerBuffers::near_words_of(int local, uint64_t sequence) {
  if (local == node_.local()) return scratch_.near_words(scratch_.data());
  const transports::BufferRef& scratch = node_.call(local, sequence).scratch;
  if (scratch.bytes != scratch_.bytes_with_near_words()) return nullptr;
  const auto is_there = [&] { return node_.done(local) < sequence; };
  if (node_.is_of_this_process(local)) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): as the rank wrote it
    if (!scratch_.hold(local, reinterpret_cast<const void*>(scratch.address), is_there)) return nullptr;
  } else if (scratch.has_memory == 0 || !device_.outlives_its_owner(scratch.memory)) {
    return nullptr;
  }
  const auto base = base_of_scratch(local, sequence);
  return base.ok() ? scratch_.near_words(*base) : nullptr;
}

Result<QueueCall> PeerBuffers::find(const Call& call, const QueueProgram& program, const Movers& movers) {
  QueueCall queued{call.sequence, std::string(call.text), {}, call.reduction, movers};
  queued.behind = call.behind;
  queued.near = near_words(call.sequence);
  for (int local = 0; local < node_.local_size(); ++local) {
    const BufferUses& uses = program.uses[static_cast<size_t>(local)];
    EPCCL_ASSIGN(const auto buffers, buffers_of(local, call, uses));
    queued.buffers.push_back(buffers);
    const bool is_peer = local != node_.local() && !on_host();
    if (is_peer && (uses[0] || uses[1]) && node_.call(local, call.sequence).is_behind != 0)
      queued.awaited.push_back(cluster_.rank_at(cluster_.node_of(rank_), local));
  }
  return queued;
}

// A peer that this rank's plan does not touch may be through with the call already, and its memory gone.
Result<std::array<std::byte*, 3>> PeerBuffers::buffers_of(int local, const Call& call,
                                                          const BufferUses& uses) {
  std::array<std::byte*, 3> buffers{};
  auto& [input, output, scratch] = buffers;
  const bool is_own = local == node_.local();
  if (uses[2] || is_own) {
    EPCCL_ASSIGN(scratch, scratch_of(local, call));
  }
  if (is_own) {
    // Input is only read: the plan's verifier holds builders to that.
    input = static_cast<std::byte*>(const_cast<void*>(call.input));
    output = static_cast<std::byte*>(call.output);
    return buffers;
  }
  const transports::CallRecord& record = node_.call(local, call.sequence);
  if (uses[0]) {
    EPCCL_ASSIGN(input, address_of(local, record.inputs[0], call.sequence));
  }
  if (uses[1]) {
    EPCCL_ASSIGN(output, address_of(local, record.outputs[0], call.sequence));
  }
  return buffers;
}

}  // namespace epccl::runtime
