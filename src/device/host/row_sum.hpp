// Weighted sums of rows, evaluated in the order that plan::RowTables prescribes: what combine does with
// experts' results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/host/row_type.hpp"

namespace epccl::device {

/// One summand. Rows need no alignment.
struct SumTerm {
  const std::byte* row = nullptr;
  float weight = 1;
  bool weighted = false;   // else `weight` is not looked at
  bool ends_rank = false;  // after this term a rank's partial sum is complete
  bool ends_node = false;  // and so is a node's
};

/// Makes a row of `elements`. For each element, in float32 (`round`: to `type` and back):
///   rank = node = total = +0
///   each term:     rank += weight * x, where the product is rounded before it is added; or rank += x
///   if ends_rank:  node += round(rank), rank = +0
///   if ends_node:  total += round(node), node = +0
///   result:        round(total)
/// These are real additions, also of the first term to +0: so a sum of nothing but -0 is +0. Terms after the
/// last that ends a node, and ranks after the last that does, are lost. No terms make a row of zeros. What
/// overflows `type` becomes an infinity; a NaN comes out as the one positive quiet NaN. Every path gives the
/// same bits (simd.hpp), in every thread (ieee_floats.hpp).
///
/// `destination` may be one of the rows; else it must not overlap them.
void sum_row(RowType type, std::byte* destination, std::span<const SumTerm> terms, size_t elements);

}  // namespace epccl::device
