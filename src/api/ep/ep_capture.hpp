// What the captured calls of an EP handle share that are kernels of their graph; others: ep_replay.hpp.
#pragma once

#include <string>

#include "api/ep/ep_handles.hpp"
#include "base/status.hpp"
#include "ep/kernels/kernel_transfer.hpp"

namespace epccl::api {

/// Error: its sizes are not static, so nothing of it can be captured.
Status check_static(const EpHandle& target, const std::string& text);

/// The layout that kernels make of the handle's routings, made when first asked for.
Result<std::shared_ptr<ep::DeviceLayout>> layout_of(EpHandle& target, runtime::StagedCalls& staged);

/// Everything that a captured call needs. Error: it cannot be captured, `text` names it.
struct CaptureOn {
  runtime::OnDevice* on = nullptr;
  std::shared_ptr<device::Queue> stream;
  ep::Captured into;
};
Result<CaptureOn> prepare_capture(device::Device& device, EpHandle& target, const std::string& text,
                                  epcclStream_t stream);

}  // namespace epccl::api
