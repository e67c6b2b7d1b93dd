// The names of all kernels, once: the .cu files make them, launches find them by what they do.
//   EPCCL_REDUCE_KERNELS(X)   X(name, Join)
#pragma once

#define EPCCL_REDUCE_FLOATS(X, element)                                  \
  X(epccl_reduce_sum_##element, (FloatJoin<Element::element, How::sum>)) \
  X(epccl_reduce_prod_##element, (FloatJoin<Element::element, How::prod>))

#define EPCCL_REDUCE_ARITHMETIC(X, name, type)                 \
  X(epccl_reduce_sum_##name, (ArithmeticJoin<type, How::sum>)) \
  X(epccl_reduce_prod_##name, (ArithmeticJoin<type, How::prod>))

// Integers of both kinds are added alike. max and min differ in their parameters only, and so do floats of one size.
#define EPCCL_REDUCE_KERNELS(X)                              \
  EPCCL_REDUCE_FLOATS(X, float16)                            \
  EPCCL_REDUCE_FLOATS(X, float32)                            \
  EPCCL_REDUCE_FLOATS(X, bfloat16)                           \
  EPCCL_REDUCE_FLOATS(X, float8e4m3)                         \
  EPCCL_REDUCE_FLOATS(X, float8e5m2)                         \
  EPCCL_REDUCE_ARITHMETIC(X, int8, uint8_t)                  \
  EPCCL_REDUCE_ARITHMETIC(X, int32, uint32_t)                \
  EPCCL_REDUCE_ARITHMETIC(X, int64, uint64_t)                \
  EPCCL_REDUCE_ARITHMETIC(X, float64, double)                \
  X(epccl_reduce_order_int8, (OrderJoin<int8_t, false>))     \
  X(epccl_reduce_order_uint8, (OrderJoin<uint8_t, false>))   \
  X(epccl_reduce_order_int32, (OrderJoin<int32_t, false>))   \
  X(epccl_reduce_order_uint32, (OrderJoin<uint32_t, false>)) \
  X(epccl_reduce_order_int64, (OrderJoin<int64_t, false>))   \
  X(epccl_reduce_order_uint64, (OrderJoin<uint64_t, false>)) \
  X(epccl_reduce_order_float8, (OrderJoin<int8_t, true>))    \
  X(epccl_reduce_order_half, (OrderJoin<int16_t, true>))     \
  X(epccl_reduce_order_float32, (OrderJoin<int32_t, true>))  \
  X(epccl_reduce_order_float64, (OrderJoin<int64_t, true>))
