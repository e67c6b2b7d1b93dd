// What a build without the CUDA toolkit has of CUDA.
#include "device/gpus.hpp"
#include "device/graph_stream.hpp"
#include "device/kernels/kernel_queue.hpp"

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
Result<PciPlace> cuda_pci_place(int) {
  return not_built();
}
int cuda_driver_version() {
  return 0;
}
bool cuda_possible() {
  return false;
}
std::optional<int> current_cuda_device() {
  return std::nullopt;
}
Status set_current_cuda_device(int) {
  return not_built();
}
std::optional<MemoryInfo> cuda_memory_at(const void*) {
  return std::nullopt;
}
bool is_pinned_memory(const void*) {
  return false;
}
Result<std::unique_ptr<GraphStream>> GraphStream::make(int) {
  return not_built();
}

namespace kernels {

Result<Grid> grid_of(const Queue&) {
  return not_built();
}
bool has_kernels(const Queue&) {
  return false;
}
Status queue_kernel(Queue&, const Kernel&, uint32_t, uint32_t, const void*) {
  return not_built();
}

}  // namespace kernels

}  // namespace epccl::device
