#include "api/groups/capturing.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "device/kernels/kernel_queue.hpp"

namespace epccl::api {

Result<bool> is_captured(device::Device& device, void* stream) {
  EPCCL_ASSIGN(const auto users, device.borrow_stream(stream));
  EPCCL_ASSIGN(const uint64_t capture, users->capture());
  return capture != 0;
}

Status not_capturable(const std::string& text, const std::string& why) {
  return error(Code::invalid_usage,
               "{} cannot be part of the graph that the stream is being captured into: {}", text, why);
}

Result<Replaying> prepare_replays(device::Device& device, runtime::Communicator& communicator,
                                  runtime::OnDevice& on, const std::string& text, void* stream) {
  EPCCL_ASSIGN(std::shared_ptr<device::Queue> users, device.borrow_stream(stream));
  if (!device::kernels::has_kernels(*users)) return not_capturable(text, "this build has no CUDA kernels");
  EPCCL_TRY(communicator.prepare_captures(on));
  log::info_once(log::coll, communicator.rank(),
                 "{} on GPU {}: captured, a thread of the library makes it at each run", text,
                 device.ordinal());
  return Replaying{on.replayed.get(), std::move(users)};
}

Status capture_replayed(device::Device& device, CommPtr communicator, const std::string& text,
                        std::function<Status()> work, void* stream) {
  EPCCL_ASSIGN(runtime::OnDevice * on, communicator->on_device(device));
  EPCCL_ASSIGN(Replaying replaying, prepare_replays(device, *communicator, *on, text, stream));
  Item item;
  item.captured = {&device, stream, text, false};
  item.communicator = std::move(communicator);
  item.what = CollectiveWork{[replaying = std::move(replaying), text, work = std::move(work)] {
                               return replaying.calls->add(text, work, *replaying.stream);
                             },
                             [] { return 0.0; }};
  return submit(std::move(item));
}

// Each would wait for the others, which come behind it in the stream.
Status check_captured_streams(const std::vector<Item>& items) {
  for (auto item = items.begin(); item != items.end(); ++item) {
    if (!item->captured) continue;
    const auto is_another_rank = [&](const Item& earlier) {
      return earlier.captured && earlier.communicator != item->communicator &&
             earlier.communicator->key() == item->communicator->key() &&
             earlier.captured->device == item->captured->device &&
             earlier.captured->stream == item->captured->stream;
    };
    if (std::any_of(items.begin(), item, is_another_rank))
      return not_capturable(
          item->captured->text,
          "another rank of the communicator has a call on the stream, and ranks that one thread "
          "drives need a stream each while they are captured");
  }
  return {};
}

}  // namespace epccl::api
