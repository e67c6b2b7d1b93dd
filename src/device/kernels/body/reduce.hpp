// Reductions element by element (host/reduction.hpp has the contract). A lane keeps some vectors of the result in registers while all
// sources are joined. A `Join` says how; it has
//   element_bytes, vectors     how many vectors a lane keeps
//   State                      of one vector
//   begin(state, vector, s)    takes the first source; s: multiplied first
//   join(state, vector, s)     another one
//   end(state)                 the result
#pragma once

#include <type_traits>

#include "device/kernels/body/numbers.hpp"
#include "device/kernels/parameters.hpp"

namespace epccl::device::kernels {

enum class How : uint8_t { sum, prod };

template <uint32_t bytes>
using UnsignedOf =
    std::conditional_t<bytes == 1, uint8_t, std::conditional_t<bytes == 2, uint16_t, uint32_t>>;

/// Floats that are computed in float32.
template <Element element, How how>
class FloatJoin {
 public:
  static constexpr uint32_t element_bytes = bytes_of(element), values = per_vector<element>;
  static constexpr uint32_t vectors = 16 / values;
  struct State {
    float value[values];
  };

  EPCCL_DEVICE explicit FloatJoin(const ReduceParameters& parameters)
      : scale_(std::bit_cast<float>(static_cast<uint32_t>(parameters.scale_bits))) {
    if (parameters.device_scalar == nullptr) return;
    using Bits = UnsignedOf<element_bytes>;
    scale_ = widened<element>(load_aligned<Bits>(parameters.device_scalar));
  }

  EPCCL_DEVICE void begin(State& state, const Vector& vector, bool scaled) const {
    decode<element>(vector, state.value);
    scale(state, scaled);
  }
  EPCCL_DEVICE void join(State& state, const Vector& vector, bool scaled) const {
    State next;
    begin(next, vector, scaled);
    EPCCL_UNROLL
    for (uint32_t i = 0; i < values; ++i) {
      if constexpr (how == How::sum)
        state.value[i] += next.value[i];
      else
        state.value[i] *= next.value[i];
    }
  }
  EPCCL_DEVICE Vector end(const State& state) const { return encode<element>(state.value); }

 private:
  EPCCL_DEVICE void scale(State& state, bool scaled) const {
    if (!scaled) return;
    EPCCL_UNROLL
    for (uint32_t i = 0; i < values; ++i) state.value[i] = scale_ * state.value[i];
  }

  float scale_;
};

/// A vector of numbers of type T, which has 1, 2, 4 or 8 bytes.
template <class T>
struct Numbers {
  static constexpr uint32_t count = vector_bytes / sizeof(T);
  T value[count];

  EPCCL_DEVICE void read(const Vector& vector) {
    EPCCL_UNROLL
    for (uint32_t i = 0; i < count; ++i) {
      if constexpr (sizeof(T) == 8)
        value[i] = std::bit_cast<T>(uint64_t{vector.word[2 * i + 1]} << 32 | vector.word[2 * i]);
      else
        value[i] = static_cast<T>(bits_at<sizeof(T)>(vector, i));
    }
  }
  EPCCL_DEVICE Vector vector() const {
    Vector result;
    EPCCL_UNROLL
    for (uint32_t i = 0; i < count; ++i) {
      if constexpr (sizeof(T) == 8) {
        const auto bits = std::bit_cast<uint64_t>(value[i]);
        result.word[2 * i] = static_cast<uint32_t>(bits);
        result.word[2 * i + 1] = static_cast<uint32_t>(bits >> 32);
      } else {
        constexpr uint32_t mask = sizeof(T) == 4 ? ~0U : (1U << sizeof(T) % 4 * 8) - 1;
        put_bits<sizeof(T)>(result, i, static_cast<uint32_t>(value[i]) & mask);
      }
    }
    return result;
  }
};

/// Sums and products in the type itself: double, or an unsigned type for integers of both kinds, which wrap.
template <class T, How how>
class ArithmeticJoin {
 public:
  using State = Numbers<T>;
  static constexpr uint32_t element_bytes = sizeof(T), vectors = sizeof(T) >= 4 ? 4 : 1;

