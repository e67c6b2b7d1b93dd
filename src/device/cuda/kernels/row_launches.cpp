#include <algorithm>

#include "device/cuda/kernels/body/quantise.hpp"
#include "device/cuda/kernels/body/row_sum.hpp"
#include "device/cuda/kernels/launch.hpp"

namespace epccl::device::cuda {
namespace {

/// A warp for each tile.
uint32_t blocks_of(const Grid& grid, uint64_t tiles) {
  constexpr uint32_t warps = block_threads / warp_lanes;
  return grid.blocks((tiles + warps - 1) / warps);
}

const char* by_type(RowType type, const char* float32, const char* bfloat16, const char* float16) {
  if (type == RowType::bfloat16) return bfloat16;
  return type == RowType::float16 ? float16 : float32;
}

uint32_t quantise_tiles_of(RowType type, uint32_t elements) {
  return type == RowType::float32 ? quantise_tiles<Element::float32>(elements)
                                  : quantise_tiles<Element::bfloat16>(elements);
}

template <class Parameters>
uint64_t row_bytes(const Parameters& parameters, uint32_t first_part) {
  uint64_t bytes = 0;
  for (uint32_t part = first_part; part < parameters.part_count; ++part)
    bytes += parameters.parts[part].bytes;
  return bytes;
}

uint64_t float8_bytes(uint32_t elements) {
  return elements + e4m3_scales(elements) * sizeof(float);
}

bool is_aligned(const void* data, uint64_t stride, uint32_t to) {
  return misalignment(data, to) == 0 && stride % to == 0;
}

/// Whether every octet of every operand can be read at once.
bool all_aligned(const SumParameters& parameters, uint32_t octet_alignment) {
  bool aligned = parameters.elements % octet == 0;
  for (const SumParameters::Source& source : parameters.sources)
    aligned = aligned && is_aligned(source.rows, source.stride, octet_alignment);
  return aligned;
}

}  // namespace

Launch<MoveParameters> move_launch(const MoveParameters& parameters, const Grid& grid) {
  const uint64_t rows = parameters.rows.most, tiles = tiles_of_parts(parameters, 0);
  return {.kernel = {"epccl_move", Image::rows},
          .blocks = blocks_of(grid, rows * tiles),
          .parameters = parameters,
          .least_bytes = 2 * rows * row_bytes(parameters, 0)};
}

Launch<MoveParameters> dequantise_launch(RowType type, const MoveParameters& parameters, const Grid& grid) {
  const uint64_t rows = parameters.rows.most, elements = parameters.elements;
  const uint64_t tiles = dequantise_tiles(parameters.elements) + tiles_of_parts(parameters, 2);
  return {.kernel = {by_type(type, "epccl_dequantise_float32", "epccl_dequantise_bfloat16",
                             "epccl_dequantise_float16"),
                     Image::rows},
          .blocks = blocks_of(grid, rows * tiles),
          .parameters = parameters,
          .least_bytes = rows * (float8_bytes(parameters.elements) + elements * element_bytes(type) +
                                 2 * row_bytes(parameters, 2))};
}

Launch<MoveParameters> clear_launch(const MoveParameters& parameters, const Grid& grid) {
  Launch<MoveParameters> launch = move_launch(parameters, grid);
  launch.kernel.name = "epccl_clear";
  launch.least_bytes /= 2;
  return launch;
}

Launch<SpreadParameters> spread_launch(const SpreadParameters& parameters, const Grid& grid) {
  const uint64_t rows = parameters.rows.most, tiles = tiles_of_parts(parameters, 0);
  return {.kernel = {"epccl_spread", Image::rows},
          .blocks = blocks_of(grid, rows * tiles),
          .parameters = parameters,
          .least_bytes = rows * (1 + parameters.width) * row_bytes(parameters, 0)};
}

Launch<SpreadParameters> quantise_launch(RowType type, const SpreadParameters& parameters, const Grid& grid) {
  const uint64_t rows = parameters.rows.most, elements = parameters.elements;
  const uint64_t tiles = quantise_tiles_of(type, parameters.elements) + tiles_of_parts(parameters, 2);
  const uint64_t plain = row_bytes(parameters, 2);
  const RowArray& source = parameters.parts[0].source;
  Launch<SpreadParameters> launch{
      .kernel = {by_type(type, "epccl_quantise_float32", "epccl_quantise_bfloat16", "epccl_quantise_float16"),
                 Image::rows},
      .blocks = blocks_of(grid, rows * tiles),
      .parameters = parameters,
      .least_bytes = rows * (elements * element_bytes(type) + plain +
                             parameters.width * (float8_bytes(parameters.elements) + plain))};
  launch.parameters.aligned =
      parameters.elements % octet == 0 && is_aligned(source.data, source.stride, vector_bytes);
  return launch;
}

Launch<SumParameters> sum_launch(RowType type, Operands operands, const SumParameters& parameters,
                                 uint64_t terms, const Grid& grid) {
  const uint64_t row = parameters.elements * element_bytes(type);
  const bool plain = operands == Operands::plain;
  Launch<SumParameters> launch{
      .kernel = {plain ? by_type(type, "epccl_sum_float32", "epccl_sum_bfloat16", "epccl_sum_float16")
                       : by_type(type, "epccl_sum_float8_float32", "epccl_sum_float8_bfloat16",
                                 "epccl_sum_float8_float16"),
                 Image::sums},
      .blocks = blocks_of(grid, uint64_t{parameters.rows.most} * sum_tiles(parameters.elements)),
      .parameters = parameters,
      .least_bytes = terms * (plain ? row : float8_bytes(parameters.elements)) + parameters.rows.most * row};
  launch.parameters.aligned = all_aligned(parameters, plain ? vector_bytes : octet);
  return launch;
}

}  // namespace epccl::device::cuda
