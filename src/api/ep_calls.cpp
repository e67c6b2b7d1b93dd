#include "api/ep_calls.hpp"

#include <vector>

#include "api/device_calls.hpp"
#include "api/group.hpp"

namespace epccl::api {
namespace {

std::vector<NamedBuffer> buffers_of(std::span<const Tensor* const> tensors) {
  std::vector<NamedBuffer> buffers;
  for (const Tensor* tensor : tensors)
    if (tensor->given) buffers.push_back({tensor->name, tensor->address, tensor->bytes});
  return buffers;
}

// A rank that gives no memory at all, on a NULL stream: the GPU is that of the calls before.
Result<device::Device*> device_without_tensors(const EpHandle& handle, std::span<const NamedBuffer> buffers,
                                               epcclStream_t stream) {
  EPCCL_ASSIGN(device::Device * device, device_of(buffers, stream));
  const bool any =
      std::ranges::any_of(buffers, [](const NamedBuffer& one) { return one.address != nullptr; });
  if (device == nullptr && !any && stream == nullptr) device = handle.communicator()->device_in_use();
  return device;
}

}  // namespace

Status check_no_ep_in_group() {
  return in_group() ? Status(Code::invalid_usage, "EP calls cannot be part of a group") : Status{};
}

Status run_ep(CommPtr communicator, device::HostStream* stream, uint32_t timeout_ms, const EpWork& work,
              std::shared_ptr<runtime::CallProgress> progress) {
  EPCCL_TRY(check_no_ep_in_group());
  auto agreed = std::make_shared<Status>();
  const auto conclude = [agreed, progress = std::move(progress)](Status status) {
    if (status.ok()) status = *agreed;
    if (progress != nullptr) progress->finish(status);
    return status;
  };
  return submit({std::move(communicator), stream, [agreed, work] { return work(*agreed); }, timeout_ms * 1e-3,
                 conclude});
}

Result<device::Device*> device_of(const EpHandle& handle, std::span<const Tensor* const> tensors,
                                  epcclStream_t stream) {
  return device_without_tensors(handle, buffers_of(tensors), stream);
}

Result<device::Device*> device_of_any(std::span<const Tensor* const> tensors, epcclStream_t stream) {
  std::vector<NamedBuffer> buffers = buffers_of(tensors), of_gpus;
  for (const NamedBuffer& buffer : buffers)
    if (is_gpu_memory(buffer.address)) of_gpus.push_back(buffer);
  if (!of_gpus.empty()) return device_of(of_gpus, stream);
  // Host tensors in the order of a GPU's stream.
  return device_of(std::span<const NamedBuffer>(), stream);
}

}  // namespace epccl::api
