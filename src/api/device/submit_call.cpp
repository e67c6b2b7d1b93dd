#include "api/device/submit_call.hpp"

#include <vector>

#include "api/groups/first_call.hpp"
#include "base/log.hpp"
#include "device/kernels/kernel_queue.hpp"

namespace epccl::api {

void log_maker(const Place& place, const runtime::Communicator& communicator, const std::string& text,
               const runtime::EngineChoice& choice) {
  log::info_once(log::coll, communicator.rank(), "{} on GPU {}: {} ({})", text,
                 place.on->worker->device().ordinal(),
                 choice.engines ? choice.movers() : "staged through pinned host memory", choice.why);
}

Status submit_at(Place place, CommPtr communicator, CollectiveWork work) {
  const FirstCall call(place.turn);
  Item item{std::move(communicator), &place.on->worker->stream(), std::move(work)};
  place = {};  // the item holds the turn
  Status issued = submit(std::move(item));
  return call.wait_if(std::move(issued));
}

Status capture(runtime::OnDevice& on, device::Device& device, CommPtr communicator, const std::string& text,
               void* stream, std::function<Status(device::Queue&)> add) {
  EPCCL_ASSIGN(std::shared_ptr<device::Queue> users, device.borrow_stream(stream));
  if (!device::kernels::has_kernels(*users)) return not_capturable(text, "this build has no CUDA kernels");
  EPCCL_TRY(communicator->prepare_captures(on));
  log::info_once(log::coll, communicator->rank(), "{} on GPU {}: captured, copy engines", text,
                 device.ordinal());
  Item item;
  item.captured = {&device, stream, text};
  item.communicator = std::move(communicator);
  item.what = CollectiveWork{[users, add = std::move(add)] { return add(*users); }, [] { return 0.0; }};
  return submit(std::move(item));
}

Status copy_in_graph(device::Queue& users, const MappableBuffers::Used& input,
                     const runtime::DeviceRooms::Borrowed& copy) {
  EPCCL_TRY(users.keep_in_graph(copy));
  std::vector<device::CopyWork> copies;
  for (const auto& piece : input.all_pieces())
    copies.push_back({copy->data() + piece.offset, piece.device, piece.bytes});
  return users.copy(copies);
}

}  // namespace epccl::api
