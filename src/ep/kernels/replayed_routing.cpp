#include "ep/kernels/replayed_routing.hpp"

#include <utility>

namespace epccl::ep {

Status ReplayedRouting::agree_on_update(const TopK& sizes, Status& agreed) {
  return handle_->agree_on(sizes, ", captured for the host to replay", agreed);
}

CallShape ReplayedRouting::shape() const {
  return shape_of_captured(*handle_, tokens_);
}

Status ReplayedRouting::check(const DispatchCall& call) {
  EPCCL_TRY(check_dispatch(shape(), call));
  brings_weights_ = call.weights.given();
  return {};
}

Status ReplayedRouting::check(const CombineCall& call) {
  return check_combine(shape(), call,
                       brings_weights_ || handle_->has_weights() || handle_->kernel_weights() != nullptr);
}

void ReplayedRouting::share_one(KernelRooms::Room& room, KernelRooms::Room& shared) {
  if (room == nullptr) return;
  if (shared != nullptr && shared->bytes() >= room->bytes())
    room = shared;
  else
    shared = room;
}

// What outlives its call (tables of the routing, weights that a dispatch brought) is the routing's, or the last dispatch's.
void ReplayedRouting::share(KernelRooms& rooms, Kind kind) {
  KernelRooms& shared = shared_[static_cast<size_t>(kind)];
  share_one(rooms.tables_there, shared.tables_there);
  share_one(rooms.tables_here, shared.tables_here);
  share_one(rooms.rows, shared.rows);
  share_one(rooms.scales, shared.scales);
  share_one(rooms.weights, shared.weights);
  share_one(rooms.plan_tables.there, shared.plan_tables.there);
  share_one(rooms.plan_tables.here, shared.plan_tables.here);
  share_one(rooms.quantised, shared.quantised);
  share_one(rooms.home, shared.home);
}

Result<bool> ReplayedRouting::update(const TopK& topk, bool on_device) {
  Status wrong;
  EPCCL_TRY(handle_->update_again(topk, on_device, wrong));
  if (!wrong.ok()) keep(std::move(wrong));
  return has_routing();
}

bool ReplayedRouting::has_routing() {
  if (handle_->failure().ok()) return true;
  keep(Status(handle_->failure()).with_context("a replay: the handle has no valid routing"));
  return false;
}

void ReplayedRouting::keep(Status error) {
  const std::lock_guard lock(mutex_);
  if (first_error_.ok()) first_error_ = std::move(error);
}

Status ReplayedRouting::take_error() {
  const std::lock_guard lock(mutex_);
  return std::exchange(first_error_, Status());
}

}  // namespace epccl::ep