  EPCCL_DEVICE explicit ArithmeticJoin(const ReduceParameters& parameters)
      : divisor_(parameters.divisor), is_signed_(parameters.is_signed != 0) {
    if constexpr (is_float)
      scale_ = std::bit_cast<T>(parameters.scale_bits);
    else
      scale_ = static_cast<T>(parameters.scale_bits);
    if (parameters.device_scalar != nullptr) scale_ = load_aligned<T>(parameters.device_scalar);
  }

  EPCCL_DEVICE void begin(State& state, const Vector& vector, bool scaled) const {
    state.read(vector);
    if (!scaled) return;
    EPCCL_UNROLL
    for (T& value : state.value) value = static_cast<T>(value * scale_);
  }
  EPCCL_DEVICE void join(State& state, const Vector& vector, bool scaled) const {
    State next;
    begin(next, vector, scaled);
    EPCCL_UNROLL
    for (uint32_t i = 0; i < State::count; ++i) {
      if constexpr (how == How::sum)
        state.value[i] = static_cast<T>(state.value[i] + next.value[i]);
      else
        state.value[i] = static_cast<T>(state.value[i] * next.value[i]);
    }
  }
  EPCCL_DEVICE Vector end(State& state) const {
    if constexpr (is_float) {
      EPCCL_UNROLL
      for (T& value : state.value)
        value = value == value ? value : std::bit_cast<T>(uint64_t{0x7ff8000000000000});
    } else if (divisor_ != 1) {
      EPCCL_UNROLL
      for (T& value : state.value) value = quotient(value);
    }
    return state.vector();
  }

 private:
  static constexpr bool is_float = static_cast<T>(0.5) != 0;

  /// Towards zero. Divisors are positive as int32.
  EPCCL_DEVICE T quotient(T value) const {
    using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    using Signed = std::make_signed_t<Wide>;
    if (!is_signed_) return static_cast<T>(Wide{value} / Wide{divisor_});
    const auto number = static_cast<Signed>(static_cast<std::make_signed_t<T>>(value));
    return static_cast<T>(number / static_cast<Signed>(divisor_));
  }

  T scale_{};
  uint32_t divisor_;
  bool is_signed_;
};

/// Largest and smallest. Floats are taken for integers that order as they do (`floats`: T is the signed type of their size): the
/// magnitude bits of a negative one are inverted; a NaN is less than all. For the smallest all bits of these keys are inverted,
/// before a NaN is given its place.
template <class T, bool floats>
class OrderJoin {
 public:
  using State = Numbers<T>;
  static constexpr uint32_t element_bytes = sizeof(T), vectors = sizeof(T) >= 4 ? 4 : 1;

  EPCCL_DEVICE explicit OrderJoin(const ReduceParameters& parameters)
      : flip_(static_cast<T>(parameters.flip)),
        infinity_(static_cast<T>(parameters.infinity)),
        nan_(static_cast<T>(parameters.nan)) {}

  EPCCL_DEVICE void begin(State& state, const Vector& vector, bool) const {
    state.read(vector);
    EPCCL_UNROLL
    for (T& value : state.value) value = key(value);
  }
  EPCCL_DEVICE void join(State& state, const Vector& vector, bool) const {
    State next;
    begin(next, vector, false);
    EPCCL_UNROLL
    for (uint32_t i = 0; i < State::count; ++i)
      state.value[i] = state.value[i] > next.value[i] ? state.value[i] : next.value[i];
  }
  EPCCL_DEVICE Vector end(State& state) const {
    EPCCL_UNROLL
    for (T& value : state.value) {
      if (floats && value == lowest)
        value = nan_;
      else
        value = ordered(static_cast<T>(value ^ flip_));
    }
    return state.vector();
  }

 private:
  static constexpr T lowest = static_cast<T>(uint64_t{1} << (8 * sizeof(T) - 1));
  static constexpr T magnitude = static_cast<T>(~lowest);

