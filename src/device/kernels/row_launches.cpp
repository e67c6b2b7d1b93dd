#include <algorithm>

#include "device/kernels/body/quantise.hpp"
#include "device/kernels/body/row_sum.hpp"
#include "device/kernels/launch.hpp"

namespace epccl::device::kernels {
namespace {

constexpr uint32_t block_warps = block_threads / warp_lanes;

/// A launch whose warps take `tiles` in turn.
template <class Parameters>
Launch<Parameters> tiled_launch(const Kernel& kernel, const Parameters& parameters, uint64_t tiles,
                                uint64_t least_bytes, const Grid& grid) {
  return {.kernel = kernel,
          .blocks = grid.blocks_in_turn(kernel, (tiles + block_warps - 1) / block_warps, least_bytes),
          .parameters = parameters,
          .least_bytes = least_bytes};
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

bool is_aligned(const void* data, uint64_t stride, uint32_t to = vector_bytes) {
  return misalignment(data, to) == 0 && stride % to == 0;
}

/// Whether rows of all places are.
bool is_aligned(const SpreadParameters::Part& part, uint32_t to = vector_bytes) {
  return std::ranges::all_of(part.destinations, [&](const std::byte* place) {
    return is_aligned(place, part.destination_stride, to);
  });
}

// How many tiles a part has depends on where its rows go: at most one more than its bytes need.
MoveParameters with_tiles(MoveParameters parameters) {
  for (MoveParameters::Part& part : parameters.parts)
    part.tiles = move_tiles(part.bytes, is_aligned(part.destination.data, part.destination.stride));
  return parameters;
}
SpreadParameters with_tiles(SpreadParameters parameters) {
  for (SpreadParameters::Part& part : parameters.parts) part.tiles = move_tiles(part.bytes, is_aligned(part));
  return parameters;
}

/// Whether every octet of every operand, and every scale, can be read at once.
bool reads_whole_octets(const SumParameters& parameters, Operands operands) {
  const auto is_whole = [&](const SumParameters::Source& source) {
    if (operands == Operands::plain) return is_aligned(source.rows, source.stride);
    return is_aligned(source.rows, source.stride, octet) &&
           is_aligned(source.scales, source.scale_stride, sizeof(float));
  };
  return parameters.elements % octet == 0 && std::ranges::all_of(parameters.sources, is_whole);
}

/// Whether every piece can be read, and written everywhere, at once.
bool quantises_whole_pieces(const SpreadParameters& parameters) {
  const RowArray& source = parameters.parts[0].source;
  return parameters.elements % piece == 0 && is_aligned(source.data, source.stride) &&
         is_aligned(parameters.parts[0]) && is_aligned(parameters.parts[1], sizeof(float));
}

uint32_t sum_tiles_of(RowType type, Operands operands, uint32_t elements) {
  if (operands == Operands::float8)
    return sum_tiles(elements, QuantisedOperand<Element::bfloat16, true>::octets);
  return sum_tiles(elements, type == RowType::float32 ? PlainOperand<Element::float32, true>::octets
                                                      : PlainOperand<Element::bfloat16, true>::octets);
}

}  // namespace

Launch<MoveParameters> move_launch(const MoveParameters& parameters, const Grid& grid) {
  const MoveParameters completed = with_tiles(parameters);
  const uint64_t rows = parameters.rows.most, tiles = tiles_of_parts(completed, 0);
  return tiled_launch({"epccl_move", Image::rows}, completed, rows * tiles,
                      2 * rows * row_bytes(parameters, 0), grid);
}

Launch<MoveParameters> dequantise_launch(RowType type, const MoveParameters& parameters, const Grid& grid) {
  const MoveParameters completed = with_tiles(parameters);
  const uint64_t rows = parameters.rows.most, elements = parameters.elements;
  const uint64_t tiles = dequantise_tiles(parameters.elements) + tiles_of_parts(completed, 2);
  const Kernel kernel = {
      by_type(type, "epccl_dequantise_float32", "epccl_dequantise_bfloat16", "epccl_dequantise_float16"),
      Image::rows};
  const uint64_t of_a_row =
      float8_bytes(parameters.elements) + elements * element_bytes(type) + 2 * row_bytes(parameters, 2);
  return tiled_launch(kernel, completed, rows * tiles, rows * of_a_row, grid);
}

Launch<MoveParameters> clear_launch(const MoveParameters& parameters, const Grid& grid) {
  const MoveParameters completed = with_tiles(parameters);
  const uint64_t rows = parameters.rows.most, tiles = tiles_of_parts(completed, 0);
  return tiled_launch({"epccl_clear", Image::rows}, completed, rows * tiles, rows * row_bytes(parameters, 0),
                      grid);
}

Launch<SpreadParameters> spread_launch(const SpreadParameters& parameters, const Grid& grid) {
  const SpreadParameters completed = with_tiles(parameters);
  const uint64_t rows = parameters.rows.most, tiles = tiles_of_parts(completed, 0);
  return tiled_launch({"epccl_spread", Image::rows}, completed, rows * tiles,
                      rows * (1 + parameters.width) * row_bytes(parameters, 0), grid);
}

Launch<SpreadParameters> quantise_launch(RowType type, const SpreadParameters& parameters, const Grid& grid) {
  SpreadParameters completed = with_tiles(parameters);
  completed.aligned = quantises_whole_pieces(parameters) ? 1 : 0;
  const uint64_t rows = parameters.rows.most, elements = parameters.elements;
  const uint64_t tiles = quantise_tiles_of(type, parameters.elements) + tiles_of_parts(completed, 2);
  const uint64_t plain = row_bytes(parameters, 2);
  const Kernel kernel = {
      by_type(type, "epccl_quantise_float32", "epccl_quantise_bfloat16", "epccl_quantise_float16"),
      Image::rows};
  const uint64_t of_a_row =
      elements * element_bytes(type) + plain + parameters.width * (float8_bytes(parameters.elements) + plain);
  return tiled_launch(kernel, completed, rows * tiles, rows * of_a_row, grid);
}

Launch<SumParameters> sum_launch(RowType type, Operands operands, const SumParameters& parameters,
                                 uint64_t terms, const Grid& grid) {
  const uint64_t rows = parameters.rows.most, row = parameters.elements * element_bytes(type);
  const bool plain = operands == Operands::plain;
  const uint64_t least_bytes = terms * (plain ? row : float8_bytes(parameters.elements)) + rows * row;
  if (plain && type == RowType::float32 && parameters.elements == 1)
    return tiled_launch({"epccl_sum_numbers", Image::sums}, parameters, (rows + warp_lanes - 1) / warp_lanes,
                        least_bytes, grid);
  SumParameters completed = parameters;
  completed.aligned = reads_whole_octets(parameters, operands) ? 1 : 0;
  const Kernel kernel = {plain ? by_type(type, "epccl_sum_float32", "epccl_sum_bfloat16", "epccl_sum_float16")
                               : by_type(type, "epccl_sum_float8_float32", "epccl_sum_float8_bfloat16",
                                         "epccl_sum_float8_float16"),
                         Image::sums};
  return tiled_launch(kernel, completed, rows * sum_tiles_of(type, operands, parameters.elements),
                      least_bytes, grid);
}

}  // namespace epccl::device::kernels
