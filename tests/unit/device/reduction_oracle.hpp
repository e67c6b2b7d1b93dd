// What a reduction must give, one element at a time and by definition: nothing here is shared with the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "device/host/reduction.hpp"
#include "numbers.hpp"

namespace epccl::device::testing {

inline constexpr Element all_elements[] = {Element::int8,     Element::uint8,      Element::int32,
                                           Element::uint32,   Element::int64,      Element::uint64,
                                           Element::float16,  Element::float32,    Element::float64,
                                           Element::bfloat16, Element::float8e4m3, Element::float8e5m2};
inline constexpr ReduceOp all_ops[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max,
                                       ReduceOp::min, ReduceOp::avg,  ReduceOp::premul_sum};

const char* text_of(Element element);
const char* text_of(ReduceOp op);
bool is_float(Element element);
/// Not for float64 and integers.
const Format& format_of(Element element);

struct Operand {
  uint64_t bits = 0;
  bool raw = true;
};

/// The bits that `operands` reduce to.
uint64_t expected_bits(const Reduction& reduction, const std::vector<Operand>& operands, bool final);

}  // namespace epccl::device::testing
