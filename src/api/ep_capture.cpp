#include "api/ep_capture.hpp"

#include "api/capturing.hpp"
#include "api/ep_calls.hpp"
#include "base/log.hpp"
#include "ep/captured_routing.hpp"

namespace epccl::api {
namespace {

Status check_capturable(const EpHandle& target, const runtime::Communicator::OnDevice& on,
                        const std::string& text) {
  const CommPtr communicator = target.communicator();
  if (target.handle->rules().max_topk == 0)
    return not_capturable(text,
                          "its sizes follow from the routing, but for handles of static mode (static_topk)");
  if (communicator->engine_use() == runtime::EngineUse::never)
    return not_capturable(text, "kernels have to make it, and they were switched off (copy engine never)");
  if (communicator->cluster().nodes() > 1)
    return not_capturable(text,
                          "the communicator has several nodes, and messages between them are the host's");
  const runtime::EngineChoice choice = on.kernels->choose(communicator->engine_use());
  return choice.engines ? Status{} : not_capturable(text, choice.why);
}

}  // namespace

Result<std::shared_ptr<ep::DeviceLayout>> layout_of(EpHandle& target, runtime::StagedCalls& staged) {
  if (target.layout == nullptr) {
    EPCCL_ASSIGN(target.layout,
                 ep::DeviceLayout::make(target.handle->group(), target.handle->rules(), staged));
  }
  return target.layout;
}

Result<CaptureOn> prepare_capture(device::Device& device, EpHandle& target, const std::string& text,
                                  epcclStream_t stream) {
  EPCCL_TRY(check_no_ep_in_group());
  const CommPtr communicator = target.communicator();
  CaptureOn capture;
  EPCCL_ASSIGN(capture.on, communicator->on_device(device));
  EPCCL_TRY(check_capturable(target, *capture.on, text));
  EPCCL_ASSIGN(capture.stream, device.borrow_stream(stream));
  EPCCL_TRY(communicator->prepare_captures(*capture.on));
  runtime::StagedCalls& staged = *capture.on->staged;
  EPCCL_ASSIGN(auto layout, layout_of(target, staged));
  auto captured = target.captured();
  if (captured == nullptr) {
    EPCCL_ASSIGN(captured, ep::CapturedRouting::make(std::move(layout), target.handle->group(), staged));
    captured->set_tokens(target.tokens);
    target.set_captured(captured);
  }
  target.device = &device;
  capture.into = {capture.stream.get(), std::move(captured)};
  log::info(log::coll, communicator->rank(), "{} on GPU {}: captured, kernels", text, device.ordinal());
  return capture;
}

}  // namespace epccl::api
