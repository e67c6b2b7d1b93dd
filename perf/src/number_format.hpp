// Numbers of the datatypes as bits, by the definition of their formats; nothing here is shared with the library.
#pragma once

#include <cstdint>

#include "perf/src/datatype.hpp"

namespace epccl::perf {

bool is_float(const DataType& type);

/// Floats: significant bits, so that every integer up to 2^precision is a number of the type.
int precision_of(const DataType& type);

/// Floats: the bits of a number that the type has, 0 or normal.
uint64_t encoded(const DataType& type, double value);
/// Floats: what the bits mean.
double decoded(const DataType& type, uint64_t bits);

/// Integers: bits of more than the type's width are cut off, then it is what the type says.
int64_t signed_value(const DataType& type, uint64_t bits);
bool is_signed(const DataType& type);
/// The bits that the type has.
uint64_t truncated(const DataType& type, uint64_t bits);

}  // namespace epccl::perf
