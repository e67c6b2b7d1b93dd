// The names of all kernels, once: the .cu files make them, launches find them by what they do.
//   EPCCL_REDUCE_KERNELS(X)           X(name, Join)
//   EPCCL_..._KERNELS(X), of others   X(name, body)
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

#define EPCCL_MOVE_KERNELS(X)                                        \
  X(epccl_move, (move_body))                                         \
  X(epccl_clear, (clear_body))                                       \
  X(epccl_dequantise_float32, (dequantise_body<Element::float32>))   \
  X(epccl_dequantise_bfloat16, (dequantise_body<Element::bfloat16>)) \
  X(epccl_dequantise_float16, (dequantise_body<Element::float16>))

#define EPCCL_SPREAD_KERNELS(X)                                  \
  X(epccl_spread, (spread_body))                                 \
  X(epccl_quantise_float32, (quantise_body<Element::float32>))   \
  X(epccl_quantise_bfloat16, (quantise_body<Element::bfloat16>)) \
  X(epccl_quantise_float16, (quantise_body<Element::float16>))

#define EPCCL_SUM_OF(X, element)                                     \
  X(epccl_sum_##element, (sum_body<Element::element, PlainOperand>)) \
  X(epccl_sum_float8_##element, (sum_body<Element::element, QuantisedOperand>))

#define EPCCL_SUM_KERNELS(X) \
  EPCCL_SUM_OF(X, float32)   \
  EPCCL_SUM_OF(X, bfloat16)  \
  EPCCL_SUM_OF(X, float16)   \
  X(epccl_sum_numbers, (sum_numbers_body))

#define EPCCL_LAYOUT_KERNELS(X)       \
  X(epccl_layout_count, (count_body)) \
  X(epccl_layout_scan, (scan_body))   \
  X(epccl_layout_place, (place_body)) \
  X(epccl_layout_fill, (fill_body))

#define EPCCL_TERMS_KERNELS(X) X(epccl_layout_terms, (terms_body))

#define EPCCL_TOKEN_STREAMS_KERNELS(X) \
  X(epccl_layout_lists, (lists_body))  \
  X(epccl_layout_sums, (final_sums_body))

#define EPCCL_WEIGHTS_KERNELS(X) X(epccl_layout_weights, (weights_body))

#define EPCCL_COUNTERS_KERNELS(X) X(epccl_layout_counters, (counters_body))

#define EPCCL_TOPK_KERNELS(X) X(epccl_layout_topk, (topk_body))

#define EPCCL_COPIES_KERNELS(X) X(epccl_copies, (copies_body))

#define EPCCL_SIGNALS_KERNELS(X) X(epccl_signals, (signals_body))

#define EPCCL_WORDS_KERNELS(X) X(epccl_words, (words_body))

#define EPCCL_HOST_CALL_KERNELS(X) X(epccl_host_call, (host_call_body))
