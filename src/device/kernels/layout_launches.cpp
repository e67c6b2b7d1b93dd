#include <algorithm>

#include "device/kernels/launch.hpp"

namespace epccl::device::kernels {
namespace {

constexpr uint32_t warps_of_block = block_threads / 32;

Launch<LayoutParameters> launch_of(const char* name, const LayoutParameters& parameters, uint64_t warps,
                                   uint64_t least_bytes, const Grid& grid) {
  return {.kernel = {name, Image::layout},
          .blocks = grid.blocks((warps + warps_of_block - 1) / warps_of_block),
          .parameters = parameters,
          .least_bytes = least_bytes};
}

uint64_t table_bytes(const LayoutParameters& parameters) {
  return uint64_t{parameters.shape.max_tokens} * parameters.shape.k * (parameters.wide != 0 ? 8 : 4);
}

}  // namespace

std::array<Launch<LayoutParameters>, 4> layout_launches(const LayoutParameters& parameters,
                                                        const Grid& grid) {
  const LayoutShape& shape = parameters.shape;
  const uint64_t chunks = uint64_t{shape.sources} * shape.chunks();
  const bool receives =
      parameters.row_entries != nullptr || parameters.row_topk != nullptr || parameters.relays != nullptr;
  const uint64_t counting = std::max(chunks, (uint64_t{parameters.most_rows} + 31) / 32);
  const uint64_t filled = receives ? chunks : shape.chunks(), counted = 4 * shape.count_words();
  const uint64_t tables = table_bytes(parameters);
  return {
      launch_of("epccl_layout_count", parameters, counting, shape.sources * tables + counted, grid),
      launch_of("epccl_layout_scan", parameters, uint64_t{shape.sources} * shape.keys(), 2 * counted, grid),
      launch_of("epccl_layout_place", parameters, shape.ranks, 4 * shape.total_words(), grid),
      launch_of("epccl_layout_fill", parameters, filled, (receives ? shape.sources : 1) * tables, grid)};
}

Launch<TermsParameters> terms_launch(const TermsParameters& parameters, const Grid& grid) {
  const uint64_t rows = parameters.rows.most;
  return {.kernel = {"epccl_layout_terms", Image::layout},
          .blocks = grid.blocks((rows + block_threads - 1) / block_threads),
          .parameters = parameters,
          .least_bytes = rows * (parameters.width * (sizeof(Target) + sizeof(Term)) + sizeof(uint32_t))};
}

Launch<TokenStreamParameters> lists_launch(const TokenStreamParameters& parameters, const Grid& grid) {
  const LayoutShape& shape = parameters.layout.shape;
  const uint64_t lists =
      uint64_t{parameters.sent_count} + parameters.received_count + parameters.delivery_count;
  const uint64_t warps = lists * parameters.most_blocks;
  const uint64_t entries = uint64_t{shape.max_tokens} * shape.k;
  return {
      .kernel = {"epccl_layout_lists", Image::layout},
      .blocks = grid.blocks((warps + warps_of_block - 1) / warps_of_block),
      .parameters = parameters,
      .least_bytes = table_bytes(parameters.layout) + parameters.received_count * entries * sizeof(Target)};
}

Launch<TokenStreamParameters> final_sums_launch(const TokenStreamParameters& parameters, const Grid& grid) {
  const LayoutShape& shape = parameters.layout.shape;
  const uint64_t tokens = shape.max_tokens, entries = tokens * shape.k;
  return {.kernel = {"epccl_layout_sums", Image::layout},
          .blocks = grid.blocks((tokens + block_threads - 1) / block_threads),
          .parameters = parameters,
          .least_bytes = entries * sizeof(Term) + tokens * parameters.sent_count * sizeof(uint32_t)};
}

Launch<WeightsParameters> weights_launch(const WeightsParameters& parameters, const Grid& grid) {
  const uint64_t rows = parameters.rows.most, all = rows * parameters.k;
  const bool by_expert = parameters.row_entries != nullptr;
  const uint64_t lanes = by_expert ? rows : all;
  return {.kernel = {"epccl_layout_weights", Image::layout},
          .blocks = grid.blocks((lanes + block_threads - 1) / block_threads),
          .parameters = parameters,
          .least_bytes = by_expert ? 12 * rows : all * (parameters.topk_wide != 0 ? 16 : 12)};
}

Launch<CountersParameters> counters_launch(const CountersParameters& parameters, const Grid& grid) {
  const uint64_t lanes = std::max(parameters.expert_count, parameters.shape.sources);
  return {.kernel = {"epccl_layout_counters", Image::layout},
          .blocks = grid.blocks((lanes + block_threads - 1) / block_threads),
          .parameters = parameters,
          .least_bytes = 24 * uint64_t{parameters.expert_count} + 8 * uint64_t{parameters.shape.sources}};
}

Launch<TopkParameters> topk_launch(const TopkParameters& parameters, const Grid& grid) {
  const uint64_t rows = parameters.rows.most, all = rows * parameters.k, made = parameters.wide != 0 ? 8 : 4;
  return {.kernel = {"epccl_layout_topk", Image::layout},
          .blocks = grid.blocks((all + block_threads - 1) / block_threads),
          .parameters = parameters,
          .least_bytes = all * made + 4 * (parameters.row_entries != nullptr ? rows : all)};
}

}  // namespace epccl::device::kernels
