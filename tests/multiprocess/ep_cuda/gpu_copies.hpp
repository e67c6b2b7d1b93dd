// Tensors of a layer as memory of a GPU: copies that a call is given instead of the test's own numbers.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "../api_cuda/gpu_rank.hpp"
#include "gpu_memory.hpp"
#include "layer.hpp"

namespace epccl::tests {

class GpuCopies : public OtherMemory {
 public:
  explicit GpuCopies(GpuRank& gpu, GpuMemoryKind kind = GpuMemoryKind::plain) : gpu_(gpu), kind_(kind) {}
  GpuCopies(const GpuCopies&) = delete;
  GpuCopies& operator=(const GpuCopies&) = delete;

  void* place(void* data, size_t bytes) override {
    if (bytes == 0) return nullptr;
    Place place = take(bytes);
    place.here = data;
    place.bytes = bytes;
    const CUdeviceptr there = place.there->address();
    copy(there, reinterpret_cast<CUdeviceptr>(data), bytes);
    places_.push_back(std::move(place));
    return reinterpret_cast<void*>(there);  // NOLINT(performance-no-int-to-ptr): as the driver has it
  }
  void take_back() override {
    gpu_.wait();  // no copy of pageable memory behind what waits for other ranks
    for (Place& place : places_) {
      if (place.here == nullptr) continue;
      copy(reinterpret_cast<CUdeviceptr>(place.here), place.there->address(), place.bytes);
      place.here = nullptr;
    }
    gpu_.wait();
  }

 private:
  struct Place {
    std::unique_ptr<GpuMemory> there;
    size_t bytes = 0;
    void* here = nullptr;  // null: free for another tensor
  };

  // Memory is used again: between calls of several ranks nothing may be freed (docs/cuda.md).
  Place take(size_t bytes) {
    const auto fits = std::ranges::find_if(
        places_, [&](const Place& place) { return place.here == nullptr && place.there->bytes() >= bytes; });
    if (fits == places_.end()) return {std::make_unique<GpuMemory>(kind_, bytes)};
    Place place = std::move(*fits);
    places_.erase(fits);
    return place;
  }
  void copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    EXPECT_EQ(cuMemcpyAsync(to, from, bytes, gpu_.stream()), CUDA_SUCCESS);
  }

  GpuRank& gpu_;
  const GpuMemoryKind kind_;
  std::vector<Place> places_;
};

}  // namespace epccl::tests
