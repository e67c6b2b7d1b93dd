// What kernels are given: one structure each, by value. Plain data, the same for the compilers of both sides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epccl::device::kernels {

/// What a launch may pass to a kernel.
inline constexpr size_t most_parameter_bytes = 4096;

// --- reduce ---

inline constexpr uint32_t max_reduce_sources = 64;

struct ReduceParameters {
  const std::byte* sources[max_reduce_sources] = {};
  std::byte* destination = nullptr;          // may be one of the sources,
  std::byte* also[max_reduce_sources] = {};  // and so may other places of the result
  uint64_t bytes = 0;
  uint64_t scaled = 0;  // a bit for each source that is multiplied first
  uint64_t scale_bits =
      0;  // by this: a float64 for float64, a float32 for other floats, else an integer of the type
  const std::byte* device_scalar = nullptr;  // not null: by the element there instead
  // max, min: keys.
  uint64_t flip = 0;      // all bits for min
  uint64_t infinity = 0;  // floats: the bits above which a magnitude is a NaN,
  uint64_t nan = 0;       // and the NaN that is returned
  uint32_t source_count = 0;
  uint32_t also_count = 0;
  uint32_t divisor = 1;  // integers: the result is divided by it
  uint32_t is_signed = 0;
};

static_assert(sizeof(ReduceParameters) <= most_parameter_bytes);

// --- rows ---
//
// A row may have parts, each in an array of its own: tokens, scales, weights. Rows need no alignment; all kernels are fastest where
// arrays, strides and the bytes of rows are multiples of 16.

inline constexpr uint32_t max_row_parts = 4;
/// Memory of as many ranks can be named.
inline constexpr uint32_t max_peers = 72;
/// In lists: no row.
inline constexpr uint32_t no_row = UINT32_MAX;

/// How many rows there are: `most`, or what the device finds in `*counted` when it gets there, if that is less.
struct RowCount {
  const uint32_t* counted = nullptr;
  uint32_t most = 0;
};

/// Rows of one side: row i is number list[i] - first, or i where there is no list.
struct RowList {
  const uint32_t* list = nullptr;
  uint32_t first = 0;
};

/// Row r lies at data + r * stride.
struct RowArray {
  std::byte* data = nullptr;  // of a source: only read
  uint64_t stride = 0;
};

/// Copies rows, each to one place. Rows whose source or destination is no_row stay where they are.
struct MoveParameters {
  struct Part {
    RowArray source, destination;
    uint64_t bytes = 0;
    uint32_t tiles = 0;  // set by the launch: pieces of a row that warps copy
  };
  Part parts[max_row_parts];
  RowList sources, destinations;
  RowCount rows;
  uint32_t part_count = 0;
  // Dequantising: part 0 has float8 in its source, elements in its destination; part 1 has only a source, the scales.
  uint32_t elements = 0;
};

/// Where a copy of a row goes: row number `row` of the arrays of `peer`. Read at once.
struct alignas(8) Target {
  uint32_t row = no_row;  // no_row: nowhere
  uint32_t peer = 0;
};

/// Copies each row to up to `width` places, reading it once.
struct SpreadParameters {
  struct Part {
    RowArray source;
    uint64_t bytes = 0;  // of the source
    uint64_t destination_stride = 0;
    std::byte* destinations[max_peers] = {};
    uint32_t tiles = 0;  // set by the launch
  };
  Part parts[max_row_parts];
  RowList sources;
  const Target* targets = nullptr;  // [rows, width]; null: row i goes to row i of peer 0, and width is 1
  RowCount rows;
  uint32_t width = 0;
  uint32_t part_count = 0;
  // Quantising: part 0 has elements in its source, float8 in its destinations; part 1 has only destinations, the scales.
  uint32_t elements = 0;
  uint32_t aligned = 0;  // set by the launch, quantising: every row can be read and written in whole vectors
};

static_assert(sizeof(MoveParameters) <= most_parameter_bytes);
static_assert(sizeof(SpreadParameters) <= most_parameter_bytes);

/// One summand, as plan::RowTerm. Read at once.
struct alignas(8) Term {
  static constexpr uint8_t unweighted = 255;
  enum Ends : uint8_t { nothing = 0, rank_sum = 1, node_sum = 2 };

  uint32_t row = 0;
  uint16_t source = 0;
  uint8_t weight = unweighted;  // which weight of that row; none where the source has no weights
  uint8_t ends = nothing;
};

/// Makes rows that are sums of rows: device::sum_row() of the terms of each.
struct SumParameters {
  struct Source {
    const std::byte* rows = nullptr;  // row r at rows + r * stride
    uint64_t stride = 0;
    const float* weights = nullptr;  // weight w of row r is weights[r * weights_per_row + w]
    // float8: scale s of row r at scales + r * scale_stride + 4 * s
    const std::byte* scales = nullptr;
    uint64_t scale_stride = 0;
  };
  Source sources[max_peers];
  RowArray destination;
  RowList destinations;
  const Term* terms = nullptr;
  // The terms of sum i are those from begin[i] to begin[i + 1], or, where there is no `begin`, the first counts[i] from i * width on.
  const uint32_t* begin = nullptr;
  const uint32_t* counts = nullptr;
  uint32_t width = 0;
  uint32_t weights_per_row = 0;
  uint32_t elements = 0;
  uint32_t aligned = 0;  // set by the launch: all sources' rows are made of whole, aligned octets
  RowCount rows;
};

static_assert(sizeof(SumParameters) <= most_parameter_bytes);

// --- many small copies, and telling others ---

inline constexpr uint32_t max_small_copies = 128;
inline constexpr uint32_t max_signals = 32;

struct SmallCopy {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  uint64_t bytes = 0;
};
/// A word that others read: in memory that the device can write, its own, a peer's or the host's.
struct Signal {
  uint64_t* word = nullptr;
  uint64_t value = 0;
};

/// Copies in any order; when all are made, sets words. Memory order, so that whoever sees a value also sees all copies:
///   every lane    its copies, then __threadfence_system
///   every warp    one lane counts it in `arrived`
///   the last one  __threadfence_system, then st.release.sys of each word
/// Who waits must read the word with ld.acquire.sys or as the host's std::atomic does (cuStreamWaitValue64 is documented to order what
/// follows it in the stream). What the device wrote before this kernel, in the same stream, is seen as well.
struct CopiesParameters {
  SmallCopy copies[max_small_copies];
  Signal signals[max_signals];
  // Of the device; 0 before the first launch, and 0 again after each: one for all launches of a stream. May be null where there are
  // no signals.
  uint32_t* arrived = nullptr;
  uint32_t copy_count = 0;
  uint32_t signal_count = 0;
  uint32_t tiles_of_copy = 0;  // set by the launch: of the largest
};

static_assert(sizeof(CopiesParameters) <= most_parameter_bytes);

}  // namespace epccl::device::kernels
