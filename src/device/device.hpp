// What collectives ask of a device: memory that peers can map, and queues of work that copies, reduces and signals by itself,
// in order, while the caller goes on. Two kinds: the host (copy engines emulated by threads) and CUDA.
//
//   rank 0's queue                    rank 1's queue
//   copy into rank 1's memory
//   post(word of rank 0, value) --->  wait(word of rank 0, value)
//                                     copy out of its own memory
//
// Signal words lie in the host memory that the ranks of a node share. They only grow, so they never need a reset, and a rank
// that gives up can let all queues through by raising them to `released`. All ranks' queues must be able to make progress at
// the same time, also where they share a GPU: a queue may hold nothing that another rank's wait depends on behind its own wait.
//
// Threading: a queue, an event and a captured graph are used by one thread at a time; a Device by any.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "device/host/reduction.hpp"

namespace epccl::device {

enum class DeviceKind : uint8_t { host, cuda };
const char* to_string(DeviceKind kind);

enum class MemoryKind : uint8_t {
  plain,      // this process's only
  shareable,  // peers of the node can map it; what epcclMemAlloc gives
  pinned,     // host memory that the device reads and writes directly
};

/// Whose memory an address is, and the allocation it lies in.
struct MemoryInfo {
  DeviceKind device = DeviceKind::host;
  int ordinal = 0;         // of the device, where there are several
  bool shareable = false;  // export_memory() works, unless peers have other memory open that was there before
  uint64_t base = 0;       // of the allocation; 0: not known
  uint64_t size = 0;
  uint64_t generation = 0;  // as MemoryHandle's; 0: not known
};

/// A piece of a device's memory as other devices of the machine can be given it (GPUDirect): whole pages of the host's size.
struct LentMemory {
  UniqueFd descriptor;             // of a dma-buf that begins at `address`
  std::string without_descriptor;  // where there is none: why. Then the address is all there is.
  uint64_t address = 0, bytes = 0;
};

/// What another process needs to map an allocation: plain bytes, of use to peers of the same node, and for nobody outside of the
/// job to see.
struct MemoryHandle {
  DeviceKind device = DeviceKind::host;
  uint8_t form =
      0;  // the backend's: a descriptor of a process, an IPC handle, an address of this process, ...
  int32_t ordinal = 0;  // of the device that holds it
  int32_t pid = 0;
  uint64_t base = 0, size = 0;  // of the allocation, in the exporting process
  uint64_t offset = 0;          // of the address that was exported
  uint64_t generation = 0;      // differs for two allocations that had the same address one after the other
  uint64_t place = 0;           // of the device in the machine: the same in all processes; 0: not known
  /// Of the exporter so far, as far as it knows of them, and the generations of the last: the n-th, from 0, is freed[n % freed.size()].
  /// Peers' mappings are all that is left of it. What the user frees it learns of when it finds other memory there.
  uint64_t frees = 0;
  std::array<uint64_t, 4> freed{};
  std::array<std::byte, 64> opaque{};
};

/// A peer's allocation in this process; unmapped when it ends. Work that uses it must be through by then.
class MappedMemory {
 public:
  virtual ~MappedMemory() = default;
  /// The address that was exported.
  virtual std::byte* data() const = 0;
  /// Bytes from there to the end of the allocation.
  virtual uint64_t bytes() const = 0;
};

/// `rows` runs of `bytes`, strides apart. Source and destination do not overlap.
struct CopyWork {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  uint64_t bytes = 0;
  uint32_t rows = 1;
  uint64_t destination_stride = 0, source_stride = 0;
  /// Whether a queue of kind copy_engine may leave the copy to compute cores where these are several times faster: with large
  /// ones inside one device.
  bool may_use_cores = false;
};

/// One call of device::reduce().
struct ReduceWork {
  Reduction reduction;
  std::span<const ReduceSource> sources;  // at most Device::max_reduce_sources(); copied by the call
  bool final = true;
  std::byte* destination = nullptr;
  uint64_t elements = 0;
  /// Where the result is written, too: fewer places than sources are possible; copied by the call. Each may be exactly one of the
  /// sources.
  std::span<std::byte* const> also;
};

/// What sums and copies by compute cores have to keep up with.
struct Demand {
  enum class From : uint8_t {
    here,     // all they read is this device's
    fetched,  // the same, but other devices' parts come over a link first
    peers,    // they read other devices' memory over a link themselves
  };
  From from = From::here;
  int sources = 1;  // of a sum; 1: copies
  int sharing = 1;  // ranks that do the same on this device at the same time
};

/// A word on which queues wait, in memory that Device::make_words_visible() was told of.
using SignalWord = std::atomic<uint64_t>;
inline constexpr uint64_t released = uint64_t{1} << 62;

/// A place in a queue.
class QueueEvent {
 public:
  virtual ~QueueEvent() = default;
  /// Whether the queue has come there; true where it was never recorded.
  virtual Result<bool> complete() const = 0;
};

/// What runs a queue's work.
enum class QueueKind : uint8_t {
  copy_engine,  // copies, by engines unless CopyWork::may_use_cores, and signals (waits with near words may be kernels); reductions are refused
  compute,  // also reductions, on at most as many blocks as set_blocks() said; its copies use compute cores where the
            // device has a choice
  cores,  // as compute, and a list of copies is one kernel, on as many blocks; only where Device::can_copy_by_cores()
};

/// What a wait is for. `near`: in the memory of the queue's own device, a word that posts of queues raise before `word`, to the same values,
/// and that is sooner to see there; whoever raises `word` alone ends the wait too. Null: there is none.
struct WordValue {
  const SignalWord* word;
  uint64_t at_least;
  const SignalWord* near = nullptr;
};

/// What a post writes. `near`: raised as well, before; null: there is none.
struct WordPost {
  SignalWord* word;
  uint64_t value;
  SignalWord* near = nullptr;
};

/// An ordered queue of work. Every call returns at once; the work runs after all work queued before. What goes wrong while it
/// runs is returned by failure(), and what comes after it in the queue does not run, but posts and waits do: no peer hangs.
class Queue {
 public:
  /// Waits for its work.
  virtual ~Queue() = default;

