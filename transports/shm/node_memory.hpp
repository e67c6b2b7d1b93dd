// Memory and counters of the ranks of one node, as plain addresses.
//
//   poster                              waiter
//   writes data                         polls the poster's counter (acquire)
//   post(slot, value)  (release)  --->  sees value, then the data
//        and wakes who sleeps for just that: through a futex, or, who sleeps for the network as well, through a doorbell
//        (a datagram socket: poll() waits for it and for the network alike)
#pragma once

#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transports/shm/hand_over.hpp"
#include "transports/shm/node_segment.hpp"
#include "transports/shm/peer_windows.hpp"

namespace epccl::transports {

/// What a rank sleeps for: that the counter `slot` of every rank in `locals` has reached `value`, or that any message
/// comes through a ring. Counters of several ranks count as one reason: there is one wake-up, by the last.
struct SleepFor {
  static constexpr int any_message = node_counters;
  int slot = any_message;
  uint64_t value = 0;
  LocalMask locals{};

  void add(int local) { locals[static_cast<size_t>(local) / 64] |= uint64_t{1} << (local % 64); }
};

/// Reasons of which any ends a sleep.
class SleepReasons {
 public:
  static constexpr size_t most = most_sleep_reasons;

  SleepReasons() = default;
  SleepReasons(const SleepFor& only) : reasons_{only}, count_(1) {}  // NOLINT: one is some

  /// Until the counter `slot` of the rank at `local` has reached `value`. Of one counter's values only the lowest counts: who gets there
  /// looks at the others. Of more counters than `most` the last are left out.
  void add(int slot, uint64_t value, int local);
  std::span<const SleepFor> all() const { return {reasons_.data(), count_}; }

 private:
  std::array<SleepFor, most> reasons_;
  size_t count_ = 0;
};

/// Which scratch a call has: alike on all ranks of the node. A call that needs no more than `small_place` bytes on any of them may
/// be small; a rank that waits for nobody can then run `calls_ahead` calls ahead of the others.
struct CallScratch {
  uint64_t sequence = 0;
  bool is_small = false;

  /// The place is free when all ranks of the node are through with this call; 0: it was never used.
  uint64_t free_after() const {
    const uint64_t back = is_small ? calls_ahead : call_halves;
    return sequence < back ? 0 : sequence - back;
  }
};

class NodeMemory {
 public:
  /// Opens this rank's doorbell and takes over the segment. `local` is this rank's position on the node.
  static Result<std::unique_ptr<NodeMemory>> open(NodeSegment segment, int local);

  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  int local() const { return local_; }
  int local_size() const { return segment_.spec().local_size; }
  NodeSegment& segment() { return segment_; }
  std::byte* scratch(int local, CallScratch call) const {
    return call.is_small ? segment_.place(local, static_cast<int>(call.sequence % calls_ahead))
                         : segment_.scratch(local, static_cast<int>(call.sequence % call_halves));
  }
  uint64_t scratch_bytes(CallScratch call) const {
    return call.is_small ? small_place : segment_.spec().scratch_bytes;
  }

  /// Before this rank's first small call.
  void touch_records() const { segment_.touch_records(local_); }
  void touch_places() const { segment_.touch_places(local_); }

  // Counters: they only grow.
  void post(int slot, uint64_t value);
  /// A counter was raised by other means: wakes who sleeps for it. Any thread.
  void posted(int slot);
  uint64_t counter(int local, int slot) const {
    return segment_.counter(local, slot).load(std::memory_order_acquire);
  }
  void set_done(uint64_t sequence) { post(done_counter, sequence); }
  uint64_t done(int local) const { return counter(local, done_counter); }

  // A rank lets all queues of the node through. It says so before it raises their counters: whose queue went on because of that finds it
  // said, also where queues have set the counters back since.
  void say_gave_up() { segment_.header().gave_up.store(1, std::memory_order_seq_cst); }
  bool gave_up() const { return segment_.header().gave_up.load(std::memory_order_seq_cst) != 0; }
  /// To be called before say_gave_up(). Only the first text of a node is kept; all its ranks read it.
  void say_why(std::string_view why, Reason reason = Reason::none);
  /// For who finds that a rank gave up: a remote error, with that reason where it is known.
  Status why_gave_up() const;

  // Call records: this rank's, before its first post of a call; a peer's, after a post of that call was seen.
  CallRecord& my_call(uint64_t sequence) const {
    return segment_.control(local_).calls[sequence % calls_ahead];
  }
  const CallRecord& call(int local, uint64_t sequence) const {
    return segment_.control(local).calls[sequence % calls_ahead];
  }