  /// Turns the bits of a float into an integer that orders as it does, and back.
  EPCCL_DEVICE static T ordered(T bits) {
    if constexpr (floats) return static_cast<T>(bits < 0 ? bits ^ magnitude : bits);
    return bits;
  }
  EPCCL_DEVICE T key(T bits) const {
    if (floats && static_cast<T>(bits & magnitude) > infinity_) return lowest;
    return static_cast<T>(ordered(bits) ^ flip_);
  }

  T flip_, infinity_, nan_;
};

EPCCL_DEVICE bool is_scaled(const ReduceParameters& parameters, uint32_t source) {
  return (parameters.scaled >> source & 1) != 0;
}

/// Whole vectors, which lie alike in all places of the result.
EPCCL_DEVICE void store_everywhere(const ReduceParameters& parameters, const VectorsOf& result, uint64_t i,
                                   const Vector& made) {
  result.store_whole(i, made);
  for (uint32_t d = 0; d < parameters.also_count; ++d)
    store_aligned(parameters.also[d] + result.offset(i), made);
}

/// A few whole vectors, which lie in all sources as in the destination.
template <class Join>
EPCCL_DEVICE void reduce_whole(const ReduceParameters& parameters, const Join& join, const VectorsOf& result,
                               uint64_t first) {
  const auto load = [&](uint32_t source, Vector(&loaded)[Join::vectors]) {
    const std::byte* from = parameters.sources[source];
    EPCCL_UNROLL
    for (uint32_t v = 0; v < Join::vectors; ++v)
      loaded[v] = load_aligned<Vector>(from + result.offset(first + v * warp_lanes));
  };
  typename Join::State state[Join::vectors];
  Vector loaded[Join::vectors];
  load(0, loaded);
  EPCCL_UNROLL
  for (uint32_t v = 0; v < Join::vectors; ++v) join.begin(state[v], loaded[v], is_scaled(parameters, 0));
  for (uint32_t s = 1; s < parameters.source_count; ++s) {
    load(s, loaded);
    EPCCL_UNROLL
    for (uint32_t v = 0; v < Join::vectors; ++v) join.join(state[v], loaded[v], is_scaled(parameters, s));
  }
  EPCCL_UNROLL
  for (uint32_t v = 0; v < Join::vectors; ++v)
    store_everywhere(parameters, result, first + v * warp_lanes, join.end(state[v]));
}

/// One vector, whole or not, of sources at any address, to any addresses.
template <class Join>
EPCCL_DEVICE void reduce_one(const ReduceParameters& parameters, const Join& join, const VectorsOf& result,
                             uint64_t i) {
  const auto load = [&](uint32_t source) {
    return Bytes{parameters.sources[source], parameters.bytes}.load(result.offset(i), result.part(i));
  };
  typename Join::State state;
  join.begin(state, load(0), is_scaled(parameters, 0));
  for (uint32_t s = 1; s < parameters.source_count; ++s) join.join(state, load(s), is_scaled(parameters, s));
  const Vector made = join.end(state);
  result.store(i, made);
  for (uint32_t d = 0; d < parameters.also_count; ++d)
    store_bytes(reinterpret_cast<uintptr_t>(parameters.also[d]) + static_cast<uint64_t>(result.offset(i)),
                made, result.part(i));
}

template <class Join, class Warp>
EPCCL_DEVICE void reduce_body(const Warp& warp, const ReduceParameters& parameters) {
  const Join join(parameters);
  const VectorsOf result(parameters.destination, parameters.bytes, Join::element_bytes);
  bool alike = true;
  for (uint32_t s = 0; s < parameters.source_count; ++s)
    alike = alike && result.lies_alike(parameters.sources[s]);
  for (uint32_t d = 0; d < parameters.also_count; ++d) alike = alike && result.lies_alike(parameters.also[d]);
  constexpr uint64_t step = Join::vectors * warp_lanes;
  const uint64_t all = result.count();
  for (uint64_t first = warp.index() * step; first < all; first += warp.count() * step) {
    const bool whole = alike && result.whole(first, step);
    warp.each([&](uint32_t lane) {
      if (whole) return reduce_whole(parameters, join, result, first + lane);
      for (uint64_t i = first + lane; i < first + step && i < all; i += warp_lanes)
        reduce_one(parameters, join, result, i);
    });
  }
}

}  // namespace epccl::device::kernels