  /// The copies may run in any order and at the same time.
  virtual Status copy(std::span<const CopyWork> copies) = 0;
  virtual Status reduce(const ReduceWork& work) = 0;
  /// Raises `word` to `value`, after everything before is visible to all that then see the value.
  virtual Status post(SignalWord& word, uint64_t value) = 0;
  /// Holds what comes after back until `word` is at least `value`.
  virtual Status wait(const SignalWord& word, uint64_t value) = 0;

  /// wait() for each of these, then post() each of those, in their order. Devices look at near words where they can run kernels that wait.
  virtual Status post_after(std::span<const WordValue> waits, std::span<const WordPost> posts);

  virtual Status record(QueueEvent& event) = 0;
  /// Holds what comes after back until `event`'s queue has come to where it was recorded last before this call.
  virtual Status wait(const QueueEvent& event) = 0;

  /// Reductions, and copies by cores, queued from now on use at most this many blocks (host: threads; there is one); 0: the device's
  /// choice.
  virtual void set_blocks(int blocks) = 0;
  /// What the device's choice is for sums and copies from now on: at most so many; 0: its own.
  virtual void set_default_blocks(int /*blocks*/) {}

  /// Blocks until everything queued has run. Returns failure().
  virtual Status synchronize() = 0;
  /// Blocks also where `given`, how it was given its last work, is an error: part of that may be queued. Returns the first error.
  Status run_out(Status given) {
    Status ended = synchronize();
    return given.ok() ? std::move(ended) : std::move(given);
  }
  virtual Result<bool> idle() = 0;
  /// The first thing that went wrong; stays.
  virtual Status failure() const = 0;

  /// Whether work is being recorded into a graph instead of running (CUDA): then events of other queues belong to the same
  /// graph, and posts and waits must use values that are right at every replay.
  virtual bool capturing() const { return false; }
  /// Which capture that is: a number that no other has; 0: none. Error: it failed before.
  virtual Result<uint64_t> capture() const { return uint64_t{0}; }
  /// While capturing: `object` lives as long as the graph and what is made of it. It ends in Device::let_go(), since nothing of the
  /// device may be called where a graph ends.
  virtual Status keep_in_graph(std::shared_ptr<const void> object);

