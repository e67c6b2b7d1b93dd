// A reduction as its kernels see it: reduction.hpp with the operations taken apart.
#pragma once

#include "device/host/reduction.hpp"

namespace epccl::device {

struct ReduceCall {
  enum class Join : uint8_t { sum, prod, max, min };
  Element element = Element::float32;
  Join join = Join::sum;
  bool scaled = false;  // raw sources are multiplied before they are joined
  uint64_t scale_bits =
      0;  // by this: a float64 for float64, a float32 for other floats, else an integer of the type
  uint32_t divisor = 1;  // integers: the result is divided by it
  const ReduceSource* sources = nullptr;
  size_t source_count = 0;
  std::byte* destination = nullptr;
  size_t elements = 0;
};

}  // namespace epccl::device
