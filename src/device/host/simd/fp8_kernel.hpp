// quantise_e4m3 and dequantise_e4m3 over any lanes (lanes_*.hpp), a block at a time.
#pragma once

#include <cfloat>
#include <cstring>

#include "device/host/fp8.hpp"

namespace epccl::device {
namespace {

template <class Lanes, RowType type>
void quantise_block(const std::byte* source, std::byte* values, std::byte* scale_at) {
  constexpr size_t vectors = e4m3_block / Lanes::width;
  constexpr size_t step = Lanes::width * element_bytes(type);
  auto magnitudes = Lanes::finite_magnitude(Lanes::template load<type>(source));
  for (size_t i = 1; i < vectors; ++i) {
    const auto next = Lanes::finite_magnitude(Lanes::template load<type>(source + i * step));
    magnitudes = Lanes::larger(magnitudes, next);
  }
  const float amax = Lanes::largest(magnitudes);
  float scale = amax / e4m3_max;
  if (scale < FLT_MIN) scale = amax > 0 ? FLT_MIN : 1;
  std::memcpy(scale_at, &scale, sizeof scale);
  const auto divisor = Lanes::broadcast(scale);
  for (size_t i = 0; i < vectors; ++i) {
    const auto value = Lanes::divide(Lanes::template load<type>(source + i * step), divisor);
    Lanes::store_e4m3(values + i * Lanes::width, value);
  }
}

template <class Lanes, RowType type>
void dequantise_block(const std::byte* values, const std::byte* scale_at, std::byte* destination) {
  constexpr size_t step = Lanes::width * element_bytes(type);
  float scale = 0;
  std::memcpy(&scale, scale_at, sizeof scale);
  const auto factor = Lanes::broadcast(scale);
  for (size_t i = 0; i < e4m3_block / Lanes::width; ++i) {
    const auto value = Lanes::multiply(Lanes::load_e4m3(values + i * Lanes::width), factor);
    Lanes::template store<type>(destination + i * step, value);
  }
}

template <class Lanes, RowType type>
void quantise_of(const std::byte* source, size_t elements, std::byte* values, std::byte* scales) {
  constexpr size_t size = element_bytes(type);
  size_t at = 0;
  for (; at + e4m3_block <= elements; at += e4m3_block, scales += sizeof(float))
    quantise_block<Lanes, type>(source + at * size, values + at, scales);
  if (at == elements) return;
  // Zeros change neither amax nor the other values.
  alignas(64) std::byte padded[e4m3_block * size] = {};
  alignas(64) std::byte padded_values[e4m3_block];
  std::memcpy(padded, source + at * size, (elements - at) * size);
  quantise_block<Lanes, type>(padded, padded_values, scales);
  std::memcpy(values + at, padded_values, elements - at);
}

template <class Lanes, RowType type>
void dequantise_of(const std::byte* values, const std::byte* scales, size_t elements,
                   std::byte* destination) {
  constexpr size_t size = element_bytes(type);
  size_t at = 0;
  for (; at + e4m3_block <= elements; at += e4m3_block, scales += sizeof(float))
    dequantise_block<Lanes, type>(values + at, scales, destination + at * size);
  if (at == elements) return;
  alignas(64) std::byte padded_values[e4m3_block] = {};
  alignas(64) std::byte padded[e4m3_block * size];
  std::memcpy(padded_values, values + at, elements - at);
  dequantise_block<Lanes, type>(padded_values, scales, padded);
  std::memcpy(destination + at * size, padded, (elements - at) * size);
}

template <class Lanes>
void quantise_with(RowType type, const std::byte* source, size_t elements, std::byte* values,
                   std::byte* scales) {
  switch (type) {
    case RowType::float32:
      return quantise_of<Lanes, RowType::float32>(source, elements, values, scales);
    case RowType::bfloat16:
      return quantise_of<Lanes, RowType::bfloat16>(source, elements, values, scales);
    case RowType::float16:
      return quantise_of<Lanes, RowType::float16>(source, elements, values, scales);
  }
}

template <class Lanes>
void dequantise_with(RowType type, const std::byte* values, const std::byte* scales, size_t elements,
                     std::byte* destination) {
  switch (type) {
    case RowType::float32:
      return dequantise_of<Lanes, RowType::float32>(values, scales, elements, destination);
    case RowType::bfloat16:
      return dequantise_of<Lanes, RowType::bfloat16>(values, scales, elements, destination);
    case RowType::float16:
      return dequantise_of<Lanes, RowType::float16>(values, scales, elements, destination);
  }
}

}  // namespace
}  // namespace epccl::device
