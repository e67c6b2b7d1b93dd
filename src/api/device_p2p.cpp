// Sends and receives of a GPU's memory.
#include <memory>

#include "api/capturing.hpp"
#include "api/device_calls.hpp"
#include "api/device_place.hpp"

namespace epccl::api {

// An item among the group's others, made by the communicator's thread for calls on this GPU.
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::P2pOperation operation,
                        void* stream) {
  EPCCL_ASSIGN(const bool captured, is_captured(device, stream));
  if (captured)
    return not_capturable(operation.is_send ? "send" : "recv",
                          "ranks tell each other on the host where buffers lie");
  EPCCL_ASSIGN(runtime::Communicator::OnDevice * on, communicator->on_device(device));
  auto end = std::make_shared<runtime::GpuEnd>();
  end->staged = on->staged.get();
  EPCCL_TRY(on->messages->plan(
      *end,
      {operation.is_send, bytes_at(operation.is_send ? operation.source : operation.destination),
       operation.bytes, operation.peer, operation.text()},
      communicator->engine_use()));
  EPCCL_ASSIGN(end->turn, turn_of_call(*on->staged, stream));
  operation.gpu = std::move(end);
  Item item;
  item.communicator = std::move(communicator);
  item.stream = &on->staged->worker();
  item.what = std::move(operation);
  return submit(std::move(item));
}

}  // namespace epccl::api
