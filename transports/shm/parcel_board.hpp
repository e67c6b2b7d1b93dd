// The board on which ranks of a node lay out parcels (framed messages for one destination) for the rank that may carry them.
//
//   origin                          slot                          carrier
//   fills it                        empty
//   lay out                         offered  ------------------>  finds the origin's bit in its inbox
//                                   held     <------------------  takes it up, and writes to its lane
//   done                            carried  <------------------  all of it left
//   withdraws if it takes too long  empty         (fails while it is held)
//   sends the rest itself           returned <------------------  none of it will leave, or no more than `taken` bytes
//
// Origin and carrier move a slot only by compare-and-exchange out of `offered`: exactly one of them has it. A carrier holds a
// slot no longer than one system call, unless its lane takes a part only. There is a slot for each pair of an origin of the
// node and a destination on another.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transports/shm/node_segment.hpp"

namespace epccl::transports {

static_assert(std::atomic<double>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

/// What is said about a parcel. The slots of one origin and carrier share cache lines, apart from the parcels' bytes: both look
/// at all of them again and again.
struct ParcelSlot {
  enum State : uint32_t { empty = 0, offered, held, carried, returned };
  static constexpr size_t capacity = 20 << 10;

  std::atomic<uint32_t> state;
  uint32_t bytes;    // of the parcel
  uint32_t taken;    // with returned: bytes that have left all the same
  uint32_t company;  // with carried: parcels that left with this one, itself included
};
static_assert(64 % sizeof(ParcelSlot) == 0);

class ParcelBoard {
 public:
  /// What the board takes of the segment; 0 where it would be too large: then there is none.
  static uint64_t bytes(int local_size, int nodes);
  ParcelBoard(std::byte* base, int local_size, int nodes, int local);

  /// The slot of `origin`'s parcel for the rank at `carrier`'s position on `node`.
  ParcelSlot& slot(int origin, int carrier, int node) const;
  /// The parcel in it: ParcelSlot::capacity bytes.
  std::byte* payload(int origin, int carrier, int node) const;

  // Origin.
  /// Offers the slot, which is filled, to its carrier.
  void lay_out(int carrier, int node);
  /// False: the carrier has it already, or has had it.
  static bool withdraw(ParcelSlot& slot) { return move(slot, ParcelSlot::offered, ParcelSlot::empty); }

  // Carrier.
  /// The origins that have laid out parcels for this rank since the last call.
  LocalMask collect();
  /// False: it was withdrawn.
  static bool take_up(ParcelSlot& slot) { return move(slot, ParcelSlot::offered, ParcelSlot::held); }
  /// What becomes of a slot that was taken up; `offered`: it may be taken up again, or withdrawn.
  static void put_down(ParcelSlot& slot, ParcelSlot::State state) {
    slot.state.store(state, std::memory_order_release);
  }

  // What ranks tell about themselves. Hints: nothing depends on their being right or new.
  void enter(uint64_t calls) { doors_[local_].word.store(2 * calls + 1, std::memory_order_release); }
  void leave(uint64_t calls) { doors_[local_].word.store(2 * calls, std::memory_order_release); }
  /// Calls that a rank has begun, and whether it is in one: only then does it carry.
  uint64_t calls(int local) const { return doors_[local].word.load(std::memory_order_acquire) / 2; }
  bool inside(int local) const { return doors_[local].word.load(std::memory_order_acquire) % 2 != 0; }
  /// Whether a carrier has a lane to `node`.
  bool has_lane(int carrier, int node) const {
    return lane_flag(carrier, node).load(std::memory_order_relaxed);
  }
  void set_lane(int node, bool open) { lane_flag(local_, node).store(open, std::memory_order_relaxed); }
  /// Until then (seconds of the steady clock) all ranks of the node try parcels, also those that had given them up.
  double trial_end() const { return trial_->load(std::memory_order_relaxed); }
  void set_trial_end(double until) { trial_->store(until, std::memory_order_relaxed); }

 private:
  struct alignas(64) Door {
    std::atomic<uint64_t> word;
  };
  struct alignas(64) Inbox {
    std::array<std::atomic<uint64_t>, std::tuple_size_v<LocalMask>> origins;
  };
  static bool move(ParcelSlot& slot, uint32_t from, uint32_t to) {
    return slot.state.compare_exchange_strong(from, to, std::memory_order_acq_rel, std::memory_order_relaxed);
  }
  size_t row(int origin, int carrier) const {
    return static_cast<size_t>(origin) * static_cast<size_t>(local_size_) + static_cast<size_t>(carrier);
  }
  std::atomic<bool>& lane_flag(int carrier, int node) const { return lane_flags_[carrier * nodes_ + node]; }

  const int local_size_, nodes_, local_;
  std::atomic<double>* trial_;
  Door* doors_;
  Inbox* inboxes_;
  std::atomic<bool>* lane_flags_;
  ParcelSlot* slots_;
  std::byte* payloads_;
};

}  // namespace epccl::transports
