// NCCL's datatypes as numbers, through CUDA's own host conversions.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace nccl_programs {

/// Elements of a datatype that is chosen at run time.
class Numbers {
 public:
  Numbers(ncclDataType_t type, size_t count);

  size_t size() const { return count_; }
  /// `value` must be one that the datatype has.
  void set(size_t index, double value);
  double get(size_t index) const;
  /// From element `index` on.
  void* at(size_t index) { return bytes_.data() + index * element_; }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

 private:
  ncclDataType_t type_;
  size_t element_, count_;
  std::vector<unsigned char> bytes_;
};

size_t bytes_of(ncclDataType_t type);
bool is_integer(ncclDataType_t type);
bool is_signed(ncclDataType_t type);
/// Largest relative error of one rounding.
double rounding(ncclDataType_t type);

inline constexpr ncclDataType_t all_types[] = {ncclInt8,    ncclUint8,    ncclInt32,      ncclUint32,
                                               ncclInt64,   ncclUint64,   ncclFloat16,    ncclFloat32,
                                               ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};

}  // namespace nccl_programs
