// Tiles of numbers that are computed in their own type: integers, float64, and max and min of anything. Vectors are the
// compiler's (vector_size), passed by reference, since passing them by value differs between levels of instructions.
#pragma once

#include <cstring>

#include "device/host/simd/reduce_tiles.hpp"

namespace epccl::device {
namespace {

inline constexpr size_t vectors_of_tile = 4;

template <class T, size_t vector_bytes>
struct Columns {
  typedef T Vector __attribute__((vector_size(vector_bytes)));
  static constexpr size_t bytes = vectors_of_tile * vector_bytes;
  static constexpr size_t count = bytes / sizeof(T);

  Vector part[vectors_of_tile];

  void read(const std::byte* from) { std::memcpy(part, from, bytes); }
  void write(std::byte* to) const { std::memcpy(to, part, bytes); }
};

/// Sums and products. T: float64, or an unsigned type for integers of both kinds, which wrap.
template <class T, ReduceCall::Join how, size_t vector_bytes>
class ArithmeticTile {
 public:
  using Values = Columns<T, vector_bytes>;
  static constexpr size_t element_bytes = sizeof(T), bytes = Values::bytes;

  struct Constants {
    explicit Constants(const ReduceCall& call)
        : divisor(call.divisor),
          is_signed(call.element == Element::int8 || call.element == Element::int32 ||
                    call.element == Element::int64) {
      std::memcpy(&scale, &call.scale_bits, sizeof scale);
    }
    T scale;
    uint32_t divisor;
    bool is_signed;
  };

  explicit ArithmeticTile(const Constants& constants) : constants_(constants) {}

  void load(const std::byte* from, bool scaled) {
    result_.read(from);
    if (scaled) scale(result_);
  }

  void join(const std::byte* from, bool scaled) {
    Values next;
    next.read(from);
    if (scaled) scale(next);
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i) {
      if constexpr (how == ReduceCall::Join::sum)
        result_.part[i] += next.part[i];
      else
        result_.part[i] *= next.part[i];
    }
  }

  void store(std::byte* to) {
    if constexpr (is_float)
      quieten();
    else if (constants_.divisor != 1)
      divide();
    result_.write(to);
  }

 private:
  static constexpr bool is_float = static_cast<T>(0.5) != 0;

  void scale(Values& values) const {
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i) values.part[i] *= constants_.scale;
  }

  void quieten() {
    const typename Values::Vector nan = __builtin_nan("") - typename Values::Vector{};
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i)
      result_.part[i] = result_.part[i] == result_.part[i] ? result_.part[i] : nan;
  }

  /// Towards zero. In 64 bits, since the divisor may not fit into T.
  void divide() {
    T values[Values::count];
    std::memcpy(values, result_.part, sizeof values);
    constexpr int shift = 64 - 8 * static_cast<int>(sizeof(T));
    for (T& value : values) {
      if (constants_.is_signed) {
        const int64_t extended = static_cast<int64_t>(static_cast<uint64_t>(value) << shift) >> shift;
        value = static_cast<T>(extended / int64_t{constants_.divisor});
      } else {
        value = static_cast<T>(value / uint64_t{constants_.divisor});
      }
    }
    std::memcpy(result_.part, values, sizeof values);
  }

  Values result_;
  const Constants& constants_;
};

/// The bits of a type of floats: what is above `infinity` without its sign is a NaN.
struct FloatBits {
  uint64_t infinity = 0;
  uint64_t nan = 0;  // the one that is returned
};

FloatBits float_bits_of(Element element) {
  switch (element) {
    case Element::float16:
      return {0x7c00, 0x7e00};
    case Element::bfloat16:
      return {0x7f80, 0x7fc0};
    case Element::float8e4m3:
      return {0x7e, 0x7f};
    case Element::float8e5m2:
      return {0x7c, 0x7f};
    case Element::float64:
      return {0x7ff0000000000000, 0x7ff8000000000000};
    default:
      return {0x7f800000, 0x7fc00000};
  }
}

/// Largest and smallest. Floats are taken for integers that order as they do (`floats`: T is the signed type of their
/// size): the magnitude bits of a negative one are inverted; a NaN is less than all. For the smallest all bits of these
/// keys are inverted, before a NaN is given its place.
template <class T, bool floats, size_t vector_bytes>
class OrderTile {
 public:
  using Values = Columns<T, vector_bytes>;
  using Vector = typename Values::Vector;
  static constexpr size_t element_bytes = sizeof(T), bytes = Values::bytes;

  struct Constants {
    explicit Constants(const ReduceCall& call)
        : flip(static_cast<T>(call.join == ReduceCall::Join::min ? -1 : 0)),
          infinity(static_cast<T>(float_bits_of(call.element).infinity)),
          nan(static_cast<T>(float_bits_of(call.element).nan)) {}
    T flip, infinity, nan;
  };

  explicit OrderTile(const Constants& constants) : constants_(constants) {}

  void load(const std::byte* from, bool) { read_keys(largest_, from); }

  void join(const std::byte* from, bool) {
    Values next;
    read_keys(next, from);
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i)
      largest_.part[i] = largest_.part[i] > next.part[i] ? largest_.part[i] : next.part[i];
  }

  void store(std::byte* to) {
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i) {
      Vector& value = largest_.part[i];
      if constexpr (floats) {
        const Vector key = value ^ constants_.flip;
        const Vector bits = key ^ ((key < 0) & magnitude);
        value = value == lowest ? (Vector{} | constants_.nan) : bits;
      } else {
        value ^= constants_.flip;
      }
    }
    largest_.write(to);
  }

 private:
  static constexpr T lowest = static_cast<T>(uint64_t{1} << (8 * sizeof(T) - 1));
  static constexpr T magnitude = static_cast<T>(~lowest);

  void read_keys(Values& keys, const std::byte* from) const {
    keys.read(from);
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i) {
      Vector& value = keys.part[i];
      if constexpr (floats) {
        const Vector key = value ^ ((value < 0) & magnitude);
        value = (value & magnitude) > constants_.infinity ? (Vector{} | lowest) : (key ^ constants_.flip);
      } else {
        value ^= constants_.flip;
      }
    }
  }

  Values largest_;
  const Constants& constants_;
};

template <class T, size_t vector_bytes>
void reduce_arithmetic(const ReduceCall& call) {
  if (call.join == ReduceCall::Join::sum)
    reduce_in_tiles<ArithmeticTile<T, ReduceCall::Join::sum, vector_bytes>>(call);
  else
    reduce_in_tiles<ArithmeticTile<T, ReduceCall::Join::prod, vector_bytes>>(call);
}

template <class T, bool floats, size_t vector_bytes>
void reduce_order(const ReduceCall& call) {
  reduce_in_tiles<OrderTile<T, floats, vector_bytes>>(call);
}

}  // namespace
}  // namespace epccl::device
