// Memory of GPUs, where UCX was built with CUDA.
#include "device/device.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace epccl::transports {

/// UCX registers it when a message needs that, and keeps the registrations itself.
class UcxTransport::Gpu final : public DeviceMemory {
 public:
  explicit Gpu(device::Device& device) : device_(device) {}
  device::Device& device() const { return device_; }

 private:
  device::Device& device_;
};

Result<std::shared_ptr<const DeviceMemory>> UcxTransport::device_memory(device::Device& device,
                                                                        const void* data,
                                                                        uint64_t /*bytes*/) {
  if (!options_.device_memory) return error(Code::invalid_usage, "EPCCL_GPU_DIRECT=0");
  EPCCL_TRY(context_->moves_cuda_memory());
  if (device.kind() != device::DeviceKind::cuda || !device.info(data))
    return error(Code::invalid_argument, "{} is not memory of a GPU", data);
  return std::shared_ptr<const DeviceMemory>(std::make_shared<Gpu>(device));
}

Status UcxTransport::send_from(const DeviceMemory& /*memory*/, int peer_rank, MessageKey key,
                               const void* data, size_t bytes, Completion& completion) {
  return start_send(peer_rank, key, data, bytes, completion, true);
}

Status UcxTransport::recv_into(const DeviceMemory& memory, int peer_rank, MessageKey key, void* data,
                               size_t bytes, Completion& completion) {
  return start_recv(peer_rank, key, data, bytes, completion, &static_cast<const Gpu&>(memory).device());
}

}  // namespace epccl::transports
