#include "runtime/messages/carrying.hpp"

#include <utility>

#include "base/clock.hpp"
#include "runtime/messages/local_mask.hpp"

namespace epccl::runtime {

using transports::Completion;
using transports::Lanes;
using transports::LocalMask;
using transports::ParcelBoard;
using transports::ParcelSlot;

Carrying::Carrying(const topology::Cluster& cluster, int rank, transports::NodeMemory& node,
                   transports::MessageTransport* network, const CarryPolicy& policy)
    : cluster_(cluster),
      rank_(rank),
      local_(node.local()),
      local_size_(node.local_size()),
      node_(node),
      network_(network),
      policy_(policy),
      board_(node.segment().parcels(), node.local_size(), cluster.nodes(), node.local()),
      trust_(board_, node.local_size()) {
  const bool has_board = node.segment().spec().parcel_bytes > 0;
  if (network == nullptr || !has_board || local_size_ < 2 || policy.aggregate == Aggregate::never) return;
  lanes_ = network->lanes();
  known_.resize(static_cast<size_t>(local_size_) * static_cast<size_t>(cluster.nodes()));
  if (lanes_ != nullptr) carrier_.emplace(cluster, rank, node, *lanes_, board_, policy_);
}

// ---- a call -------------------------------------------------------------------------------------------------------------

void Carrying::begin(const algorithms::GroupSends& sends) {
  if (!possible()) return;
  inside_ = true;
  ++calls_;
  parcels_.clear();
  items_.clear();
  carrier_->begin(calls_);
  const bool always = policy_.aggregate == Aggregate::always;
  worthwhile_ = sends.messages > 0 && (always || algorithms::carrying_pays(sends, policy_.cost));
  if (worthwhile_) ++worthwhile_calls_;
  // Lanes are for programs that do such a thing more than once.
  lanes_wanted_ = lanes_wanted_ || worthwhile_calls_ > (always ? 0 : 1);
  if (lanes_wanted_) carrier_->open();
}

uint64_t Carrying::largest() const {
  return policy_.aggregate == Aggregate::always ? largest_message : algorithms::largest_worth_carrying;
}

bool Carrying::wants(int carrier) {
  return policy_.aggregate == Aggregate::always || trust_.wants(carrier, calls_);
}

bool Carrying::offer(int destination, transports::MessageKey key, const void* data, size_t bytes,
                     Completion& completion) {
  if (!worthwhile_ || bytes > largest()) return false;
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
  const bool moved = carrier_->progress(now, false);
  stays_awake_ = carrier_->stays_awake();
  EPCCL_ASSIGN(const bool concluded, progress_parcels(now));
  return moved || concluded;
}

bool Carrying::pending() const {
  return carrier_ && carrier_->pending();
}

bool Carrying::end() {
  if (!carrier_->end(now_seconds())) {
    stays_awake_ = stays_awake_ || carrier_->stays_awake();
    return false;
  }
  inside_ = stays_awake_ = false;
  board_.leave(calls_);
  if (lanes_wanted_) carrier_->open();
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
      trust_.judge(parcel.carrier, calls_, false);
      EPCCL_TRY(send_rest(parcel, 0));
      return true;
    case ParcelSlot::carried:
      trust_.judge(parcel.carrier, calls_, slot.company > 1);
      for (size_t i = parcel.first; i != none; i = items_[i].next) was_carried(items_[i]);
      ParcelBoard::put_down(slot, ParcelSlot::empty);
      return true;
    case ParcelSlot::returned: {
      const size_t taken = slot.taken;
      ++counters_.returned;
      trust_.judge(parcel.carrier, calls_, false);
      ParcelBoard::put_down(slot, ParcelSlot::empty);
      EPCCL_TRY(send_rest(parcel, taken));
      return true;
    }
    default:
      return false;  // held: the carrier wakes this rank when it puts it down
  }
}

void Carrying::was_carried(const Item& item) {
  ++counters_.carried;
  counters_.carried_bytes += item.bytes;
  item.completion->bytes = item.bytes;
  item.completion->finish(Completion::State::done);
}

// What the lane has taken of a frame in part its reader drops.
Status Carrying::send_rest(const Parcel& parcel, size_t from) {
  for (size_t i = parcel.first; i != none; i = items_[i].next) {
    const Item& item = items_[i];
    if (item.end <= from) {
      was_carried(item);
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

}  // namespace epccl::runtime
