#include "api/device/which_device.hpp"

#include <optional>
#include <string>

#include "device/gpus.hpp"
#include "device/host/host_stream.hpp"

namespace epccl::api {
namespace {

std::string kind_of(const std::optional<device::MemoryInfo>& memory) {
  return memory ? fmt::format("memory of GPU {}", memory->ordinal) : "host memory";
}

}  // namespace

Result<device::Device*> device_of(runtime::Communicator& communicator, std::span<const NamedBuffer> buffers,
                                  epcclStream_t stream) {
  if (!device::cuda_possible()) return static_cast<device::Device*>(nullptr);
  const NamedBuffer* first = nullptr;
  std::optional<device::MemoryInfo> found;
  for (const NamedBuffer& buffer : buffers) {
    if (buffer.address == nullptr) continue;
    auto memory = device::cuda_memory_at(buffer.address);
    if (first == nullptr || first->bytes == 0) {
      first = &buffer;
      found = memory;
    } else if (buffer.bytes > 0 &&
               (found.has_value() != memory.has_value() || (found && found->ordinal != memory->ordinal))) {
      return error(Code::invalid_argument, "{} {} is {}, but {} {} is {}", first->name, first->address,
                   kind_of(found), buffer.name, buffer.address, kind_of(memory));
    }
  }
  if (found && stream != nullptr && device::find_stream(stream) != nullptr)
    return error(Code::invalid_argument,
                 "{} {} is {}, but stream {} is one of epcclStreamCreate, for host memory", first->name,
                 first->address, kind_of(found), stream);
  if (found) return device::cuda_device(found->ordinal);
  // With nothing to move the stream alone tells.
  if (first == nullptr) return device_of_stream(communicator, stream);
  return static_cast<device::Device*>(nullptr);
}

Result<device::Device*> device_of_stream(runtime::Communicator& communicator, epcclStream_t stream) {
  device::Device* const none = nullptr;
  if (stream == nullptr || !device::cuda_possible() || device::find_stream(stream) != nullptr) return none;
  if (device::Device* known = communicator.device_in_use(); known != nullptr) return known;
  const auto current = device::current_cuda_device();
  return current ? device::cuda_device(*current) : none;
}

Result<device::Device*> device_of_message(runtime::Communicator& communicator, const void* buffer,
                                          uint64_t bytes, epcclStream_t stream) {
  if (bytes > 0) {
    EPCCL_ASSIGN(device::Device * gpu, device_of(communicator, {{"buffer", buffer, bytes}}, stream));
    if (gpu != nullptr || !device::is_pinned_memory(buffer)) return gpu;
  }
  return device_of_stream(communicator, stream);
}

bool is_gpu_memory(const void* address) {
  return address != nullptr && device::cuda_possible() && device::cuda_memory_at(address).has_value();
}

Status need_host_memory(const char* what, const void* address) {
  if (address == nullptr || !device::cuda_possible()) return {};
  const auto memory = device::cuda_memory_at(address);
  if (!memory) return {};
  return error(Code::invalid_argument, "{} {} is memory of GPU {}: only host memory is possible there", what,
               address, memory->ordinal);
}

Status check_scalar(const device::Device& device, const void* scalar) {
  const auto memory = scalar != nullptr ? device::cuda_memory_at(scalar) : std::nullopt;
  if (!memory || memory->ordinal == device.ordinal()) return {};
  return error(Code::invalid_argument,
               "the operation's scalar {} is {}, but the buffers are memory of GPU {}", scalar,
               kind_of(memory), device.ordinal());
}

}  // namespace epccl::api
