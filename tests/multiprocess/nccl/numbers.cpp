#include "numbers.hpp"

#include <cstdint>
#include <cstring>

namespace nccl_programs {
namespace {

/// Calls `use` with a value of the datatype's C++ type.
template <typename Use>
auto as_type(ncclDataType_t type, Use use) {
  switch (type) {
    case ncclInt8:
      return use(int8_t{});
    case ncclUint8:
      return use(uint8_t{});
    case ncclInt32:
      return use(int32_t{});
    case ncclUint32:
      return use(uint32_t{});
    case ncclInt64:
      return use(int64_t{});
    case ncclUint64:
      return use(uint64_t{});
    case ncclFloat16:
      return use(__half{});
    case ncclFloat64:
      return use(double{});
    case ncclBfloat16:
      return use(__nv_bfloat16{});
    case ncclFloat8e4m3:
      return use(__nv_fp8_e4m3{});
    case ncclFloat8e5m2:
      return use(__nv_fp8_e5m2{});
    default:
      return use(float{});
  }
}

template <typename T>
T from_double(double value) {
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(value);
  if constexpr (!std::is_arithmetic_v<T>) return T(static_cast<float>(value));
}

}  // namespace

Numbers::Numbers(ncclDataType_t type, size_t count)
    : type_(type), element_(bytes_of(type)), count_(count), bytes_(count * element_) {}

void Numbers::set(size_t index, double value) {
  as_type(type_, [&](auto sample) {
    const auto number = from_double<decltype(sample)>(value);
    std::memcpy(at(index), &number, sizeof number);
  });
}

double Numbers::get(size_t index) const {
  return as_type(type_, [&](auto sample) {
    std::memcpy(static_cast<void*>(&sample), bytes_.data() + index * element_, sizeof sample);
    if constexpr (std::is_arithmetic_v<decltype(sample)>)
      return static_cast<double>(sample);
    else
      return static_cast<double>(static_cast<float>(sample));
  });
}

size_t bytes_of(ncclDataType_t type) {
  return as_type(type, [](auto sample) { return sizeof sample; });
}

bool is_integer(ncclDataType_t type) {
  return type <= ncclUint64;
}

bool is_signed(ncclDataType_t type) {
  return type != ncclUint8 && type != ncclUint32 && type != ncclUint64;
}

double rounding(ncclDataType_t type) {
  switch (type) {
    case ncclFloat8e4m3:
      return 0x1p-4;
    case ncclFloat8e5m2:
      return 0x1p-3;
    case ncclBfloat16:
      return 0x1p-8;
    case ncclFloat16:
      return 0x1p-11;
    case ncclFloat32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

}  // namespace nccl_programs
