// Sends and receives of a GPU's memory.
#include <memory>

#include "api/capturing.hpp"
#include "api/device_calls.hpp"
#include "api/device_place.hpp"

namespace epccl::api {

using runtime::StagedCalls;

// The send or receive is an item among the group's others, on pinned memory of its own. What it sends is copied in before the
// group begins; what it received is copied out by an item that comes after all sends and receives.
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::P2pOperation operation,
                        void* stream) {
  EPCCL_ASSIGN(const bool captured, is_captured(device, stream));
  if (captured)
    return not_capturable(operation.is_send ? "send" : "recv", "the host makes it, from pinned memory");
  EPCCL_ASSIGN(runtime::Communicator::OnDevice * on, communicator->on_device(device));
  EPCCL_ASSIGN(StagedCalls::Borrowed pinned, on->staged->borrow(operation.bytes));
  EPCCL_ASSIGN(Place place, take_place(device, communicator, stream));
  runtime::P2pOperation on_host = operation;
  const uint64_t bytes = operation.bytes;
  auto copied_in = std::make_shared<Status>();
  if (operation.is_send) {
    on_host.source = pinned->data();
    place.staged->worker().enqueue([place, pinned, copied_in, from = bytes_at(operation.source), bytes] {
      return *copied_in = place.staged->copy(*place.turn, pinned->data(), from, bytes, false);
    });
  } else {
    on_host.destination = pinned->data();
  }
  auto after = [place, pinned, copied_in, to = bytes_at(operation.destination), bytes,
                is_send = operation.is_send] {
    return is_send ? *copied_in : place.staged->copy(*place.turn, to, pinned->data(), bytes);
  };
  Item moving;
  moving.communicator = communicator;
  moving.stream = &place.staged->worker();
  moving.what = on_host;
  Item ending;
  ending.communicator = std::move(communicator);
  ending.stream = &place.staged->worker();
  ending.what = std::move(after);
  ending.predict = [] { return 0.0; };
  place = {};
  // Both in one group, so that sends and receives of all come first.
  EPCCL_TRY(group_start());
  Status status = submit(std::move(moving));
  if (status.ok()) status = submit(std::move(ending));
  Status ended = group_end();
  return status.ok() ? ended : status;
}

}  // namespace epccl::api
