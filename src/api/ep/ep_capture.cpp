#include "api/ep/ep_capture.hpp"

#include "api/ep/ep_calls.hpp"
#include "api/groups/capturing.hpp"
#include "base/log.hpp"
#include "ep/kernels/captured_routing.hpp"

namespace epccl::api {

Status check_static(const EpHandle& target, const std::string& text) {
  if (target.handle->rules().max_topk > 0) return {};
  return not_capturable(text,
                        "its sizes follow from the routing, but for handles of static mode (static_topk)");
}

Result<std::shared_ptr<ep::DeviceLayout>> layout_of(EpHandle& target, runtime::StagedCalls& staged) {
  if (target.layout == nullptr) {
    EPCCL_ASSIGN(target.layout,
                 ep::DeviceLayout::make(target.handle->group(), target.handle->rules(), staged));
  }
  return target.layout;
}

Result<CaptureOn> prepare_capture(device::Device& device, EpHandle& target, const std::string& text,
                                  epcclStream_t stream) {
  const CommPtr communicator = target.communicator();
  EPCCL_TRY(check_static(target, text));
  if (target.replayed() != nullptr)
    return not_capturable(
        text,
        "captured calls of this handle are made by the host, and this one would be kernels: who "
        "makes them must not change between them");
  CaptureOn capture;
  EPCCL_ASSIGN(capture.on, communicator->on_device(device));
  EPCCL_ASSIGN(capture.stream, device.borrow_stream(stream));
  EPCCL_TRY(communicator->prepare_captures(*capture.on));
  EPCCL_ASSIGN(auto layout, layout_of(target, *capture.on->staged));
  auto captured = target.captured();
  if (captured == nullptr) {
    EPCCL_ASSIGN(captured,
                 ep::CapturedRouting::make(std::move(layout), target.handle->group(), *capture.on->rooms));
    captured->set_tokens(target.tokens);
    target.set_captured(captured);
  }
  target.device = &device;
  capture.into = {capture.stream.get(), std::move(captured)};
  log::info_once(log::coll, communicator->rank(), "{} on GPU {}: captured, kernels", text, device.ordinal());
  return capture;
}

}  // namespace epccl::api
