// Collectives on a device's memory by way of pinned host memory: what works with every transport and every algorithm.
//
//   user's stream   ... record -> wait ---------------------------------------------------> goes on
//   worker thread          |      copy in slice 0 | run it on host memory    | run slice 1 ... |
//   copy engine            +--->                    copy in slice 1 | copy out slice 0 ...     +---> word
//
// The caller does not block, but for first_calls.hpp. Slices are the same part of every block of a buffer, so that a slice is a call of its
// own, with smaller blocks; two are under way at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/host/host_stream.hpp"
#include "runtime/executor/queued_behind.hpp"
#include "runtime/streams/first_calls.hpp"
#include "runtime/streams/hold_watch.hpp"
#include "runtime/streams/stream_hold.hpp"

namespace epccl::runtime {

/// Host memory that a device copies from and to, or the device's own; grows.
class DeviceRoom {
 public:
  explicit DeviceRoom(device::Device& device, device::MemoryKind kind = device::MemoryKind::pinned)
      : device_(&device), kind_(kind) {}
  DeviceRoom(DeviceRoom&& other) noexcept;
  DeviceRoom& operator=(DeviceRoom&&) = delete;
  ~DeviceRoom();
  /// At least `bytes`; what was in it is lost when it grows.
  Status reserve(uint64_t bytes);
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  device::MemoryKind kind() const { return kind_; }

