#include "api/device/device_place.hpp"

namespace epccl::api {

Result<Place> take_place(runtime::OnDevice& on, void* stream) {
  EPCCL_ASSIGN(TurnPtr turn, turn_of_call(*on.worker, stream));
  return Place{&on, std::move(turn)};
}

Result<Place> begun_place(runtime::OnDevice& on) {
  return Place{&on, std::make_shared<runtime::Turn>()};
}

}  // namespace epccl::api
