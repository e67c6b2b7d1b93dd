// Memory for other devices: descriptors of ranges, and what makes their writes seen.
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "fake_driver.hpp"
#include "regions.hpp"

using namespace fake_cuda;

extern "C" {

// Not a dma-buf but a file that begins elsewhere: where it stands (lseek) is the range's first byte.
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags) {
  FAKE_CALLED();
  if (const auto refused = static_cast<CUresult>(setting("dma_buf_error", 0)); refused != CUDA_SUCCESS)
    return refused;
  if (setting("dma_buf", 1) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || bytes == 0 || address % page != 0 ||
      bytes % page != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  const Region* region = region_at(address);
  if (region == nullptr || region->where != Where::device || region->is_import || !region->is_accessible ||
      !region->is_for_cards || address - region->base + bytes > round_up(region->bytes, page))
    return CUDA_ERROR_INVALID_VALUE;
  const int fd = open(("/proc/self/fd/" + std::to_string(region->fd)).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0 || lseek(fd, static_cast<off_t>(address - region->base), SEEK_SET) < 0)
    return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = fd;
  return CUDA_SUCCESS;
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
  FAKE_CONTEXT(context);
  if (setting("rdma_flush", 1) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES) fake_cuda_count("flushes to all devices", 1);
  const bool known = scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
                     scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES;
  return target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX && known ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
}
}