  /// A description of a buffer of this rank.
  static BufferRef describe(const void* buffer, uint64_t bytes);
  /// The same of a part of the segment, this rank's scratch for instance: peers need no window for that.
  BufferRef describe_in_segment(const std::byte* part, uint64_t bytes) const;
  /// Address of a peer's buffer in this process; nullptr when it is in no window (then read() is the way).
  Result<std::byte*> address_of(int local, const BufferRef& buffer);
  /// Copies from a peer's buffer that has no address here (process_vm_readv).
  Status read(int local, const BufferRef& buffer, uint64_t offset, void* destination, uint64_t bytes) const;
  /// Copies to a peer's buffer that has no address here (process_vm_writev).
  Status write(int local, const BufferRef& buffer, uint64_t offset, const void* source, uint64_t bytes) const;
  /// Copies many pieces at once, the i-th of `mine` to or from the i-th of `theirs` (addresses in the peer's process).
  Status transfer_pieces(int local, bool is_write, std::span<iovec> mine, std::span<iovec> theirs) const;
  /// Whether read() and write() are permitted for every peer of the node; tries both, once all have opened.
  bool can_read_peers() const;
  /// Whether this rank may open, through /proc, what every peer allocates; tries it, once all have opened.
  bool can_open_peers() const;
  /// Where some rank of the node may not, all do this: from then on each hands its memory to those who ask, and asks for what it may not
  /// open. Of threads of one process each has its own, and hands over what any of them has.
  Status hand_over();
  /// With owners that are silent when they are asked.
  void set_patience(Patience patience) { patience_ = std::move(patience); }
  void set_patience(double seconds) { patience_.seconds = seconds; }
  /// The segment itself had to be handed to this rank, whatever it may open else.
  void note_handed_segment() { was_handed_segment_ = true; }
  /// A rank in another network namespace, whose doorbell does not ring here; -1: none. Once all have opened.
  int beyond_bells() const;

  // Who copies from memory which a peer has offered: nobody frees what is still read.
  /// To be asked before such a copy. False: the peer's offers hold no more.
  bool begin_reading(int local);
  void end_reading(int local);
  /// Afterwards no peer begins to read what this rank has offered; reader() tells who is still at it.
  void end_offers();
  /// That, and waits until nobody reads any more, `seconds` at most. Who still does; -1: nobody.
  int end_offers_and_wait(double seconds);
  /// A rank of the node that reads what this rank has offered, and whose process lives; -1: none.
  int reader() const;

  // Ranks use buffers of peers in a call, by their own copies or by queues of devices: a rank that gives up has its buffers back when no
  // peer uses them. It says that it gave up before it looks, and who uses buffers says so before it looks whether one has: so one of
  // them sees the other.
  /// Before this rank copies or queues anything of the call. False: a rank has given up, and nothing may be used.
  bool begin_use(uint64_t sequence);
  /// Its copies are over, and its queues have run out.
  void end_use();
  /// A peer that is in that call so, and whose process lives; -1: none.
  int peer_that_uses(uint64_t sequence) const;

  /// This rank waits on `core`, and nothing moves. Whether another one said so last of the same: they may be in each other's way.
  bool meets_on_core(int core);

  /// What a call of that kind (not 0) took this rank, which peers are told. Returns the longest that it took one of the node's ranks,
  /// as far as these have told of such a call last.
  double longest_call(uint16_t kind, double seconds);

  bool is_one_process() const {
    for (int local = 0; local < local_size(); ++local)
      if (!is_of_this_process(local)) return false;
    return true;
  }
  /// Of ranks of the node, each once.
  std::vector<pid_t> other_processes() const;
  /// Whether its process does; of one whose processes this one sees. A kernel that cannot tell: true.
  bool lives(int local) const;
  /// Whether that rank is a thread of this rank's process.
  bool is_of_this_process(int local) const { return pid(local) == pid(this->local()); }
  pid_t pid(int local) const { return segment_.control(local).pid.load(std::memory_order_relaxed); }

  // Sleeping: announce what for, look again at everything waited for, then sleep. Only what was announced wakes: a rank
  // that waits for many things announces some of them and looks at the rest when it wakes.
  enum class Bed : uint8_t {
    futex,     // sleep() sleeps; only for peers of the node
    doorbell,  // poll() on doorbell_fd(), beside other descriptors
  };
  void announce_sleep(const SleepReasons& reasons, Bed bed);
  /// After announce_sleep(.., Bed::futex): until woken, or `seconds` at most.
  void sleep(double seconds);
  void finish_sleep();
  int doorbell_fd() const { return doorbell_.get(); }
  /// Wakes `local` if it sleeps waiting for messages.
  void notify_message(int local);
  /// Wakes this rank, from any thread.
  void wake_self();

 private:
  NodeMemory(NodeSegment segment, int local) : segment_(std::move(segment)), local_(local) {}
  Status open_doorbell();
  Status transfer(int local, bool is_write, std::byte* mine, uint64_t theirs, uint64_t bytes) const;
  Status access_error(int local, bool is_write, const std::string& what, int cause) const;
  Result<UniqueFd> open_or_ask(int local, const device::WindowRef& place, bool& is_shut_out) const;
  void wake_waiting_for(int slot);
  bool came_true(const Sleeper& sleeper, int slot) const;
  bool came_true(const Sleeper::Reason& reason) const;
  void wake(int local);
  void ring(int local) const;

  NodeSegment segment_;
  const int local_;
  const pid_t pid_ = getpid();  // asked once: that is a system call
  UniqueFd doorbell_;
  Bed bed_ = Bed::futex;              // of the sleep that was announced last
  std::vector<PeerWindows> windows_;  // by local rank
  std::unique_ptr<HandOver> hand_over_;
  Patience patience_;
  bool was_handed_segment_ = false;
};

}  // namespace epccl::transports