 private:
  device::Device* device_;
  device::MemoryKind kind_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class StagedCalls {
 public:
  /// Of the communicator whose calls these are.
  struct Owner {
    std::function<Status()> check;  // for failures from outside while the worker waits for copies; ok: none
    // Around a wait for a stream, in which a call has not begun yet, and the calls of graphs on that stream go first.
    std::function<bool()> give_way;     // false: not in a call
    std::function<Status()> take_back;  // error: the communicator has failed meanwhile
    HoldWatch::Worker::Owner watched;   // the worker's, where streams wait for it
    FirstCalls::Limits first_calls{};
    uint64_t communicator = 0;  // device::HeldStreams::Hold's
    // Whether calls that hold their streams are queued behind these, too.
    bool queues_behind_held = true;
  };

  /// `slice_bytes`: of a buffer, at most, as far as whole elements allow; at least `least_slice`.
  static Result<std::unique_ptr<StagedCalls>> open(device::Device& device, uint64_t slice_bytes,
                                                   uint64_t least_slice, Owner owner);
  StagedCalls(const StagedCalls&) = delete;
  StagedCalls& operator=(const StagedCalls&) = delete;
  ~StagedCalls();

  device::Device& device() const { return device_; }
  /// Runs the calls, one after the other.
  device::HostStream& worker() { return *worker_; }
  const HoldWatch::WorkerPtr& watched_worker() const { return watched_; }
  uint64_t communicator() const { return owner_.communicator; }
  uint64_t slice_bytes() const { return slice_bytes_; }
  /// Counts a call that no turn stands for; null: its stream waits.
  std::shared_ptr<FirstCalls> first_call() const {
    return first_calls_->begin(false) ? first_calls_ : nullptr;
  }

  /// A place in the user's stream: what was queued before it was marked is through when begun() says so, and what is queued after
  /// it was held runs when the turn ends, also if nothing came of the call; unless whoever issued the call waits for that end instead. Calls of
  /// several communicators may share one. One that was made by itself has begun: that of a call in a graph, which knows when it is over.
  class Turn {
   public:
    Turn() = default;
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();
    /// Before it is held: a call of this communicator, or of another one, shares it.
    void share_with(const StagedCalls& calls);
    /// Error: the stream is being captured.
    Status mark();
    /// Holds the stream, unless the turn is waited for.
    Status hold();

    /// Of one call that queues of the device make by themselves, after hold(): lets it be queued behind what the stream had. Where the stream
    /// does not wait for it only if nothing that the stream had may be waiting for a thread.
    Status queue_behind();
    /// How; null: the call begins when begun() says so. A stream that is held may still be waiting for threads of others: then it is
    /// null until it is not, and stays what it was once it is something.
    const QueuedBehind* behind();
    bool may_be_behind() const { return behind_.has_value(); }

    /// For who issued the call: what it takes to wait for it. May live longer.
    struct Wait {
      std::shared_ptr<FirstCalls> as;  // null: the stream waits
      std::shared_ptr<AwaitedCall> call;
      double longest = 0;  // FirstCalls'
      std::vector<device::HostStream::Watchers> workers;
    };
    Wait wait() const { return {waited_for_, call_, longest_wait_, workers_}; }
    /// All of the call is queued: the stream goes on behind it.
    Status go_on_behind();
    /// To wait was in vain: now the stream waits.
    Status hold_after_all();

   private:
    friend class StagedCalls;
    bool wait_for_threads() const;

    device::Device* device_ = nullptr;
    std::unique_ptr<device::Queue> users_;
    std::unique_ptr<device::QueueEvent> before_;
    std::unique_ptr<StreamHold> hold_;  // null: it holds nothing
    bool is_on_null_stream_ = false;
    std::shared_ptr<FirstCalls> waited_for_;
    double longest_wait_ = 0;
    std::unique_ptr<device::QueueEvent> end_;  // of a call that is queued behind
    std::optional<QueuedBehind> behind_;
    bool is_behind_ = false;
    bool queues_behind_held_ = false;
    std::shared_ptr<AwaitedCall> call_ = std::make_shared<AwaitedCall>();
    std::vector<device::HostStream::Watchers> workers_;  // each communicator's once
  };
  /// Whether what a stream is given next waits until the turn ends.
  enum class Holds : uint8_t { stream, nothing };
  /// `stream`: the device's; null: its NULL stream. A stream that is being captured is refused, and nothing queued.
  Result<std::shared_ptr<Turn>> take_turn(void* stream, Holds holds = Holds::stream);
  /// A turn that is to be marked and held later: nothing is queued yet.
  Result<std::shared_ptr<Turn>> plan_turn(void* stream, Holds holds = Holds::stream);

  /// Buffers of a call: `input_blocks` and `output_blocks` (0: none) of `block_bytes` each.
  struct Blocks {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    int input_blocks = 0, output_blocks = 0;
    uint64_t block_bytes = 0;
    uint64_t part_bytes = 0;  // of a block, in a slice: the same on every rank
  };
  /// Runs one slice: blocks of `bytes`, packed.
  using RunSlice =
      std::function<Status(const std::byte* input, std::byte* output, uint64_t first, uint64_t bytes)>;
  Status run(const Turn& turn, const Blocks& call, const RunSlice& run_slice);

  /// A part of a buffer, at the same offset on the host.
  struct Piece {
    std::byte* device = nullptr;
    uint64_t offset = 0, bytes = 0;
  };
  /// All at once, through memory that was borrowed for it: `inputs` are copied in, `outputs` out.
  using RunWhole = std::function<Status(const std::byte* input, std::byte* output)>;
  Status run_whole(const Turn& turn, const std::vector<Piece>& inputs, std::byte* input,
                   const std::vector<Piece>& outputs, std::byte* output, const RunWhole& run_whole);

  // The same, step by step: after the turn has begun, each waits for its copies.
  Status copy_pieces_in(const std::vector<Piece>& pieces, std::byte* host);
  Status copy_pieces_out(const std::vector<Piece>& pieces, const std::byte* host);

  /// Memory for one call. To be borrowed before the call's turn: to allocate may wait for what the device does, and that
  /// may be waiting for this call. For the same reason it is kept when it comes back.
  using Borrowed = std::shared_ptr<DeviceRoom>;
  Result<Borrowed> borrow(uint64_t bytes, device::MemoryKind kind = device::MemoryKind::pinned);

  /// Waits until what the stream had before the turn is through. To be called before anything else of the call.
  Status begun(const Turn& turn, bool inside = true);

  /// Copies a few bytes of the device to any memory of the host after the turn has begun, and waits for them.
  Status fetch(const Turn& turn, void* to, const std::byte* from, uint64_t bytes);

 private:
  struct Slot {
    explicit Slot(device::Device& device) : input(device), output(device) {}
    DeviceRoom input, output;
    std::unique_ptr<device::QueueEvent> copied_in, copied_out;
  };

  StagedCalls(device::Device& device, uint64_t slice_bytes, Owner owner);
  Status prepare(uint64_t slot_bytes);
  /// `behind`: begun just behind the event, so that it comes no earlier; null: there is none.
  Status wait_for(const device::QueueEvent& event, bool checks = true, const StreamHold* behind = nullptr);
  Status copy_in(const Blocks& call, uint64_t first, uint64_t bytes, Slot& slot);
  Status copy_out(const Blocks& call, uint64_t first, uint64_t bytes, Slot& slot);
  Status run_slices(const Blocks& call, const RunSlice& run_slice);

  device::Device& device_;
  const uint64_t slice_bytes_;
  const Owner owner_;
  const HoldWatch::WorkerPtr watched_;
  const std::shared_ptr<FirstCalls> first_calls_;
  DeviceRoom few_bytes_;
  std::array<Slot, 2> slots_;
  struct Kept {
    std::mutex mutex;
    std::vector<std::unique_ptr<DeviceRoom>> memory;
    /// What suits a call that borrows so many bytes, or comes close; null: nothing.
    std::unique_ptr<DeviceRoom> take(uint64_t bytes, device::MemoryKind kind);
  };
  const std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  std::unique_ptr<device::Queue> in_, out_;
  std::atomic<std::thread::id> worker_id_;
  std::unique_ptr<device::HostStream> worker_;  // last: it uses the rest
};

}  // namespace epccl::runtime
