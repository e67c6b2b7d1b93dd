#include "runtime/queues/row_feed.hpp"

#include <utility>

#include "device/kernels/kernel_queue.hpp"

namespace epccl::runtime {

using namespace device::kernels;
using plan::Buffer;
using plan::Kind;

// One step of several that are one kernel launches it; the others of them stand behind it in the queue.
Status RowFeed::start(device::Queue& queue, const plan::Step& step, uint32_t hand_out) {
  if (rows_ == nullptr) return {Code::internal_error, "a plan moves token rows in a call that has none"};
  queue.set_blocks(0);
  if (hand_out != no_hand_out) {
    if (hand_out >= is_handed_out_.size())
      return error(Code::internal_error, "hand-out {} of a call whose tables have {}", hand_out,
                   is_handed_out_.size());
    if (is_handed_out_[hand_out]) return {};
    is_handed_out_[hand_out] = true;
    return this->hand_out(queue, step, rows_->tables.hand_outs[hand_out]);
  }
  if (step.rows == 0) return {};
  if (step.kind == Kind::move_rows && step.stage == 1 && rows_->spread.targets != nullptr) {
    if (std::exchange(is_spread_, true)) return {};
    return spread(queue, step);
  }
  if (step.kind == Kind::move_rows) return move(queue, step);
  for (size_t part = 0; part < rows_->format.count; ++part) EPCCL_TRY(reduce(queue, step, part));
  return {};
}

// As RowSteps has them on the host.
RowFeed::Strip RowFeed::strip(const plan::Location& at, size_t part) const {
  const RowPart& piece = rows_->format.parts[part];
  const uint64_t row_bytes = rows_->format.bytes;
  if (at.buffer == Buffer::scratch) return {rows_->scratch + at.offset + piece.offset, row_bytes};
  const PeerRows& rank = rows_->ranks[static_cast<size_t>(cluster_.local_of(at.rank))];
  std::byte* const base = (at.buffer == Buffer::input ? rank.inputs : rank.outputs)[part];
  if (base == nullptr) return {nullptr, piece.bytes};
  return {base + at.offset / row_bytes * piece.bytes, piece.bytes};
}

RowList RowFeed::list(uint32_t list, uint32_t first) const {
  if (list == plan::Step::no_list) return {};
  return {rows_->tables.rows + list, first};
}

// Rows that lie one behind the other, to the outputs of all ranks of the node.
SpreadParameters RowFeed::to_ranks(const plan::Location& from) const {
  SpreadParameters parameters;
  for (size_t part = 0; part < rows_->format.count; ++part) {
    const Strip source = strip(from, part);
    SpreadParameters::Part& to = parameters.parts[part];
    to.source = {source.base, source.stride};
    to.bytes = to.destination_stride = rows_->format.parts[part].bytes;
    for (size_t rank = 0; rank < rows_->ranks.size(); ++rank)
      to.destinations[rank] = rows_->ranks[rank].outputs[part];
  }
  parameters.part_count = static_cast<uint32_t>(rows_->format.count);
  return parameters;
}

Status RowFeed::spread(device::Queue& queue, const plan::Step& step) const {
  SpreadParameters parameters = to_ranks({step.source.rank, Buffer::input, 0});
  parameters.targets = rows_->spread.targets;
  parameters.width = rows_->spread.width;
  parameters.rows.most = rows_->spread.rows;
  EPCCL_ASSIGN(const Grid grid, grid_of(queue));
  return queue_kernel(queue, spread_launch(parameters, grid));
}

Status RowFeed::hand_out(device::Queue& queue, const plan::Step& step, const HandOutRows& to) const {
  if (to.rows == 0) return {};
  SpreadParameters parameters = to_ranks(step.source);
  parameters.targets = rows_->tables.targets + to.first;
  parameters.width = to.width;
  parameters.rows.most = to.rows;
  EPCCL_ASSIGN(const Grid grid, grid_of(queue));
  return queue_kernel(queue, spread_launch(parameters, grid));
}

Status RowFeed::move(device::Queue& queue, const plan::Step& step) const {
  MoveParameters parameters;
  for (size_t part = 0; part < rows_->format.count; ++part) {
    const Strip source = strip(step.source, part), destination = strip(step.destination, part);
    parameters.parts[part] = {{source.base, source.stride},
                              {destination.base, destination.stride},
                              rows_->format.parts[part].bytes};
  }
  parameters.part_count = static_cast<uint32_t>(rows_->format.count);
  parameters.sources = list(step.source_list, step.source_first_row);
  parameters.destinations = list(step.destination_list, step.destination_first_row);
  parameters.rows.most = step.rows;
  EPCCL_ASSIGN(const Grid grid, grid_of(queue));
  return queue_kernel(queue, move_launch(parameters, grid));
}

void RowFeed::name_terms(SumParameters& parameters, uint32_t first_sum) const {
  const TablesThere& tables = rows_->tables;
  if (tables.sum_begin != nullptr) {
    parameters.terms = tables.terms;
    parameters.begin = tables.sum_begin + first_sum;
    return;
  }
  parameters.terms = tables.terms + uint64_t{first_sum} * tables.width;
  parameters.counts = tables.term_counts + first_sum;
  parameters.width = tables.width;
}

// Terms number rows from 0 on: a source whose first row is another begins that much earlier.
Status RowFeed::reduce(device::Queue& queue, const plan::Step& step, size_t part) const {
  if (step.source_count > max_peers)
    return error(Code::invalid_usage, "sums of rows from {} places: a kernel can name {}", step.source_count,
                 max_peers);
  const RowPart& piece = rows_->format.parts[part];
  SumParameters parameters;
  for (uint16_t i = 0; i < step.source_count; ++i) {
    const plan::RowSource& source = (*row_sources_)[step.first_source + i];
    const Strip found = strip(source.at, part);
    if (found.base == nullptr) continue;
    SumParameters::Source& to = parameters.sources[i];
    to.rows = found.base - source.first_row * found.stride;
    to.stride = found.stride;
    if (part == 0 && source.at.buffer == Buffer::input)
      to.weights = rows_->ranks[static_cast<size_t>(cluster_.local_of(source.at.rank))].weights;
  }
  const Strip destination = strip(step.destination, part);
  parameters.destination = {destination.base, destination.stride};
  parameters.destinations = list(step.destination_list, step.destination_first_row);
  name_terms(parameters, step.first_sum);
  parameters.weights_per_row = rows_->weights_per_row;
  parameters.elements = static_cast<uint32_t>(piece.elements);
  parameters.rows.most = step.rows;
  EPCCL_ASSIGN(const Grid grid, grid_of(queue));
  // How many terms there are is of no use to a launch but in reports.
  return queue_kernel(queue, sum_launch(piece.type, Operands::plain, parameters, step.rows, grid));
}

}  // namespace epccl::runtime
