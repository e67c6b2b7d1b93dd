// What dispatch and combine share: shapes, parts of rows, memory that peers can reach.
#pragma once

#include <algorithm>
#include <vector>

#include "base/status.hpp"
#include "device/host/row_type.hpp"
#include "ep/calls/transfer.hpp"
#include "ep/handle/handle.hpp"
#include "runtime/executor/row_buffers.hpp"

namespace epccl::ep {

device::RowType row_type(TokenType type);

/// Error: `matrix` is there, but has fewer than `rows` rows or not `columns` columns.
template <typename T>
Status check_shape(const char* what, const Matrix<T>& matrix, uint64_t rows, uint64_t columns) {
  if (!matrix.given() || rows == 0 || (matrix.rows >= rows && matrix.columns == columns)) return {};
  return error(Code::invalid_argument, "{} is [{}, {}], but [{}, {}] is needed", what, matrix.rows,
               matrix.columns, rows, columns);
}

/// Sizes that a handle's routing gives to a call.
struct CallShape {
  uint64_t tokens = 0, slots = 0;
  uint32_t k = 0;
  bool by_expert = false;
  uint64_t max_token_bytes = 0;
  bool clears_padding = true;  // rows that only pad become zeros
};
CallShape shape_of(const Handle& handle);
/// Of static mode, where an update of so many tokens is one of a graph, of whose routing the host knows no more.
CallShape shape_of_captured(const Handle& handle, uint32_t tokens);

/// What is wrong with a call's arguments in themselves, whatever the routing.
Status check_alone(const SlotRules& rules, const DispatchCall& call);
Status check_alone(const SlotRules& rules, const CombineCall& call);
/// What is wrong with the arguments of a call that is well alone; what its arrays hold is not looked at.
Status check_dispatch(const CallShape& shape, const DispatchCall& call);
/// `has_weights`: those of a dispatch are there.
Status check_combine(const CallShape& shape, const CombineCall& call, bool has_weights);

/// Whether tokens become float8 on their way.
inline bool quantises(const DispatchCall& call) {
  return call.received_type == TokenType::float8_e4m3 && call.type != TokenType::float8_e4m3;
}
/// Whether weights go home with the rows.
inline bool returns_weights(const CombineCall& call) {
  return call.weights.given() || call.combined_weights.given();
}

/// Equal on ranks that agree.
std::string dispatch_text(const Handle& handle, const DispatchCall& call);
std::string combine_text(const Handle& handle, const CombineCall& call);

void set_part(runtime::RowArrays& side, size_t part, const void* data, uint64_t bytes);

/// Whether a dispatch leaves rows of its output as they are: the places of a source that has fewer tokens. What stands in for the
/// output must not be copied there as a whole, unless it held the same before.
inline bool leaves_rows(const SlotRules& rules) {
  return rules.layout == SlotLayout::rank_major;
}

struct RowRange {
  uint64_t first = 0, count = 0;
};
/// The others, where the host has made the layout.
std::vector<RowRange> rows_written(const Handle& handle);
/// Rows of this rank's output that belong to an entry.
std::vector<RowRange> rows_used(const Handle& handle);

/// Rows of an expert of this rank that belong to an entry; the rest of its zone only fills up.
inline uint32_t rows_kept(const Handle& handle, uint32_t expert) {
  const uint32_t capacity = handle.rules().capacity, entries = handle.node_slots().entries(expert);
  return capacity > 0 ? std::min(capacity, entries) : entries;
}

/// use(expert) for each expert of this rank, by node index.
template <typename Use>
void for_each_own_expert(const Handle& handle, Use use) {
  const ExpertMap& experts = handle.group().experts();
  const uint32_t first = experts.first(handle.group().rank()), count = experts.count(handle.group().rank());
  for (uint32_t expert = first; expert < first + count; ++expert) use(expert);
}

/// use(slot) for each row of this rank's output that belongs to an expert's zone but to no entry.
template <typename Use>
void for_each_padding(const Handle& handle, Use use) {
  const NodeSlots& slots = handle.node_slots();
  for_each_own_expert(handle, [&](uint32_t expert) {
    for (uint32_t row = rows_kept(handle, expert); row < slots.zone_rows(expert); ++row)
      use(slots.zone_begin(expert) + row);
  });
}

}  // namespace epccl::ep
