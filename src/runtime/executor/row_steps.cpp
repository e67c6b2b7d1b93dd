#include "runtime/executor/row_steps.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>

#include "device/host/host_copy.hpp"

namespace epccl::runtime {

using plan::Buffer;
using plan::RowTerm;

namespace {

// Rows moved by one system call, at most (the kernel's limit is 1024).
constexpr size_t rows_at_once = 256;

}  // namespace

void RowSteps::begin(uint64_t sequence, const CompiledPlan& plan, const RowBuffers& buffers) {
  sequence_ = sequence;
  plan_ = &plan;
  buffers_ = &buffers;
}

Result<RowSteps::Strip> RowSteps::strip(const plan::Location& location, int local, size_t part) {
  const RowPart& piece = buffers_->format.parts[part];
  Strip strip;
  strip.local = local;
  if (location.buffer == Buffer::scratch) {
    strip.base = node_.scratch(local, {sequence_}) + location.offset + piece.offset;
    strip.stride = buffers_->format.bytes;
    return strip;
  }
  strip.stride = piece.bytes;
  const uint64_t offset = location.offset / buffers_->format.bytes * piece.bytes;
  const bool is_input = location.buffer == Buffer::input;
  if (location.rank == rank_) {
    strip.base = static_cast<std::byte*>((is_input ? buffers_->input : buffers_->output).data[part]) + offset;
    return strip;
  }
  const transports::CallRecord& record = node_.call(local, sequence_);
  const transports::BufferRef& theirs = (is_input ? record.inputs : record.outputs)[part];
  EPCCL_ASSIGN(strip.base, node_.address_of(local, theirs));
  if (strip.base != nullptr) strip.base += offset;
  strip.address = theirs.address + offset;
  strip.bytes = theirs.bytes > offset ? theirs.bytes - offset : 0;
  return strip;
}

Status RowSteps::check_room(const Strip& strip, uint32_t list, uint32_t first, uint32_t rows) const {
  if (strip.bytes == UINT64_MAX) return {};
  uint32_t end = 0;
  for (uint32_t i = 0; i < rows; ++i) end = std::max(end, row_of(list, first, i) - first + 1);
  if (end * strip.stride <= strip.bytes) return {};
  return error(Code::internal_error,
               "call {}: rank {} is to move {} rows of {} bytes of local rank {}, which has {} bytes there",
               sequence_, rank_, end, strip.stride, strip.local, strip.bytes);
}

/// Where the rows come from, and where they go.
Result<std::array<RowSteps::Strip, 2>> RowSteps::ends_of(const CompiledStep& compiled, size_t part) {
  const plan::Step& step = compiled.step;
  EPCCL_ASSIGN(const Strip source, strip(step.source, compiled.source_local, part));
  EPCCL_ASSIGN(const Strip destination, strip(step.destination, compiled.destination_local, part));
  EPCCL_TRY(check_room(source, step.source_list, step.source_first_row, step.rows));
  EPCCL_TRY(check_room(destination, step.destination_list, step.destination_first_row, step.rows));
  return std::array{source, destination};
}

Status RowSteps::move(const CompiledStep& compiled, Writes writes) {
  const plan::Step& step = compiled.step;
  for (size_t part = 0; part < buffers_->format.count; ++part) {
    EPCCL_ASSIGN(const auto ends, ends_of(compiled, part));
    EPCCL_TRY(move_part(step, ends[0], ends[1], buffers_->format.parts[part].bytes, writes));
  }
  return {};
}

Result<bool> RowSteps::find_copies(const CompiledStep& compiled, std::vector<device::CopyWork>& copies) {
  const plan::Step& step = compiled.step;
  copies.clear();
  for (size_t part = 0; part < buffers_->format.count; ++part) {
    EPCCL_ASSIGN(const auto ends, ends_of(compiled, part));
    const auto& [source, destination] = ends;
    if (source.base == nullptr || destination.base == nullptr) return false;
    const uint64_t bytes = buffers_->format.parts[part].bytes;
    const bool packed = source.stride == bytes && destination.stride == bytes;
    for (uint32_t i = 0; i < step.rows; ++i) {
      const uint32_t from = row_of(step.source_list, step.source_first_row, i) - step.source_first_row;
      const uint32_t to =
          row_of(step.destination_list, step.destination_first_row, i) - step.destination_first_row;
      const device::CopyWork row{destination.base + to * destination.stride,
                                 source.base + from * source.stride, bytes};
      // Rows that follow each other on both sides are one copy.
      if (packed && i > 0 && copies.back().source + copies.back().bytes == row.source &&
          copies.back().destination + copies.back().bytes == row.destination)
        copies.back().bytes += bytes;
      else
        copies.push_back(row);
    }
  }
  return true;
}

Status RowSteps::move_part(const plan::Step& step, const Strip& source, const Strip& destination,
                           uint64_t bytes, Writes writes) {
  if (source.base == nullptr || destination.base == nullptr)
    return move_unmapped(step, source, destination, bytes);
  const bool is_shared = writes == Writes::shared && step.destination.rank != rank_;
  for (uint32_t i = 0; i < step.rows; ++i) {
    const uint32_t from = row_of(step.source_list, step.source_first_row, i) - step.source_first_row;
    const uint32_t to =
        row_of(step.destination_list, step.destination_first_row, i) - step.destination_first_row;
    std::byte* const into = destination.base + to * destination.stride;
    if (is_shared)
      shared_copy_.copy(into, source.base + from * source.stride, bytes);
    else
      device::copy_bytes(into, source.base + from * source.stride, bytes, writes == Writes::streaming);
  }
  return {};
}

Status RowSteps::move_unmapped(const plan::Step& step, const Strip& source, const Strip& destination,
                               uint64_t bytes) {
  const bool is_write = destination.base == nullptr;
  std::array<iovec, rows_at_once> mine{}, theirs{};
  for (uint32_t first = 0; first < step.rows; first += rows_at_once) {
    const auto count = std::min<size_t>(rows_at_once, step.rows - first);
    for (size_t i = 0; i < count; ++i) {
      const auto row = first + static_cast<uint32_t>(i);
      const uint64_t from =
          uint64_t{row_of(step.source_list, step.source_first_row, row) - step.source_first_row} *
          source.stride;
      const uint64_t to = uint64_t{row_of(step.destination_list, step.destination_first_row, row) -
                                   step.destination_first_row} *
                          destination.stride;
      mine[i] = {is_write ? source.base + from : destination.base + to, bytes};
      // NOLINTNEXTLINE(performance-no-int-to-ptr): a peer's address
      theirs[i] = {reinterpret_cast<void*>(is_write ? destination.address + to : source.address + from),
                   bytes};
    }
    EPCCL_TRY(node_.transfer_pieces(is_write ? destination.local : source.local, is_write,
                                    {mine.data(), count}, {theirs.data(), count}));
  }
  return {};
}

Status RowSteps::reduce(const plan::Step& step) {
  for (size_t part = 0; part < buffers_->format.count; ++part) EPCCL_TRY(reduce_part(step, part));
  return {};
}

// Where the weights of each source's rows lie; null for sources that are sums already.
Result<std::vector<const float*>> RowSteps::weights_of(const plan::Step& step) {
  std::vector<const float*> weights(step.source_count, nullptr);
  if (buffers_->weights == nullptr) return weights;
  for (size_t i = 0; i < step.source_count; ++i) {
    const plan::Location& at = plan_->row_sources[step.first_source + i].at;
    if (at.buffer != Buffer::input) continue;
    if (at.rank == rank_) {
      weights[i] = buffers_->weights;
      continue;
    }
    const int local = plan_->row_source_locals[step.first_source + i];
    const transports::BufferRef& theirs = node_.call(local, sequence_).weights;
    if (theirs.bytes == 0) continue;  // it has no rows
    EPCCL_ASSIGN(const std::byte* base, node_.address_of(local, theirs));
    if (base == nullptr) return Status(Code::internal_error, "weights of a peer are not in a window");
    weights[i] = reinterpret_cast<const float*>(base);
  }
  return weights;
}

// Reads the rows of peers whose memory is not mapped, for all terms of a step, a row for a term.
Status RowSteps::fetch_unmapped(const plan::Step& step, const std::vector<Strip>& sources, uint64_t bytes) {
  const auto& tables = *plan_->tables;
  const uint32_t first = tables.sum_begin[step.first_sum],
                 last = tables.sum_begin[step.first_sum + step.rows];
  for (uint16_t source = 0; source < step.source_count; ++source) {
    if (sources[source].base != nullptr || sources[source].address == 0) continue;
    fetched_.resize(std::max<size_t>(fetched_.size(), (last - first) * bytes));
    const uint32_t first_row = plan_->row_sources[step.first_source + source].first_row;
    std::array<iovec, rows_at_once> mine{}, theirs{};
    size_t count = 0;
    for (uint32_t i = first; i <= last; ++i) {
      if (count == rows_at_once || (i == last && count > 0)) {
        EPCCL_TRY(node_.transfer_pieces(sources[source].local, false, {mine.data(), count},
                                        {theirs.data(), count}));
        count = 0;
      }
      if (i == last || tables.terms[i].source != source) continue;
      mine[count] = {fetched_.data() + (i - first) * bytes, bytes};
      // NOLINTNEXTLINE(performance-no-int-to-ptr): a peer's address
      theirs[count++] = {
          reinterpret_cast<void*>(sources[source].address +
                                  uint64_t{tables.terms[i].row - first_row} * sources[source].stride),
          bytes};
    }
  }
  return {};
}

Status RowSteps::reduce_part(const plan::Step& step, size_t part) {
  const RowPart& piece = buffers_->format.parts[part];
  const auto& tables = *plan_->tables;
  std::vector<Strip> sources;
  for (size_t i = 0; i < step.source_count; ++i) {
    const plan::RowSource& source = plan_->row_sources[step.first_source + i];
    EPCCL_ASSIGN(const Strip found, strip(source.at, plan_->row_source_locals[step.first_source + i], part));
    sources.push_back(found);
  }
  EPCCL_ASSIGN(const Strip destination, strip(step.destination, node_.local(), part));
  EPCCL_TRY(fetch_unmapped(step, sources, piece.bytes));
  const bool weighted = part == 0 && buffers_->weights != nullptr;
  std::vector<const float*> weights;
  if (weighted) {
    EPCCL_ASSIGN(weights, weights_of(step));
  }
  const uint32_t first_term = tables.sum_begin[step.first_sum];
  for (uint32_t i = 0; i < step.rows; ++i) {
    terms_.clear();
    for (uint32_t t = tables.sum_begin[step.first_sum + i]; t < tables.sum_begin[step.first_sum + i + 1];
         ++t) {
      const RowTerm& term = tables.terms[t];
      const Strip& source = sources[term.source];
      const uint32_t row = term.row - plan_->row_sources[step.first_source + term.source].first_row;
      const std::byte* data = source.base != nullptr ? source.base + row * source.stride
                                                     : fetched_.data() + (t - first_term) * piece.bytes;
      const bool has_weight = weighted && term.weight != RowTerm::unweighted;
      const float weight =
          has_weight ? weights[term.source][size_t{term.row} * buffers_->weights_per_row + term.weight] : 1;
      terms_.push_back({data, weight, has_weight, (term.ends & RowTerm::rank_sum) != 0,
                        (term.ends & RowTerm::node_sum) != 0});
    }
    const uint32_t to =
        row_of(step.destination_list, step.destination_first_row, i) - step.destination_first_row;
    device::sum_row(piece.type, destination.base + to * destination.stride, terms_, piece.elements);
  }
  return {};
}

}  // namespace epccl::runtime
