// Tensors of a layer as memory of a GPU: copies that a call is given instead of the test's own numbers.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <vector>

#include "../api_cuda/gpu_rank.hpp"
#include "layer.hpp"

namespace epccl::tests {

class GpuCopies : public OtherMemory {
 public:
  explicit GpuCopies(GpuRank& gpu) : gpu_(gpu) {}
  GpuCopies(const GpuCopies&) = delete;
  GpuCopies& operator=(const GpuCopies&) = delete;
  ~GpuCopies() override {
    for (const Place& place : places_) EXPECT_EQ(cuMemFree(place.there), CUDA_SUCCESS);
  }

  void* place(void* data, size_t bytes) override {
    if (bytes == 0) return nullptr;
    Place place = take(bytes);
    place.here = data;
    place.bytes = bytes;
    copy(place.there, reinterpret_cast<CUdeviceptr>(data), bytes);
    places_.push_back(place);
    return reinterpret_cast<void*>(place.there);  // NOLINT(performance-no-int-to-ptr): as the driver has it
  }
  void take_back() override {
    for (Place& place : places_) {
      if (place.here == nullptr) continue;
      copy(reinterpret_cast<CUdeviceptr>(place.here), place.there, place.bytes);
      place.here = nullptr;
    }
    gpu_.wait();
  }

 private:
  struct Place {
    CUdeviceptr there = 0;
    size_t room = 0, bytes = 0;
    void* here = nullptr;  // null: free for another tensor
  };

  // Memory is used again: between calls of several ranks nothing may be freed (docs/cuda.md).
  Place take(size_t bytes) {
    const auto fits = std::ranges::find_if(
        places_, [&](const Place& place) { return place.here == nullptr && place.room >= bytes; });
    Place place;
    if (fits != places_.end()) {
      place = *fits;
      places_.erase(fits);
      return place;
    }
    place.room = bytes;
    EXPECT_EQ(cuMemAlloc(&place.there, bytes), CUDA_SUCCESS);
    return place;
  }
  void copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    EXPECT_EQ(cuMemcpyAsync(to, from, bytes, gpu_.stream()), CUDA_SUCCESS);
  }

  GpuRank& gpu_;
  std::vector<Place> places_;
};

}  // namespace epccl::tests
