// Calls whose buffers are memory of a GPU, queued.
#pragma once

#include "api/device/which_device.hpp"
#include "api/groups/group.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

// The same calls as on host memory, on a stream of the GPU's (a cudaStream_t; null: the GPU's NULL stream). None blocks, but for runtime::FirstCalls.
// `copied`: they read a copy of their input, since their output overlaps that.
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::AlltoallCall call, bool copied,
                        void* stream);
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::AlltoallvCall call,
                        bool copied, void* stream);
/// `scalar`: of a reduction, read when the call runs; null: none.
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::CollectiveCall call,
                        bool copied, const void* scalar, void* stream);
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::P2pOperation operation,
                        void* stream);

}  // namespace epccl::api
