#include "ep/calls/staged_transfer.hpp"

#include <vector>

#include "ep/calls/call_arrays.hpp"
#include "ep/calls/row_call.hpp"

namespace epccl::ep {
namespace {

using Piece = runtime::StagedCalls::Piece;

constexpr uint64_t piece_alignment = 256;

uint64_t padded(uint64_t bytes) {
  return (bytes + piece_alignment - 1) / piece_alignment * piece_alignment;
}

template <typename Call>
uint64_t bytes_needed(Call call) {
  uint64_t bytes = 0;
  for_each_array(call, [&](const auto*, uint64_t rows, uint64_t row_bytes, Access) {
    bytes += padded(rows * row_bytes);
  });
  return bytes;
}

/// A call's arrays, with their places in pinned memory.
struct Placed {
  struct Array {
    std::byte* device = nullptr;
    uint64_t offset = 0, rows = 0, row_bytes = 0;
    Access access = Access::read;
  };
  std::vector<Array> arrays;

  std::vector<Piece> inputs() const {
    std::vector<Piece> pieces;
    for (const Array& array : arrays)
      if (const uint64_t bytes = array.rows * array.row_bytes; array.access == Access::read && bytes > 0)
        pieces.push_back({array.device, array.offset, bytes});
    return pieces;
  }
  /// `rows`: of what has one for each row that the handle says there is; `all`: how many those are.
  std::vector<Piece> outputs(const std::vector<RowRange>& rows, uint32_t all) const {
    std::vector<Piece> pieces;
    const auto add = [&](const Array& array, RowRange range) {
      const uint64_t first = range.first * array.row_bytes, bytes = range.count * array.row_bytes;
      if (bytes > 0) pieces.push_back({array.device + first, array.offset + first, bytes});
    };
    for (const Array& array : arrays) {
      if (array.access == Access::written) add(array, {0, all});
      if (array.access != Access::written_rows) continue;
      for (const RowRange& range : rows) add(array, range);
    }
    return pieces;
  }
};

/// Makes `call` one on pinned memory.
template <typename Call>
Placed place(Call& call, std::byte* pinned) {
  Placed placed;
  uint64_t offset = 0;
  for_each_array(call, [&](auto*& data, uint64_t rows, uint64_t row_bytes, Access access) {
    auto* device = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(data)));  // NOLINT
    placed.arrays.push_back({device, offset, rows, row_bytes, access});
    data = reinterpret_cast<std::remove_reference_t<decltype(data)>>(pinned + offset);
    offset += padded(rows * row_bytes);
  });
  return placed;
}

}  // namespace

uint64_t staging_bytes(const DispatchCall& call) {
  return bytes_needed(call);
}
uint64_t staging_bytes(const CombineCall& call) {
  return bytes_needed(call);
}

Status dispatch_staged(Handle& handle, const DispatchCall& call, runtime::StagedCalls& staged,
                       std::byte* pinned) {
  DispatchCall on_host = call;
  const Placed placed = place(on_host, pinned);
  EPCCL_TRY(staged.copy_pieces_in(placed.inputs(), pinned));
  EPCCL_TRY(dispatch(handle, on_host));
  return staged.copy_pieces_out(placed.outputs(rows_written(handle), handle.slots()), pinned);
}

Status combine_staged(Handle& handle, const CombineCall& call, runtime::StagedCalls& staged,
                      std::byte* pinned) {
  CombineCall on_host = call;
  const Placed placed = place(on_host, pinned);
  EPCCL_TRY(staged.copy_pieces_in(placed.inputs(), pinned));
  EPCCL_TRY(combine(handle, on_host));
  return staged.copy_pieces_out(placed.outputs({}, handle.tokens()), pinned);
}

}  // namespace epccl::ep
