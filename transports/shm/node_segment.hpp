// The one memory segment that all ranks of a node share: a memfd made by the first of them and mapped by the others
// through /proc/<pid>/fd, or handed over (hand_over.hpp). It has no name in the file system, and its untouched pages cost nothing.
//
//   header | control of rank 0, 1, ... | counters | the same, given to queues | message rings | parcels | places of rank 0, 1, ... | scratch of rank 0
//   half 0, half 1, rank 1 ...
//
// A counter of all ranks lies in one run of memory ([counter][rank]): who waits for everybody reads few cache lines.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "device/device.hpp"
#include "device/host/host_memory.hpp"

namespace epccl::transports {

// What processes share has no locks: they would be each process's own.
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

inline constexpr int node_counters = 264;  // a rank; the last count calls
inline constexpr int done_counter = node_counters - 1;
inline constexpr int meeting_counter =
    node_counters - 2;  // calls that a rank has begun, where all tell each other
inline constexpr int stream_counter =
    node_counters - 3;  // calls to which a rank's stream has come, where they are queued behind it
inline constexpr int node_max_ranks = 125;  // limited by the counters the two-stage plans use
inline constexpr size_t call_parts = 3;     // arrays that the token rows of a call may be spread over
inline constexpr int call_halves = 2;       // consecutive calls use alternate scratch
inline constexpr int calls_ahead =
    32;  // but small ones have one of so many small places, and all so many records
inline constexpr uint64_t small_place = 64 << 10;

/// A buffer of this rank, as peers need to know it.
struct BufferRef {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t has_window = 0;
  uint32_t has_memory = 0;  // of a device that peers map by its handle
  uint64_t in_segment = 0;  // where it lies in the node's own segment, which all have mapped; 0: elsewhere
  device::WindowRef window;
  device::MemoryHandle memory;
};

/// What a rank tells its node about the call it is in, before its first post.
/// A small call like the one before it in the record writes the first cache line alone; `text`, when the call is another.
struct alignas(64) CallRecord {
  uint64_t sequence = 0;
  uint64_t signature = 0;  // equal on ranks whose calls agree
  uint64_t history = 0;    // of the signatures of all calls up to this one
  uint32_t fetches = 0;    // of a call on token rows: the rank's plan fetches
  uint32_t is_behind = 0;  // of a call on a device's memory: its rank's queues say when its stream has come
  // Of a call on a device's memory (cuda_ipc/peer_memory.hpp): the most that its handles have of MemoryHandle::frees, and PeerMemory::closed().
  uint64_t frees = 0, closed = 0;
  std::array<char, 104> text{};  // for people: "alltoall count 4 float32"
  // A call on plain bytes has one of each; one on token rows an array for each part of a row.
  std::array<BufferRef, call_parts> inputs, outputs;
  BufferRef weights;
  BufferRef scratch;  // of a call on a device's memory; the host's is in the segment
};

struct alignas(64) RankControl {
  std::atomic<int32_t> pid;
  std::atomic<int32_t> core;  // 1 more than that on which the rank was last found to wait in vain; 0: nowhere
  std::atomic<uint64_t>
      took;  // by its last call that told so: the kind in the upper 16 bits, nanoseconds below
  std::atomic<uint64_t> probe;  // an address of this rank's process that peers may try to use (PeerProbe)
  // Memory that ranks offer each other, which devices copy from: whether this rank's is offered no more, and how many copies this
  // rank has under way from that of each other.
  std::atomic<uint32_t> offers_are_over;
  std::array<std::atomic<uint32_t>, node_max_ranks> reading;
  std::atomic<uint64_t> uses_peers;  // the call in which this rank uses peers' buffers; 0: none
  // Its doorbell, as peers may try to find it in /proc; and where those can ring that are not in this network namespace.
  std::atomic<int32_t> door_fd;
  std::atomic<uint64_t> door_inode;
  std::atomic<uint64_t> network;
  alignas(64) std::array<CallRecord, calls_ahead> calls;
};

/// Local positions, as a set.
using LocalMask = std::array<uint64_t, (node_max_ranks + 63) / 64>;

/// A rank may wait for so many counters at once: a two-stage exchange has that many of which others wait for what follows.
inline constexpr size_t most_sleep_reasons = 6;

/// What a sleeping rank waits for: for one of its reasons, that the counter `slot` of all ranks in `locals` has reached `value`.
struct alignas(64) Sleeper {
  enum State : uint32_t { awake = 0, on_futex = 1, on_doorbell = 2 };
  struct Reason {
    std::atomic<uint32_t> slot;
    std::atomic<uint64_t> value;
    std::array<std::atomic<uint64_t>, std::tuple_size_v<LocalMask>> locals;
  };
  std::atomic<uint32_t> state;  // the futex
  std::atomic<uint32_t> reasons;
  std::array<Reason, most_sleep_reasons> reason;
};

/// Why a rank of the node gave up: of the first to say so, as text that ends with a zero.
struct GaveUpReason {
  enum State : uint32_t { unknown = 0, being_written = 1, known = 2 };
  std::atomic<uint32_t> state;
  Reason reason;
  std::array<char, 507> text;
};

struct alignas(64) SegmentHeader {
  std::atomic<uint32_t> sleepers;  // how many ranks sleep: posts look here before anything else
  std::atomic<uint32_t>
      gave_up;  // a rank has let all queues through; unlike the counters, no queue writes it
  GaveUpReason reason;
  std::array<Sleeper, node_max_ranks> sleeper;
};

/// Sizes of the parts; equal on every rank of a node.
struct SegmentSpec {
  int local_size = 1;
  uint64_t scratch_bytes = 0;  // a rank and half
  uint64_t ring_bytes = 0;     // all message rings
  uint64_t parcel_bytes = 0;   // the board of parcels (parcel_board.hpp)
};

/// Sent to the other ranks of the node.
struct SegmentHandle {
  device::WindowRef memory;
  uint64_t pid_namespace = 0;        // of the first rank; 0: not known
  std::array<uint8_t, 16> token{};   // random: names the doorbells
  std::array<uint8_t, 16> secret{};  // random: who knows it is a rank of the node
};

class NodeSegment {
 public:
  /// The first local rank creates and keeps the descriptor open until everybody has attached.
  static Result<NodeSegment> create(const SegmentSpec& spec);
  static Result<NodeSegment> attach(const SegmentSpec& spec, const SegmentHandle& handle);
  /// By the descriptor that another rank has handed over.
  static Result<NodeSegment> attach(const SegmentSpec& spec, const SegmentHandle& handle,
                                    const UniqueFd& memory);
  /// Whether attach() can come to something by a descriptor that is handed over: sizes and PID namespaces are right.
  static Status check(const SegmentSpec& spec, const SegmentHandle& handle);

