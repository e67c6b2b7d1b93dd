// Memory of a GPU as programs allocate it: what peers can map, and what they cannot.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>

namespace epccl::tests {

/// Whether memory stays until the process ends: where ranks are its threads. To free it may wait for the GPU in the driver, which then keeps
/// out the calls of another rank, whose stream waits for them.
inline bool& keeps_memory() {
  static bool value = false;
  return value;
}

enum class GpuMemoryKind {
  plain,  // cudaMalloc
  unmappable,  // pages mapped to addresses, as allocators with segments that grow do it; they asked for no way to share them
};

class GpuMemory {
 public:
  GpuMemory(GpuMemoryKind kind, size_t bytes) : kind_(kind), bytes_(bytes) {
    if (kind == GpuMemoryKind::plain) {
      EXPECT_EQ(cuMemAlloc(&address_, bytes), CUDA_SUCCESS);
    } else {
      map_pages();
    }
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() {
    if (keeps_memory()) return;
    if (kind_ == GpuMemoryKind::plain) {
      EXPECT_EQ(cuMemFree(address_), CUDA_SUCCESS);
      return;
    }
    EXPECT_EQ(cuMemUnmap(address_, bytes_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(pages_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAddressFree(address_, bytes_), CUDA_SUCCESS);
  }

  CUdeviceptr address() const { return address_; }
  size_t bytes() const { return bytes_; }

 private:
  void map_pages() {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    size_t page = 0;
    EXPECT_EQ(cuMemGetAllocationGranularity(&page, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
              CUDA_SUCCESS);
    bytes_ = (bytes_ + page - 1) / page * page;
    EXPECT_EQ(cuMemCreate(&pages_, bytes_, &wanted, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAddressReserve(&address_, bytes_, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemMap(address_, bytes_, 0, pages_, 0), CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(cuMemSetAccess(address_, bytes_, &access, 1), CUDA_SUCCESS);
  }

  const GpuMemoryKind kind_;
  size_t bytes_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle pages_ = 0;
};

}  // namespace epccl::tests
