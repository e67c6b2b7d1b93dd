// Sends and receives of a GPU's memory.
#include <memory>

#include "api/device/device_calls.hpp"
#include "api/device/device_place.hpp"
#include "api/groups/capturing.hpp"
#include "api/groups/first_call.hpp"

namespace epccl::api {

// An item among the group's others, made by the communicator's thread for calls on this GPU.
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::P2pOperation operation,
                        void* stream) {
  EPCCL_ASSIGN(const bool captured, is_captured(device, stream));
  EPCCL_ASSIGN(runtime::OnDevice * on, communicator->on_device(device));
  EPCCL_ASSIGN(const runtime::EngineUse use, communicator->gpu_engine_use());
  auto end = std::make_shared<runtime::GpuEnd>();
  end->worker = on->worker.get();
  end->rooms = on->rooms.get();
  EPCCL_TRY(on->messages->plan(
      *end,
      {operation.is_send, bytes_at(operation.is_send ? operation.source : operation.destination),
       operation.bytes, operation.peer, operation.text()},
      use));
  if (captured) {
    EPCCL_ASSIGN(end->capture, device.borrow_stream(stream));
    end->stream = stream;
  } else {
    EPCCL_ASSIGN(end->turn, turn_of_call(*on->worker, stream));
  }
  const FirstCall call(end->turn);
  operation.gpu = std::move(end);
  Item item;
  item.communicator = std::move(communicator);
  item.stream = &on->worker->stream();
  item.what = std::move(operation);
  Status issued = submit(std::move(item));
  return call.wait_if(std::move(issued));
}

}  // namespace epccl::api
