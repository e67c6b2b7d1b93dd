// What the elements of a row are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epccl::device {

enum class RowType : uint8_t { float32, bfloat16, float16 };

constexpr size_t element_bytes(RowType type) {
  return type == RowType::float32 ? 4 : 2;
}

}  // namespace epccl::device
