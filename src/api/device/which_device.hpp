// On which GPU's memory a call's buffers are: found out by their addresses.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "api/handles/handles.hpp"
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

/// Error: it is memory of another GPU. `scalar`: of a reduction of memory of `device`; null: none.
Status check_scalar(const device::Device& device, const void* scalar);

}  // namespace epccl::api