  NodeSegment(NodeSegment&& other) noexcept = default;
  NodeSegment& operator=(NodeSegment&&) = delete;
  ~NodeSegment() = default;

  const SegmentHandle& handle() const { return handle_; }
  const SegmentSpec& spec() const { return spec_; }
  /// -1: another rank's segment, or closed.
  int descriptor() const { return fd_.get(); }
  void close_descriptor() { fd_.reset(); }
  uint64_t bytes() const { return bytes_; }
  /// The segment stays mapped while this is kept.
  const std::shared_ptr<const void>& mapping() const { return mapping_; }

  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  RankControl& control(int local) const {
    return reinterpret_cast<RankControl*>(base_ + sizeof(SegmentHeader))[local];
  }
  std::atomic<uint64_t>& counter(int local, int slot) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(base_ + counters_offset_)[slot * counter_stride_ + local];
  }
  /// All of them, as memory; and which one a word of them is.
  std::span<std::atomic<uint64_t>> counters() const {
    return {&counter(0, 0), static_cast<size_t>(node_counters * counter_stride_)};
  }
  int slot_of(const std::atomic<uint64_t>& word) const {
    return static_cast<int>(&word - &counter(0, 0)) / counter_stride_;
  }
  /// What the counter will be when a device's queues have run what its rank has given them so far.
  std::atomic<uint64_t>& queued(int local, int slot) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(base_ + queued_offset_)[slot * counter_stride_ + local];
  }
  /// Of an address in this segment; and back.
  uint64_t offset_of(const std::byte* address) const { return static_cast<uint64_t>(address - base_); }
  std::byte* at(uint64_t offset) const { return base_ + offset; }
  std::byte* rings() const { return base_ + rings_offset_; }
  std::byte* parcels() const { return base_ + parcels_offset_; }
  std::byte* place(int local, int number) const {
    return base_ + places_offset_ + static_cast<uint64_t>(local * calls_ahead + number) * place_stride;
  }
  // For this rank, have pages made at once, where each would hold up a call of its own: those of call records, and the first of each place.
  void touch_records(int local) const;
  void touch_places(int local) const;
  std::byte* scratch(int local, int half) const {
    return base_ + scratch_offset_ + static_cast<uint64_t>(local * call_halves + half) * spec_.scratch_bytes;
  }

 private:
  // A line more, so that the beginnings of places do not compete for the same lines of the cache.
  static constexpr uint64_t place_stride = small_place + 64;

  explicit NodeSegment(const SegmentSpec& spec);
  /// Takes over what mmap() gave.
  void take(void* base);

  SegmentSpec spec_;
  SegmentHandle handle_;
  UniqueFd fd_;
  std::shared_ptr<const void> mapping_;
  std::byte* base_ = nullptr;
  int counter_stride_ = 0;  // entries
  uint64_t bytes_ = 0, counters_offset_ = 0, queued_offset_ = 0, rings_offset_ = 0, parcels_offset_ = 0,
           places_offset_ = 0, scratch_offset_ = 0;
};

}  // namespace epccl::transports
