#include "runtime/comm/carrying.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.hpp"

namespace epccl::runtime {

using transports::Completion;
using transports::Lanes;
using transports::LocalMask;
using transports::ParcelBoard;
using transports::ParcelSlot;

namespace {

// A parcel that paid is worth half of one that did not. After two disappointments in a row the next calls go directly, after each
// one more twice as many. Calls are counted alike by ranks that do the same, so that they try again together; those that do not
// are asked along by a trial.
constexpr int paid_score = 1, unpaid_score = -2, best_score = 4, worst_score = -4;
constexpr uint64_t first_period = 4, longest_period = 1024;
constexpr double trial_seconds = 5e-3;
constexpr uint64_t trial_calls = 2;

bool has(const LocalMask& mask, int local) {
  return (mask[static_cast<size_t>(local) / 64] >> (local % 64) & 1) != 0;
}
void add(LocalMask& mask, int local) {
  mask[static_cast<size_t>(local) / 64] |= uint64_t{1} << (local % 64);
}
void remove(LocalMask& mask, int local) {
  mask[static_cast<size_t>(local) / 64] &= ~(uint64_t{1} << (local % 64));
}
bool is_empty(const LocalMask& mask) {
  return std::ranges::all_of(mask, [](uint64_t word) { return word == 0; });
}

}  // namespace

Carrying::Carrying(const topology::Cluster& cluster, int rank, transports::NodeMemory& node,
                   transports::MessageTransport* network, const CarryPolicy& policy)
    : cluster_(cluster),
      rank_(rank),
      local_(node.local()),
      local_size_(node.local_size()),
      node_(node),
      network_(network),
      policy_(policy),
      board_(node.segment().parcels(), node.local_size(), cluster.nodes(), node.local()) {
  const bool has_board = node.segment().spec().parcel_bytes > 0;
  if (network == nullptr || !has_board || local_size_ < 2 || policy.aggregate == Aggregate::never) return;
  lanes_ = network->lanes();
  trust_.resize(static_cast<size_t>(local_size_));
  known_.resize(static_cast<size_t>(local_size_) * static_cast<size_t>(cluster.nodes()));
  for (int other = 0; other < cluster.nodes(); ++other) {
    if (other == cluster.node_of(rank) || cluster.local_size(other) <= local_) continue;
    Lane lane;
    lane.node = other;
    lane.destination = cluster.rank_at(other, local_);
    for (int local = 0; local < local_size_; ++local) add(lane.lately, local);
    own_lanes_.push_back(lane);
  }
}

// ---- a call -------------------------------------------------------------------------------------------------------------

void Carrying::begin(const algorithms::GroupSends& sends) {
  if (!possible()) return;
  inside_ = true;
  ++calls_;
  leaving_since_ = 0;
  parcels_.clear();
  items_.clear();
  for (Lane& lane : own_lanes_) {
    if (!is_empty(lane.now)) lane.lately = std::exchange(lane.now, {});
    lane.now = lane.ahead;
    take_what_is_ahead(lane, now_seconds());
  }
  const bool always = policy_.aggregate == Aggregate::always;
  worthwhile_ = sends.messages > 0 && (always || algorithms::carrying_pays(sends, policy_.cost));
  if (worthwhile_) ++worthwhile_calls_;
  // Lanes are for programs that do such a thing more than once.
  lanes_wanted_ = lanes_wanted_ || worthwhile_calls_ > (always ? 0 : 1);
  if (lanes_wanted_) open_lanes();
}

void Carrying::open_lanes() {
  for (Lane& lane : own_lanes_) board_.set_lane(lane.node, lanes_->open(lane.destination));
}

bool Carrying::wants(int carrier) {
  if (policy_.aggregate == Aggregate::always) return true;
  Trust& trust = trust_[static_cast<size_t>(carrier)];
  if (trust.period == 0) return true;
  const double now = now_seconds(), trial = board_.trial_end();
  if (calls_ >= trust.resume_at) {
    if (calls_ == trust.resume_at && now >= trial) board_.set_trial_end(now + trial_seconds);
    return true;
  }
  if (now >= trial) return false;
  if (std::exchange(trust.trial, trial) != trial) trust.trial_begin = calls_;
  return calls_ < trust.trial_begin + trial_calls;
}

void Carrying::judge(int carrier, bool paid) {
  Trust& trust = trust_[static_cast<size_t>(carrier)];
  trust.score = std::min(trust.score + (paid ? paid_score : unpaid_score), best_score);
  if (trust.score > 0) trust.period = 0;
  if (trust.score > worst_score) return;
  trust.score = worst_score - unpaid_score;
  trust.period = std::clamp(2 * trust.period, first_period, longest_period);
  trust.resume_at = (calls_ / trust.period + 1) * trust.period;
}

bool Carrying::offer(int destination, transports::MessageKey key, const void* data, size_t bytes,
                     Completion& completion) {
  const bool always = policy_.aggregate == Aggregate::always;
  if (!worthwhile_ || bytes > (always ? largest_message : algorithms::largest_worth_carrying)) return false;
  const int carrier = cluster_.local_of(destination), node = cluster_.node_of(destination);
  if (carrier >= local_size_ || !board_.has_lane(carrier, node) || !wants(carrier)) return false;
  const size_t framed = Lanes::framed(bytes);
  if (lanes_->allowance(destination) < framed) return false;
  Parcel& parcel = parcel_for(destination);
  if (parcel.slot->bytes + framed > ParcelSlot::capacity) return false;
  lanes_->frame(destination, key, data, bytes, parcel.payload + parcel.slot->bytes);
  parcel.slot->bytes += static_cast<uint32_t>(framed);
  (parcel.first == none ? parcel.first : items_[parcel.last].next) = items_.size();
  parcel.last = items_.size();
  items_.push_back({key, data, bytes, parcel.slot->bytes, &completion});
  completion.state = Completion::State::pending;
  return true;
}

Carrying::Parcel& Carrying::parcel_for(int destination) {
  const int carrier = cluster_.local_of(destination), node = cluster_.node_of(destination);
  KnownParcel& known = known_[static_cast<size_t>(carrier * cluster_.nodes() + node)];
  if (known.call != calls_) {
    known = {calls_, parcels_.size()};
    ParcelSlot& slot = board_.slot(local_, carrier, node);
    slot.bytes = 0;
    parcels_.push_back({destination, carrier, &slot, board_.payload(local_, carrier, node)});
  }
  return parcels_[known.index];
}

void Carrying::lay_out() {
  if (!possible()) return;
  laid_out_at_ = now_seconds();
  for (const Parcel& parcel : parcels_) board_.lay_out(parcel.carrier, cluster_.node_of(parcel.destination));
  board_.enter(calls_);
  LocalMask told{};
  for (const Parcel& parcel : parcels_) {
    if (parcel.carrier == local_ || has(told, parcel.carrier)) continue;
    add(told, parcel.carrier);
    node_.notify_message(parcel.carrier);
  }
  stays_awake_ = !parcels_.empty();
}

Result<bool> Carrying::progress() {
  if (!inside_) return false;
  const double now = now_seconds();
  stays_awake_ = false;
  bool moved = progress_lanes(now, false);
  EPCCL_ASSIGN(const bool concluded, progress_parcels(now));
  return moved || concluded;
}

bool Carrying::pending() const {
  return std::ranges::any_of(own_lanes_, [](const Lane& lane) { return lane.tail != nullptr; });
}

bool Carrying::end() {
  const double now = now_seconds();
  if (leaving_since_ == 0) leaving_since_ = now;
  progress_lanes(now, true);
  for (Lane& lane : own_lanes_) {
    if (lane.tail == nullptr) continue;
    if (now - leaving_since_ < policy_.leave_seconds) return false;
    give_tail_back(lane);
  }
  inside_ = stays_awake_ = false;
  board_.leave(calls_);
  if (lanes_wanted_) open_lanes();
  return true;
}

// ---- as an origin -------------------------------------------------------------------------------------------------------

Result<bool> Carrying::progress_parcels(double now) {
  bool moved = false;
  for (size_t i = 0; i < parcels_.size();) {
    EPCCL_ASSIGN(const bool concluded, conclude(parcels_[i], now));
    if (concluded) {
      std::swap(parcels_[i], parcels_.back());
      parcels_.pop_back();
    } else {
      ++i;
    }
    moved |= concluded;
  }
  return moved;
}

Result<bool> Carrying::conclude(Parcel& parcel, double now) {
  ParcelSlot& slot = *parcel.slot;
  switch (slot.state.load(std::memory_order_acquire)) {
    case ParcelSlot::offered:
      if (now - laid_out_at_ < policy_.patience_seconds && !carrier_is_gone(parcel.carrier)) {
        stays_awake_ = true;
        return false;
      }
      if (!ParcelBoard::withdraw(slot)) return false;
      ++counters_.withdrawn;
      judge(parcel.carrier, false);
      EPCCL_TRY(send_rest(parcel, 0));
      return true;
    case ParcelSlot::carried:
      judge(parcel.carrier, slot.company > 1);
      for (size_t i = parcel.first; i != none; i = items_[i].next) {
        const Item& item = items_[i];
        ++counters_.carried;
        item.completion->bytes = item.bytes;
        item.completion->state = Completion::State::done;
      }
      ParcelBoard::put_down(slot, ParcelSlot::empty);
      return true;
    case ParcelSlot::returned: {
      const size_t taken = slot.taken;
      ++counters_.returned;
      judge(parcel.carrier, false);
      ParcelBoard::put_down(slot, ParcelSlot::empty);
      EPCCL_TRY(send_rest(parcel, taken));
      return true;
    }
    default:
      return false;  // held: the carrier wakes this rank when it puts it down
  }
}

// What the lane has taken of a frame in part its reader drops.
Status Carrying::send_rest(const Parcel& parcel, size_t from) {
  for (size_t i = parcel.first; i != none; i = items_[i].next) {
    const Item& item = items_[i];
    if (item.end <= from) {
      item.completion->bytes = item.bytes;
      item.completion->state = Completion::State::done;
      continue;
    }
    lanes_->unframe(parcel.destination, Lanes::framed(item.bytes));
    item.completion->state = Completion::State::idle;
    EPCCL_TRY(network_->send(parcel.destination, item.key, item.data, item.bytes, *item.completion));
  }
  return {};
}

// It has been in its call of the same number, and does not come again for this one.
bool Carrying::carrier_is_gone(int carrier) const {
  return carrier != local_ && !board_.inside(carrier) && board_.calls(carrier) >= calls_;
}

// ---- as a carrier -------------------------------------------------------------------------------------------------------

bool Carrying::progress_lanes(double now, bool leaving) {
  collect(now);
  bool moved = false;
  for (Lane& lane : own_lanes_) {
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

void Carrying::collect(double now) {
  const LocalMask origins = board_.collect();
  if (is_empty(origins)) return;
  for (Lane& lane : own_lanes_)
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
void Carrying::take_what_is_ahead(Lane& lane, double since) {
  if (is_empty(lane.ahead)) return;
  if (is_empty(lane.offers)) lane.since = since;
  for (size_t word = 0; word < lane.ahead.size(); ++word) lane.offers[word] |= lane.ahead[word];
  lane.ahead = {};
}

bool Carrying::is_due(const Lane& lane, double now) const {
  if (now - lane.since >= policy_.gather_seconds) return true;
  for (int local = 0; local < local_size_; ++local)
    if (expects(lane, local)) return false;
  return true;
}

bool Carrying::expects(const Lane& lane, int local) const {
  if (has(lane.offers, local) || board_.calls(local) >= calls_) return false;
  return has(lane.lately, local) || lane.since < board_.trial_end();
}

bool Carrying::flush(Lane& lane, double now) {
  std::array<iovec, transports::node_max_ranks> pieces;
  std::array<int, transports::node_max_ranks> origins;
  size_t count = 0, room = lanes_->room(lane.destination);
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
      continue;
    }
    room -= slot.bytes;
    origins[count] = origin;
    pieces[count++] = {board_.payload(origin, local_, lane.node), slot.bytes};
  }
  size_t written = lanes_->write(lane.destination, std::span(pieces).first(count));
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
    slot.company = static_cast<uint32_t>(count);
    ParcelBoard::put_down(slot, ParcelSlot::carried);
    if (origins[i] != local_) node_.notify_message(origins[i]);
  }
  return count > 0 && !has(lane.offers, origins[0]);
}

bool Carrying::write_tail(Lane& lane, double now) {
  ParcelSlot& slot = *lane.tail;
  std::byte* const payload = board_.payload(lane.tail_origin, local_, lane.node);
  const iovec rest{payload + lane.tail_written, slot.bytes - lane.tail_written};
  const size_t written = lanes_->write(lane.destination, std::span(&rest, 1));
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

void Carrying::give_tail_back(Lane& lane) {
  ++counters_.cuts;
  board_.set_lane(lane.node, false);
  lanes_->cut(lane.destination);
  lane.tail->taken = static_cast<uint32_t>(lane.tail_written);
  ParcelBoard::put_down(*lane.tail, ParcelSlot::returned);
  if (lane.tail_origin != local_) node_.notify_message(lane.tail_origin);
  lane.tail = nullptr;
}

}  // namespace epccl::runtime
