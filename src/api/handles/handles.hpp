// What the opaque handles of the C API stand for. A handle is a value that is looked up, never dereferenced, so a wrong
// or a freed one is an error and not a crash.
#pragma once

#include <memory>

#include "api/handles/comm_handle.hpp"
#include "base/status.hpp"
#include "device/host/host_event.hpp"
#include "device/host/host_stream.hpp"
#include "epccl/epccl.h"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

/// How a handle came to its end, for who uses it afterwards.
enum class End : uint8_t { destroyed, aborted, failed };

/// A value that no other communicator of this process has or had.
epcclComm_t add_handle(HandlePtr handle);
Result<HandlePtr> find_handle(epcclComm_t comm);
/// Forgets the handle; whoever is still inside a call keeps the communicator alive.
Result<HandlePtr> remove_handle(epcclComm_t comm, End end);

/// How many there are.
size_t count_handles();

/// Any communicator that is there, also a finalized or failed one.
Result<CommPtr> find_communicator(epcclComm_t comm);
/// One that may still run collectives.
Result<CommPtr> find_usable_communicator(epcclComm_t comm);

/// Null for the NULL stream.
Result<device::HostStream*> find_stream(epcclStream_t handle);
Result<std::shared_ptr<device::HostEvent>> find_event(epcclEvent_t handle);

}  // namespace epccl::api
