// What a build without the CUDA toolkit has of CUDA.
#include "device/cuda/cuda_device.hpp"

namespace epccl::device {
namespace {

Status not_built() {
  return {Code::device_error, "EPCCL was built without the CUDA toolkit: it uses host memory only"};
}

}  // namespace

Result<Device*> cuda_device(int) {
  return not_built();
}
Result<int> cuda_device_count() {
  return not_built();
}
bool cuda_possible() {
  return false;
}
std::optional<int> current_cuda_device() {
  return std::nullopt;
}
std::optional<MemoryInfo> cuda_memory_at(const void*) {
  return std::nullopt;
}

}  // namespace epccl::device
