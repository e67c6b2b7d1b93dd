// Numbers of a datatype, in the plainest way: what the library's kernels are held against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "epccl/epccl.h"

namespace epccl::tests {

size_t bytes_of(epcclDataType_t type);

/// The nearest number of the datatype, ties to even.
float rounded(epcclDataType_t type, float value);

/// An array of a datatype. Values must be numbers of it.
class Numbers {
 public:
  Numbers() = default;
  Numbers(epcclDataType_t type, size_t count) : type_(type), bytes_(count * bytes_of(type), 0xff) {}

  float at(size_t index) const;
  void set(size_t index, float value);
  void* data() { return bytes_.data(); }
  epcclDataType_t type() const { return type_; }

 private:
  epcclDataType_t type_ = epcclFloat32;
  std::vector<uint8_t> bytes_;
};

}  // namespace epccl::tests
