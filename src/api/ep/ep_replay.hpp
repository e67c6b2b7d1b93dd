// Captured calls of an EP handle that a thread of the library makes at each run of their graph (capture_replayed()).
#pragma once

#include <memory>
#include <string>

#include "api/ep/ep_handles.hpp"
#include "base/status.hpp"
#include "ep/kernels/replayed_routing.hpp"

namespace epccl::api {

/// Whether such a thread makes the handle's captured calls; else they are kernels of the graph. The same on every rank.
bool is_replayed(const EpHandle& target, const runtime::OnDevice& on);

/// What such calls share, made for the first. Error: the call cannot be captured, `text` names it.
Result<std::shared_ptr<ep::ReplayedRouting>> replayed_routing_of(device::Device& device, EpHandle& target,
                                                                 const std::string& text);

}  // namespace epccl::api
