#include "runtime/bootstrap/meeting_point.hpp"

#include "runtime/bootstrap/process_hubs.hpp"

namespace epccl::runtime {

Result<std::unique_ptr<MeetingPoint>> MeetingPoint::open() {
  EPCCL_TRY(start_crypto());
  EPCCL_ASSIGN(std::shared_ptr<Hub> hub, Hub::stand());
  auto point = std::make_unique<MeetingPoint>();
  point->id_ = encode(hub->rendezvous());
  point->hub_ = std::move(hub);
  return point;
}

Status MeetingPoint::serve() {
  if (served_) return {};
  EPCCL_TRY(hub_->serve());
  served_ = true;
  keep_serving(hub_);
  return {};
}

MeetingPoint::~MeetingPoint() {
  if (hub_ != nullptr) hub_->retire();
}

}  // namespace epccl::runtime
