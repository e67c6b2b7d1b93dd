// Runs a launch of a CUDA kernel on the host: every lane of every warp, warps and lanes in random orders. The kernel's body is the
// one that the device runs; what depends on an order that a GPU does not keep comes out different.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "device/kernels/launch.hpp"

namespace epccl::device::kernels::testing {

inline constexpr uint32_t lanes = 32;

class HostWarp {
 public:
  template <class T>
  using PerLane = std::array<T, lanes>;

  HostWarp(uint32_t index, uint32_t count, std::mt19937_64& random) : index_(index), count_(count) {
    std::iota(order_.begin(), order_.end(), 0U);
    std::shuffle(order_.begin(), order_.end(), random);
  }

  uint32_t index() const { return index_; }
  uint32_t count() const { return count_; }

  template <class F>
  void each(F f) const {
    for (const uint32_t lane : order_) f(lane);
  }

  void largest_of_eight(PerLane<uint32_t>& value) const {
    for (auto begin = value.begin(); begin != value.end(); begin += 8)
      std::fill(begin, begin + 8, *std::max_element(begin, begin + 8));
  }
  template <class T>
  T of_lane(const PerLane<T>& value, uint32_t lane) const {
    return value[lane];
  }
  void lanes_alike(const PerLane<uint32_t>& keys, PerLane<uint32_t>& alike) const {
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      alike[lane] = 0;
      for (uint32_t other = 0; other < lanes; ++other)
        alike[lane] |= static_cast<uint32_t>(keys[other] == keys[lane]) << other;
    }
  }
  uint32_t lanes_with(const PerLane<uint32_t>& value) const {
    uint32_t mask = 0;
    for (uint32_t lane = 0; lane < lanes; ++lane) mask |= static_cast<uint32_t>(value[lane] != 0) << lane;
    return mask;
  }
  uint32_t largest(const PerLane<uint32_t>& value) const {
    return *std::max_element(value.begin(), value.end());
  }
  uint32_t before(PerLane<uint32_t>& value) const {
    uint32_t all = 0;
    for (uint32_t& v : value) all += std::exchange(v, all);
    return all;
  }
  void sync() const {}
  bool is_last(uint32_t* arrived) const {
    if (++*arrived < count_) return false;
    *arrived = 0;
    return true;
  }

 private:
  uint32_t index_, count_;
  std::array<uint32_t, lanes> order_{};
};

/// Runs body(warp, parameters) as a launch does.
template <class Parameters, class Body>
void run(const Launch<Parameters>& launch, std::mt19937_64& random, Body body) {
  const uint32_t count = launch.blocks * (launch.threads / lanes);
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), random);
  for (const uint32_t index : order) body(HostWarp(index, count, random), launch.parameters);
}

}  // namespace epccl::device::kernels::testing
