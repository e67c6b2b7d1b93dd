// Calls whose buffers are memory of a GPU: found out by their addresses, and queued.
#pragma once

#include <initializer_list>
#include <span>

#include "api/groups/group.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

struct NamedBuffer {
  const char* name;
  const void* address;
  uint64_t bytes;
};

/// The GPU whose memory the buffers are; null: host memory, pinned too. Error: of several kinds, or of several GPUs. Empty buffers
/// only count where all are; without any address the stream tells, as device_of_stream() has it.
Result<device::Device*> device_of(runtime::Communicator& communicator, std::span<const NamedBuffer> buffers,
                                  epcclStream_t stream);
inline Result<device::Device*> device_of(runtime::Communicator& communicator,
                                         std::initializer_list<NamedBuffer> buffers, epcclStream_t stream) {
  return device_of(communicator, std::span(buffers.begin(), buffers.size()), stream);
}

/// The GPU of a stream that is none of the host's: the communicator's, or before that has one the calling thread's. null: there is none,
/// or the stream is the host's, or NULL.
Result<device::Device*> device_of_stream(runtime::Communicator& communicator, epcclStream_t stream);

/// As device_of(), of a send or receive: pinned host memory, and nothing at all wherever it points, can be sent in the order of a
/// GPU's stream, too. That is one which is none of the host's.
Result<device::Device*> device_of_message(runtime::Communicator& communicator, const void* buffer,
                                          uint64_t bytes, epcclStream_t stream);

bool is_gpu_memory(const void* address);

/// Error where a buffer is memory of a GPU: for what takes host memory only; `what` names it.
Status need_host_memory(const char* what, const void* address);

// The same calls as on host memory, on a stream of the GPU's (a cudaStream_t; null: the GPU's NULL stream). None blocks, but for runtime::FirstCalls.
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::AlltoallCall call,
                        void* stream);
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::AlltoallvCall call,
                        void* stream);
/// `scalar`: of a reduction, read when the call runs; null: none.
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::CollectiveCall call,
                        const void* scalar, void* stream);
Status submit_on_device(device::Device& device, CommPtr communicator, runtime::P2pOperation operation,
                        void* stream);

}  // namespace epccl::api
