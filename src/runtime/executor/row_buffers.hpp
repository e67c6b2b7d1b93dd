// The token rows of one run of a plan: what a row is made of, and where its parts lie on this rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "device/host/row_type.hpp"
#include "transports/shm/node_segment.hpp"

namespace epccl::runtime {

/// A piece of every row. On the user's side each part is an array of its own (tokens, scales, weights); in scratch and in
/// messages the parts of a row lie one after the other.
struct RowPart {
  uint64_t offset = 0;  // in a row
  uint64_t bytes = 0;
  device::RowType type = device::RowType::float32;  // of what is added up
  size_t elements = 0;
};

struct RowFormat {
  std::array<RowPart, transports::call_parts> parts;
  size_t count = 0;
  uint64_t bytes = 0;  // of a row

  void add(uint64_t part_bytes, device::RowType type = device::RowType::float32, size_t elements = 0) {
    parts[count++] = {bytes, part_bytes, type, elements};
    bytes += part_bytes;
  }
};

/// Arrays of one side, by part.
struct RowArrays {
  std::array<void*, transports::call_parts> data{};
  std::array<uint64_t, transports::call_parts> bytes{};
};

struct RowBuffers {
  RowFormat format;
  RowArrays input;  // only read
  RowArrays output;
  // The factors of a weighted sum: of row r of this rank's input, `weights_per_row` floats from r * weights_per_row on; null:
  // sums are not weighted. In memory that peers can map.
  const float* weights = nullptr;
  uint32_t weights_per_row = 0;
  uint64_t weights_bytes = 0;
  bool fetches = false;  // as RankPlan::fetches: peers hear of it from here
};

}  // namespace epccl::runtime
