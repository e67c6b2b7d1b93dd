// What the opaque handles of the C API stand for. A handle is an address that is looked up, never dereferenced, so a wrong
// or a freed one is an error and not a crash.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "device/host/host_event.hpp"
#include "device/host/host_stream.hpp"
#include "epccl/epccl.h"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

using CommPtr = std::shared_ptr<runtime::Communicator>;

epcclComm_t add_communicator(CommPtr communicator);
/// Any live communicator, also a finalized or failed one.
Result<CommPtr> find_communicator(epcclComm_t handle);
/// One that may still run collectives.
Result<CommPtr> find_usable_communicator(epcclComm_t handle);
/// Forgets the handle; whoever is still inside a call keeps the communicator alive.
Result<CommPtr> remove_communicator(epcclComm_t handle);

/// Null for the NULL stream.
Result<device::HostStream*> find_stream(epcclStream_t handle);
Result<std::shared_ptr<device::HostEvent>> find_event(epcclEvent_t handle);

}  // namespace epccl::api
