// The arrays of a dispatch or combine, one after the other: for who puts others in their places.
#pragma once

#include "device/host/fp8.hpp"
#include "ep/calls/transfer.hpp"

namespace epccl::ep {

enum class Access : uint8_t {
  read,
  written,      // as many rows as the handle says
  written_rows  // the same, but only rows that hold a token or fill up an expert's zone
};

/// use(pointer, rows, bytes of a row, access) for each array that is given; the pointer may be changed.
template <typename Use>
void for_each_array(DispatchCall& call, Use use) {
  const auto matrix = [&](auto& given, uint64_t element, Access access) {
    if (given.given()) use(given.data, given.rows, given.columns * element, access);
  };
  use(call.tokens, call.token_rows, call.hidden * bytes_of(call.type), Access::read);
  matrix(call.weights, sizeof(float), Access::read);
  matrix(call.scales, sizeof(float), Access::read);
  use(call.received, call.received_rows, call.hidden * bytes_of(call.received_type), Access::written_rows);
  matrix(call.received_scales, sizeof(float), Access::written_rows);
  matrix(call.received_weights, sizeof(float), Access::written);
  matrix(call.received_topk, call.received_topk_wide ? sizeof(int64_t) : sizeof(int32_t), Access::written);
}

template <typename Use>
void for_each_array(CombineCall& call, Use use) {
  const auto matrix = [&](auto& given, Access access) {
    if (given.given()) use(given.data, given.rows, given.columns * sizeof(float), access);
  };
  use(call.tokens, call.token_rows, call.hidden * bytes_of(call.type), Access::read);
  matrix(call.weights, Access::read);
  use(call.combined, call.combined_rows, call.hidden * bytes_of(call.type), Access::written);
  matrix(call.combined_weights, Access::written);
}

}  // namespace epccl::ep
