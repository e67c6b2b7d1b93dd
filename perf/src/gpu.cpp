#include "perf/src/gpu.hpp"

#include <cstdlib>

#include "device/gpus.hpp"
#include "perf/src/communicator.hpp"

namespace epccl::perf {

void Gpu::load_driver(const MeasuringOptions& options) {
  if (options.device == "cuda") static_cast<void>(device::cuda_device_count());
}

Result<device::Device*> Gpu::make_current(const MeasuringOptions& options, const std::vector<RankInfo>& ranks,
                                          int rank) {
  if (options.device != "cuda") return nullptr;
  const int ordinal = gpu_of_rank(ranks, rank, options.ranks_per_gpu);
  EPCCL_ASSIGN(const int count, device::cuda_device_count());
  if (ordinal >= count)
    return error(Code::invalid_usage,
                 "rank {} needs GPU {}, but {} has {}: --ranks-per-gpu lets ranks share them", rank, ordinal,
                 ranks[static_cast<size_t>(rank)].host, count);
  EPCCL_TRY(device::set_current_cuda_device(ordinal));
  setenv("EPCCL_DEVICE", "cuda", 1);
  setenv("EPCCL_CUDA_FIRST_CALLS", "0", 0);  // what is measured is what comes after them
  return device::cuda_device(ordinal);
}

Result<std::unique_ptr<Gpu>> Gpu::of_rank(const MeasuringOptions& options, const std::vector<RankInfo>& ranks,
                                          int rank) {
  EPCCL_ASSIGN(device::Device * device, make_current(options, ranks, rank));
  if (device == nullptr) return std::unique_ptr<Gpu>();
  EPCCL_ASSIGN(std::unique_ptr<device::Queue> queue, device->borrow_stream(nullptr));
  return std::unique_ptr<Gpu>(new Gpu(*device, std::move(queue)));  // private constructor
}

Result<std::byte*> Gpu::allocate(size_t bytes, bool registered) {
  void* memory = nullptr;
  if (registered) {
    EPCCL_TRY(api_status("epcclMemAlloc", epcclMemAlloc(&memory, bytes)));
  } else {
    EPCCL_ASSIGN(memory, device_.allocate(device::MemoryKind::plain, bytes));
  }
  return static_cast<std::byte*>(memory);
}

void Gpu::free(std::byte* memory, bool registered) {
  if (registered)
    static_cast<void>(epcclMemFree(memory));
  else
    static_cast<void>(device_.free(memory));
}

Status Gpu::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return {};
  const device::CopyWork work{to, from, bytes};
  EPCCL_TRY(queue_->copy({&work, 1}));
  return queue_->synchronize();
}

Result<std::unique_ptr<device::GraphStream>> Gpu::graph_stream() const {
  return device::GraphStream::make(device_.ordinal());
}

Status Gpu::wait() {
  return queue_->synchronize();
}

}  // namespace epccl::perf
