#include "runtime/messages/carrier_lanes.hpp"

#include <array>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "runtime/messages/local_mask.hpp"

namespace epccl::runtime {

using transports::LocalMask;
using transports::ParcelBoard;
using transports::ParcelSlot;

CarrierLanes::CarrierLanes(const topology::Cluster& cluster, int rank, transports::NodeMemory& node,
                           transports::Lanes& lanes, ParcelBoard& board, const CarryPolicy& policy)
    : local_(node.local()),
      local_size_(node.local_size()),
      node_(node),
      lanes_(lanes),
      board_(board),
      policy_(policy) {
  for (int other = 0; other < cluster.nodes(); ++other) {
    if (other == cluster.node_of(rank) || cluster.local_size(other) <= local_) continue;
    Lane lane;
    lane.node = other;
    lane.destination = cluster.rank_at(other, local_);
    for (int local = 0; local < local_size_; ++local) add(lane.lately, local);
    own_.push_back(lane);
  }
}

void CarrierLanes::begin(uint64_t call) {
  call_ = call;
  leaving_since_ = 0;
  for (Lane& lane : own_) {
    if (!is_empty(lane.now)) lane.lately = std::exchange(lane.now, {});
    lane.now = lane.ahead;
    take_what_is_ahead(lane, now_seconds());
  }
}

void CarrierLanes::open() {
  for (Lane& lane : own_) board_.set_lane(lane.node, lanes_.open(lane.destination));
}

bool CarrierLanes::pending() const {
  return std::ranges::any_of(own_, [](const Lane& lane) { return lane.tail != nullptr; });
}

bool CarrierLanes::end(double now) {
  if (leaving_since_ == 0) leaving_since_ = now;
  progress(now, true);
  for (Lane& lane : own_) {
    if (lane.tail == nullptr) continue;
    if (now - leaving_since_ < policy_.leave_seconds) return false;
    give_tail_back(lane);
  }
  return true;
}

bool CarrierLanes::progress(double now, bool leaving) {
  stays_awake_ = false;
  collect(now);
  bool moved = false;
  for (Lane& lane : own_) {
    if (!is_empty(lane.ahead)) {
      if (now - lane.ahead_since >= policy_.gather_seconds)
        take_what_is_ahead(lane, lane.ahead_since);
      else
        stays_awake_ = true;
    }
    if (lane.tail != nullptr) {
      moved |= write_tail(lane, now);
    } else if (!is_empty(lane.offers)) {
      if (leaving || is_due(lane, now))
        moved |= flush(lane, now);
      else
        stays_awake_ = true;
    }
  }
  return moved;
}

void CarrierLanes::collect(double now) {
  const LocalMask origins = board_.collect();
  if (is_empty(origins)) return;
  for (Lane& lane : own_)
    for (int origin = 0; origin < local_size_; ++origin) {
      if (!has(origins, origin)) continue;
      const ParcelSlot& slot = board_.slot(origin, local_, lane.node);
      if (slot.state.load(std::memory_order_relaxed) != ParcelSlot::offered) continue;
      if (has(lane.now, origin)) {
        if (is_empty(lane.ahead)) lane.ahead_since = now;
        add(lane.ahead, origin);
        continue;
      }
      if (is_empty(lane.offers)) lane.since = now;
      add(lane.offers, origin);
      add(lane.now, origin);
    }
}

// An origin that has gone on to its next call already is one parcel ahead: its neighbours' will come, too, and leave with it.
void CarrierLanes::take_what_is_ahead(Lane& lane, double since) {
  if (is_empty(lane.ahead)) return;
  if (is_empty(lane.offers)) lane.since = since;
  for (size_t word = 0; word < lane.ahead.size(); ++word) lane.offers[word] |= lane.ahead[word];
  lane.ahead = {};
}

bool CarrierLanes::is_due(const Lane& lane, double now) const {
  if (now - lane.since >= policy_.gather_seconds) return true;
  for (int local = 0; local < local_size_; ++local)
    if (expects(lane, local)) return false;
  return true;
}

bool CarrierLanes::expects(const Lane& lane, int local) const {
  if (has(lane.offers, local) || board_.calls(local) >= call_) return false;
  return has(lane.lately, local) || lane.since < board_.trial_end();
}

bool CarrierLanes::flush(Lane& lane, double now) {
  std::array<iovec, transports::node_max_ranks> pieces;
  std::array<int, transports::node_max_ranks> origins;
  size_t count = 0, room = lanes_.room(lane.destination);
  if (room == 0) return false;
  for (int origin = 0; origin < local_size_; ++origin) {
    if (!has(lane.offers, origin)) continue;
    ParcelSlot& slot = board_.slot(origin, local_, lane.node);
    if (!ParcelBoard::take_up(slot)) {
      remove(lane.offers, origin);
      continue;
    }
    if (slot.bytes > room) {
      ParcelBoard::put_down(slot, ParcelSlot::offered);
      if (origin != local_) node_.notify_message(origin);
      continue;
    }
    room -= slot.bytes;
    origins[count] = origin;
    pieces[count++] = {board_.payload(origin, local_, lane.node), slot.bytes};
  }
  size_t written = lanes_.write(lane.destination, std::span(pieces).first(count));
  uint32_t company = 0;  // that leave now, the last of them maybe in part
  for (size_t left = written; left > 0; ++company) left -= std::min(left, pieces[company].iov_len);
  for (size_t i = 0; i < count; ++i) {
    ParcelSlot& slot = board_.slot(origins[i], local_, lane.node);
    if (written == 0) {
      ParcelBoard::put_down(slot, ParcelSlot::offered);
      if (origins[i] != local_) node_.notify_message(origins[i]);
      continue;
    }
    remove(lane.offers, origins[i]);
    if (written < pieces[i].iov_len) {
      lane.tail = &slot;
      lane.tail_origin = origins[i];
      lane.tail_written = std::exchange(written, 0);
      lane.tail_since = now;
      continue;
    }
    written -= pieces[i].iov_len;
    ++counters_.parcels;
    slot.company = company;
    ParcelBoard::put_down(slot, ParcelSlot::carried);
    if (origins[i] != local_) node_.notify_message(origins[i]);
  }
  return count > 0 && !has(lane.offers, origins[0]);
}

bool CarrierLanes::write_tail(Lane& lane, double now) {
  ParcelSlot& slot = *lane.tail;
  std::byte* const payload = board_.payload(lane.tail_origin, local_, lane.node);
  const iovec rest{payload + lane.tail_written, slot.bytes - lane.tail_written};
  const size_t written = lanes_.write(lane.destination, std::span(&rest, 1));
  lane.tail_written += written;
  if (written > 0) lane.tail_since = now;
  if (lane.tail_written < slot.bytes) {
    if (now - lane.tail_since > policy_.tail_seconds) give_tail_back(lane);
    return written > 0;
  }
  ++counters_.parcels;
  slot.company = 2;  // it was in a crowd
  ParcelBoard::put_down(slot, ParcelSlot::carried);
  if (lane.tail_origin != local_) node_.notify_message(lane.tail_origin);
  lane.tail = nullptr;
  return true;
}

void CarrierLanes::give_tail_back(Lane& lane) {
  ++counters_.cuts;
  board_.set_lane(lane.node, false);
  lanes_.cut(lane.destination);
  lane.tail->taken = static_cast<uint32_t>(lane.tail_written);
  ParcelBoard::put_down(*lane.tail, ParcelSlot::returned);
  if (lane.tail_origin != local_) node_.notify_message(lane.tail_origin);
  lane.tail = nullptr;
}

}  // namespace epccl::runtime
