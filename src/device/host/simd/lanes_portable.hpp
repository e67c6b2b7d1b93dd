// Lanes in plain C++: loops that a compiler may turn into whatever vectors the machine has.
#pragma once

#include <bit>
#include <cstring>

#include "device/host/e5m2.hpp"
#include "device/host/fp16.hpp"
#include "device/host/fp8.hpp"

namespace epccl::device {
namespace {

struct PortableLanes {
  static constexpr size_t width = 8;
  struct Float {
    float lane[width];
  };
  struct Bits {
    uint32_t lane[width];
  };

  template <class Operation>
  static Float each(Operation operation) {
    Float result;
    for (size_t i = 0; i < width; ++i) result.lane[i] = operation(i);
    return result;
  }

  static Float broadcast(float value) {
    return each([&](size_t) { return value; });
  }
  static Float add(const Float& a, const Float& b) {
    return each([&](size_t i) { return a.lane[i] + b.lane[i]; });
  }
  static Float multiply(const Float& a, const Float& b) {
    return each([&](size_t i) { return a.lane[i] * b.lane[i]; });
  }
  static Float divide(const Float& a, const Float& b) {
    return each([&](size_t i) { return a.lane[i] / b.lane[i]; });
  }

  template <RowType type>
  static Float load(const std::byte* from) {
    if constexpr (type == RowType::float32) {
      Float result;
      std::memcpy(&result, from, sizeof result);
      return result;
    } else {
      uint16_t bits[width];
      std::memcpy(bits, from, sizeof bits);
      return each([&](size_t i) { return widened<type>(bits[i]); });
    }
  }

  template <RowType type>
  static void store(std::byte* to, const Float& value) {
    if constexpr (type == RowType::float32) {
      const Float result = plain_nan(value);
      std::memcpy(to, &result, sizeof result);
    } else {
      uint16_t bits[width];
      for (size_t i = 0; i < width; ++i) bits[i] = narrowed<type>(value.lane[i]);
      std::memcpy(to, bits, sizeof bits);
    }
  }

  /// Every NaN as the one positive quiet NaN.
  static Float plain_nan(const Float& value) {
    return each([&](size_t i) { return value.lane[i] == value.lane[i] ? value.lane[i] : quiet_nan; });
  }

  template <RowType type>
  static Float round(const Float& value) {
    if constexpr (type == RowType::float32) return value;
    return each([&](size_t i) { return widened<type>(narrowed<type>(value.lane[i])); });
  }

  /// |x| as bits, which order as the numbers do; 0 for what is not finite.
  static Bits finite_magnitude(const Float& value) {
    Bits result;
    for (size_t i = 0; i < width; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(value.lane[i]) & 0x7fffffff;
      result.lane[i] = bits < 0x7f800000 ? bits : 0;
    }
    return result;
  }
  static Bits larger(const Bits& a, const Bits& b) {
    Bits result;
    for (size_t i = 0; i < width; ++i) result.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
    return result;
  }
  static float largest(const Bits& magnitudes) {
    uint32_t most = 0;
    for (const uint32_t bits : magnitudes.lane) most = bits > most ? bits : most;
    return std::bit_cast<float>(most);
  }

  static void store_e4m3(std::byte* to, const Float& value) {
    for (size_t i = 0; i < width; ++i) to[i] = std::byte{e4m3_of(value.lane[i])};
  }
  static Float load_e4m3(const std::byte* from) {
    return each([&](size_t i) { return float_of_e4m3(static_cast<uint8_t>(from[i])); });
  }

  static void store_e5m2(std::byte* to, const Float& value) {
    for (size_t i = 0; i < width; ++i) to[i] = std::byte{e5m2_of(value.lane[i])};
  }
  static Float load_e5m2(const std::byte* from) {
    return each([&](size_t i) { return float_of_e5m2(static_cast<uint8_t>(from[i])); });
  }

 private:
  static constexpr float quiet_nan = std::bit_cast<float>(0x7fc00000);

  template <RowType type>
  static float widened(uint16_t bits) {
    return type == RowType::bfloat16 ? float_of_bfloat16(bits) : float_of_float16(bits);
  }
  template <RowType type>
  static uint16_t narrowed(float value) {
    return type == RowType::bfloat16 ? bfloat16_of(value) : float16_of(value);
  }
};

}  // namespace
}  // namespace epccl::device