  /// To be kept while the queue waits for a thread of this process: some devices can keep only so many such queues apart, and warn.
  virtual std::shared_ptr<const void> hold() { return nullptr; }
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual int ordinal() const = 0;
  /// "host, 2 copy engines", "NVIDIA H200, 3 copy engines, driver 580.1": for log lines and reports.
  virtual std::string description() const = 0;
  /// Copies that can run at once beside the compute cores; at least 1.
  virtual int copy_engines() const = 0;
  virtual int max_reduce_sources() const = 0;
  /// Where it is in the machine, as MemoryHandle::place; 0: not known.
  virtual uint64_t place() const { return 0; }
  /// Whether it does work of several processes at the same time; else they take turns, and whoever's it is has all of it.
  virtual bool serves_processes_at_once() const { return true; }
  /// Whether a kernel may wait for other ranks for as long as they take.
  virtual bool can_wait_by_kernels() const { return false; }
  /// Whether what was imported by such a handle may be used when its owner has freed it.
  virtual bool outlives_its_owner(const MemoryHandle& /*handle*/) const { return true; }
  /// Whether there are queues of kind `cores`.
  virtual bool can_copy_by_cores() const { return false; }
  /// The fewest blocks that are expected to keep up; what set_blocks() takes.
  virtual int fewest_blocks(const Demand& demand) const = 0;

  virtual Result<void*> allocate(MemoryKind kind, uint64_t bytes) = 0;
  virtual Status free(void* address) = 0;
  /// Nothing where the address is not this device's (or, for the host, CUDA's).
  virtual std::optional<MemoryInfo> info(const void* address) const = 0;
  /// `readers`: the other processes that are given the handle; null: whoever, who keep it open for as long as they like. Fails where other
  /// memory was before that was exported, until all who were given that have closed it.
  virtual Result<MemoryHandle> export_memory(const void* address, uint64_t bytes,
                                             const std::vector<pid_t>* readers) const = 0;
  Result<MemoryHandle> export_memory(const void* address, uint64_t bytes) const {
    return export_memory(address, bytes, nullptr);
  }
  /// Whether export_memory() works now, for who gives nobody a handle.
  virtual Status can_export(const void* address, uint64_t bytes) const {
    return export_memory(address, bytes).take_status();
  }
  /// That process has nothing open any more of the first so many of this device's frees (MemoryHandle::frees).
  virtual void closed_by(pid_t /*reader*/, uint64_t /*frees*/) {}
  /// Notes what the handle of another process tells of frees. Where these are more than it names, all may be freed that is open but for
  /// `alive`, which were given with it.
  virtual void hear_of_frees(const MemoryHandle& /*handle*/, std::span<const MemoryHandle* const> /*alive*/) {
  }
  /// Whether this process has closed, on all devices, what was noted of frees of that handle's exporter. Does not wait.
  virtual bool has_closed_what_was_freed(const MemoryHandle& /*by*/) const { return true; }
  /// Of another process of this node, or of this one (whose addresses are used as they are).
  virtual Result<std::unique_ptr<MappedMemory>> import_memory(const MemoryHandle& handle) = 0;

  /// The pages around `bytes` at `address`, for network cards to read and write. They stay this device's, and what has been made of
  /// the descriptor keeps them alive. Error: why these cannot be lent.
  virtual Result<LentMemory> lend(const void* address, uint64_t bytes) const;
  /// What other devices had written into lent memory before the call is seen by all work that queues are given after it, those of
  /// the node's other devices too. May take some microseconds.
  virtual Status admit_foreign_writes() const { return {}; }
  /// Counts calls of free(): as long as it stays, what allocate() gave is what it was.
  virtual uint64_t frees() const { return 0; }

  /// To be told before queues post or wait there; undone by hide_words(). `memory` is host memory that ranks share.
  virtual Status make_words_visible(void* memory, uint64_t bytes) = 0;
  /// `mapping`: what keeps the memory where it is, so that this may be put off; null: it is done at once, and may wait for what the device
  /// does.
  virtual void hide_words(void* memory, std::shared_ptr<const void> mapping) = 0;
  void hide_words(void* memory) { hide_words(memory, nullptr); }

  virtual Result<std::unique_ptr<Queue>> make_queue(QueueKind kind) = 0;
  /// Whether that names its NULL stream, which other streams may wait for.
  virtual bool is_null_stream(void* stream) const { return stream == nullptr; }
  /// The user's stream as a queue of kind compute; what it queues is the stream's. Null: the device's stream of no name, which
  /// for the host means that the calls block. The stream must outlive the queue.
  virtual Result<std::unique_ptr<Queue>> borrow_stream(void* stream) = 0;
  virtual Result<std::unique_ptr<QueueEvent>> make_event() = 0;

  /// Ends what graphs have kept that are gone. May wait for what the device does.
  virtual void let_go() {}
};

/// The host; one for the process.
Device& host_device();

}  // namespace epccl::device
