// How a kernel's body sees the machine: as warps of 32 lanes that do each part of the work together.
//
// A body is a template over its warp. Device code runs it with DeviceWarp, where a thread is one lane and each() calls once; the
// tests run it on the host with a warp that goes through its lanes in any order, warp by warp in any order. So what a body does is
// proved without a GPU, as long as it keeps to these rules:
//   - lanes talk to each other only through what a warp offers, between two calls of each(), and what lanes keep from one each() to
//     the next is in a PerLane
//   - warps do not talk to each other within a launch, but for counting who is through (is_last)
//   - control flow around each() is the same for all lanes
//
// A Warp has
//   index(), count()           which warp of the launch, of how many
//   PerLane<T>                 a value for each lane: value[lane]
//   each(f)                    f(lane) for every lane
//   largest_of_eight(value)    each lane gets the largest of its 8 lanes' values
//   of_lane(value, lane)       one lane's value
//   lanes_alike(keys, alike)   alike[lane]: a bit for every lane that has the same key
//   lanes_with(value)          a bit for every lane whose value is not 0
//   largest(value)             of all lanes
//   before(value)              each lane gets the sum of the lower lanes' values; returns that of all
//   sync()                     what lanes wrote to memory is visible to the others
//   is_last(arrived)           true for the warp that calls it last of the launch: it sees what the others wrote before
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define EPCCL_DEVICE __device__ __forceinline__
#define EPCCL_UNROLL _Pragma("unroll")
#else
#define EPCCL_DEVICE inline
#define EPCCL_UNROLL _Pragma("GCC unroll 16")
#endif

namespace epccl::device::kernels {

inline constexpr uint32_t warp_lanes = 32;

#ifdef __CUDACC__
class DeviceWarp {
 public:
  template <class T>
  struct PerLane {
    T value{};
    EPCCL_DEVICE T& operator[](uint32_t) { return value; }
    EPCCL_DEVICE const T& operator[](uint32_t) const { return value; }
  };

  EPCCL_DEVICE DeviceWarp() : lane_(threadIdx.x % warp_lanes) {}

  EPCCL_DEVICE uint32_t index() const {
    return blockIdx.x * (blockDim.x / warp_lanes) + threadIdx.x / warp_lanes;
  }
  EPCCL_DEVICE uint32_t count() const { return gridDim.x * (blockDim.x / warp_lanes); }

  template <class F>
  EPCCL_DEVICE void each(F f) const {
    f(lane_);
  }

  EPCCL_DEVICE void largest_of_eight(PerLane<uint32_t>& value) const {
    EPCCL_UNROLL
    for (int distance = 4; distance > 0; distance /= 2) {
      const uint32_t other = __shfl_xor_sync(all, value.value, distance);
      value.value = other > value.value ? other : value.value;
    }
  }
  template <class T>
  EPCCL_DEVICE T of_lane(const PerLane<T>& value, uint32_t lane) const {
    struct Words {
      uint32_t word[sizeof(T) / sizeof(uint32_t)];
    };
    Words words = std::bit_cast<Words>(value.value);
    EPCCL_UNROLL
    for (uint32_t& word : words.word) word = __shfl_sync(all, word, static_cast<int>(lane));
    return std::bit_cast<T>(words);
  }
  EPCCL_DEVICE void lanes_alike(const PerLane<uint32_t>& keys, PerLane<uint32_t>& alike) const {
    alike.value = __match_any_sync(all, keys.value);
  }
  EPCCL_DEVICE uint32_t lanes_with(const PerLane<uint32_t>& value) const {
    return __ballot_sync(all, static_cast<int>(value.value != 0));
  }
  EPCCL_DEVICE uint32_t largest(const PerLane<uint32_t>& value) const {
    return __reduce_max_sync(all, value.value);
  }
  EPCCL_DEVICE uint32_t before(PerLane<uint32_t>& value) const {
    uint32_t through = value.value;
    EPCCL_UNROLL
    for (uint32_t distance = 1; distance < warp_lanes; distance *= 2) {
      const uint32_t other = __shfl_up_sync(all, through, distance);
      through += lane_ >= distance ? other : 0;
    }
    value.value = through - value.value;
    return __shfl_sync(all, through, warp_lanes - 1);
  }
  EPCCL_DEVICE void sync() const { __syncwarp(); }
  EPCCL_DEVICE bool is_last(uint32_t* arrived) const {
    // Every lane orders what it wrote, then one counts for all.
    __threadfence_system();
    __syncwarp();
    uint32_t last = 0;
    if (lane_ == 0) {
      last = atomicAdd(arrived, 1U) == count() - 1 ? 1 : 0;
      if (last != 0) atomicExch(arrived, 0U);
      __threadfence_system();
    }
    __syncwarp();
    return __shfl_sync(all, last, 0) != 0;
  }

 private:
  static constexpr uint32_t all = 0xffffffff;
  uint32_t lane_;
};
#endif

}  // namespace epccl::device::kernels
