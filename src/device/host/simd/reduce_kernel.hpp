// Every reduction over any lanes (lanes_*.hpp).
#pragma once

#include "device/host/row_type.hpp"
#include "device/host/simd/reduce_native.hpp"

namespace epccl::device {
namespace {

template <class Lanes, Element element>
typename Lanes::Float load_floats(const std::byte* from) {
  if constexpr (element == Element::float32) return Lanes::template load<RowType::float32>(from);
  if constexpr (element == Element::float16) return Lanes::template load<RowType::float16>(from);
  if constexpr (element == Element::bfloat16) return Lanes::template load<RowType::bfloat16>(from);
  if constexpr (element == Element::float8e4m3) return Lanes::load_e4m3(from);
  if constexpr (element == Element::float8e5m2) return Lanes::load_e5m2(from);
}

template <class Lanes, Element element>
void store_floats(std::byte* to, typename Lanes::Float value) {
  if constexpr (element == Element::float32) return Lanes::template store<RowType::float32>(to, value);
  if constexpr (element == Element::float16) return Lanes::template store<RowType::float16>(to, value);
  if constexpr (element == Element::bfloat16) return Lanes::template store<RowType::bfloat16>(to, value);
  if constexpr (element == Element::float8e4m3) return Lanes::store_e4m3(to, Lanes::plain_nan(value));
  if constexpr (element == Element::float8e5m2) return Lanes::store_e5m2(to, Lanes::plain_nan(value));
}

/// Sums and products of floats that are computed in float32.
template <class Lanes, Element element, ReduceCall::Join how>
class FloatTile {
 public:
  using Float = typename Lanes::Float;
  static constexpr size_t element_bytes = bytes_of(element), step = Lanes::width * element_bytes;
  static constexpr size_t bytes = vectors_of_tile * step;

  struct Constants {
    explicit Constants(const ReduceCall& call) { std::memcpy(&scale, &call.scale_bits, sizeof scale); }
    float scale;
  };

  explicit FloatTile(const Constants& constants) : constants_(constants) {}

  void load(const std::byte* from, bool scaled) { read(result_, from, scaled); }

  void join(const std::byte* from, bool scaled) {
    Float next[vectors_of_tile];
    read(next, from, scaled);
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i) {
      if constexpr (how == ReduceCall::Join::sum)
        result_[i] = Lanes::add(result_[i], next[i]);
      else
        result_[i] = Lanes::multiply(result_[i], next[i]);
    }
  }

  void store(std::byte* to) const {
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i) store_floats<Lanes, element>(to + i * step, result_[i]);
  }

 private:
  void read(Float (&values)[vectors_of_tile], const std::byte* from, bool scaled) const {
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i) values[i] = load_floats<Lanes, element>(from + i * step);
    if (!scaled) return;
    const Float scale = Lanes::broadcast(constants_.scale);
#pragma GCC unroll 4
    for (size_t i = 0; i < vectors_of_tile; ++i) values[i] = Lanes::multiply(scale, values[i]);
  }

  Float result_[vectors_of_tile];
  const Constants& constants_;
};

template <class Lanes, Element element>
void reduce_floats(const ReduceCall& call) {
  if (call.join == ReduceCall::Join::sum)
    reduce_in_tiles<FloatTile<Lanes, element, ReduceCall::Join::sum>>(call);
  else
    reduce_in_tiles<FloatTile<Lanes, element, ReduceCall::Join::prod>>(call);
}

template <class Lanes>
void join_numbers(const ReduceCall& call) {
  constexpr size_t vector_bytes = Lanes::width * sizeof(float);
  switch (call.element) {
    case Element::int8:
    case Element::uint8:
      return reduce_arithmetic<uint8_t, vector_bytes>(call);
    case Element::int32:
    case Element::uint32:
      return reduce_arithmetic<uint32_t, vector_bytes>(call);
    case Element::int64:
    case Element::uint64:
      return reduce_arithmetic<uint64_t, vector_bytes>(call);
    case Element::float64:
      return reduce_arithmetic<double, vector_bytes>(call);
    case Element::float16:
      return reduce_floats<Lanes, Element::float16>(call);
    case Element::float32:
      return reduce_floats<Lanes, Element::float32>(call);
    case Element::bfloat16:
      return reduce_floats<Lanes, Element::bfloat16>(call);
    case Element::float8e4m3:
      return reduce_floats<Lanes, Element::float8e4m3>(call);
    case Element::float8e5m2:
      return reduce_floats<Lanes, Element::float8e5m2>(call);
  }
}

template <class Lanes>
void pick_numbers(const ReduceCall& call) {
  constexpr size_t vector_bytes = Lanes::width * sizeof(float);
  switch (call.element) {
    case Element::int8:
      return reduce_order<int8_t, false, vector_bytes>(call);
    case Element::uint8:
      return reduce_order<uint8_t, false, vector_bytes>(call);
    case Element::int32:
      return reduce_order<int32_t, false, vector_bytes>(call);
    case Element::uint32:
      return reduce_order<uint32_t, false, vector_bytes>(call);
    case Element::int64:
      return reduce_order<int64_t, false, vector_bytes>(call);
    case Element::uint64:
      return reduce_order<uint64_t, false, vector_bytes>(call);
    case Element::float8e4m3:
    case Element::float8e5m2:
      return reduce_order<int8_t, true, vector_bytes>(call);
    case Element::float16:
    case Element::bfloat16:
      return reduce_order<int16_t, true, vector_bytes>(call);
    case Element::float32:
      return reduce_order<int32_t, true, vector_bytes>(call);
    case Element::float64:
      return reduce_order<int64_t, true, vector_bytes>(call);
  }
}

template <class Lanes>
void reduce_with(const ReduceCall& call) {
  if (call.join == ReduceCall::Join::sum || call.join == ReduceCall::Join::prod)
    return join_numbers<Lanes>(call);
  pick_numbers<Lanes>(call);
}

}  // namespace
}  // namespace epccl::device
