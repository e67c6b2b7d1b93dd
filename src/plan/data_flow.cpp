#include "plan/data_flow.hpp"

#include <algorithm>

#include "plan/printer.hpp"
#include "plan/well_formed.hpp"

namespace epccl::plan {

DataFlow::DataFlow(const StepGraph& graph, const StepOrder& order)
    : graph_(graph),
      order_(order),
      before_(graph, order),
      outputs_(graph.plan().ranks.size()),
      scratches_(graph.plan().ranks.size()),
      messages_(graph.size()) {}

IntervalMap& DataFlow::content(int rank, Buffer buffer) {
  return (buffer == Buffer::output ? outputs_ : scratches_)[static_cast<size_t>(rank)];
}

void DataFlow::begin_in_place(int rank, uint64_t offset, uint64_t bytes) {
  in_place_ = true;
  if (bytes > 0)
    content(rank, Buffer::output).insert({offset, offset + bytes, 0, rank, Piece::nobody, Piece::no_readers});
}

Status DataFlow::run() {
  for (const uint32_t id : order_.ids) EPCCL_TRY(execute(id));
  return {};
}

Status DataFlow::execute(uint32_t id) {
  const Step& step = graph_.step(id);
  current_ = id;
  data_.clear();
  reliances_.clear();
  if (step.rows == 0 || is_fetched(graph_.plan(), step)) return {};
  switch (step.kind) {
    case Kind::copy:
      if (in_place_ && step.source == step.destination) return {};  // it is there already
      EPCCL_TRY(read(step.source, step.bytes, step.rows, step.source_stride));
      EPCCL_TRY(write(step.destination, step.bytes, step.rows, step.destination_stride, data_));
      break;
    case Kind::send:
      EPCCL_TRY(read(step.source, step.total_bytes(), 1, 0));
      messages_[id] = {in_flight_.size(), data_.size()};
      in_flight_.insert(in_flight_.end(), data_.begin(), data_.end());
      break;
    case Kind::recv: {
      const Message& message = messages_[graph_.partner(id)];
      const auto data = std::span(in_flight_).subspan(message.first, message.count);
      EPCCL_TRY(write(step.destination, step.total_bytes(), 1, 0, data));
      break;
    }
    case Kind::post:
    case Kind::wait:
      return {};
    case Kind::move_rows:
      EPCCL_TRY(move_rows(graph_.rank_plan(id), step));
      break;
    case Kind::reduce_rows:
      EPCCL_TRY(reduce_rows(graph_.rank_plan(id), step));
      break;
    case Kind::reduce:
      EPCCL_TRY(reduce(graph_.rank_plan(id), step));
      break;
  }
  return check_reliances();
}

void DataFlow::append(const Fragment& fragment) {
  if (!data_.empty() && data_.back().rank == fragment.rank &&
      data_.back().offset + data_.back().length == fragment.offset)
    data_.back().length += fragment.length;
  else
    data_.push_back(fragment);
}

void DataFlow::rely(Hazard hazard, uint32_t earlier, const Location& at, uint64_t begin, uint64_t end) {
  if (before_.ask(earlier)) reliances_.push_back({hazard, at.buffer, at.rank, earlier, begin, end});
}

Status DataFlow::read(const Location& from, uint64_t bytes, uint32_t rows, uint64_t stride) {
  if (rows == 1 || stride == bytes) return read_range(from, bytes * rows);
  Location row = from;
  for (uint32_t i = 0; i < rows; ++i, row.offset += stride) EPCCL_TRY(read_range(row, bytes));
  return {};
}

void DataFlow::note_use(const Location& at, bool writes) {
  if (at.buffer == Buffer::scratch || at.rank == graph_.rank_of(current_)) return;
  const Use use{at.rank, at.buffer, writes, current_};
  if (uses_.empty() || uses_.back() != use) uses_.push_back(use);
}

Status DataFlow::check_ends() {
  std::ranges::stable_sort(uses_, {}, &Use::owner);
  for (auto first = uses_.begin(); first != uses_.end();) {
    const auto last =
        std::find_if(first, uses_.end(), [&](const Use& use) { return use.owner != first->owner; });
    for (auto use = first; use != last; ++use) before_.ask(use->step);
    if (!before_.search_end(first->owner)) {
      const Use& late = *std::find_if(first, last, [&](const Use& use) { return before_.missing(use.step); });
      return failure(late.step,
                     fmt::format("{} the {} of rank {}, which waits for nothing that comes after this, and "
                                 "may be through by then",
                                 late.writes ? "writes" : "reads", to_string(late.buffer), late.owner));
    }
    first = last;
  }
  return {};
}

Status DataFlow::read_range(const Location& from, uint64_t bytes) {
  note_use(from, false);
  const uint64_t begin = from.offset, end = begin + bytes;
  if (from.buffer == Buffer::input) {
    append({bytes, begin, from.rank});
    return {};
  }
  uint64_t known = begin;  // bytes up to here were found
  uint64_t gap_end = begin;
  content(from.rank, from.buffer).for_each(begin, end, [&](Piece& piece) {
    const uint64_t first = std::max(begin, piece.begin), last = std::min(end, piece.end);
    if (gap_end == begin && first > known) gap_end = first;
    if (gap_end > begin) return;
    append({last - first, piece.source_offset + (first - piece.begin), piece.source_rank});
    if (piece.writer != Piece::nobody) rely(Hazard::reads_written, piece.writer, from, first, last);
    if (from.buffer == Buffer::scratch || piece.writer == Piece::nobody) {
      readers_.push_back({first, last, current_, piece.readers});
      piece.readers = static_cast<uint32_t>(readers_.size() - 1);
    }
    known = last;
  });
  if (gap_end > begin) return unwritten(from, known, gap_end);
  if (known < end) return unwritten(from, known, end);
  return {};
}

Status DataFlow::clear_for_write(const Location& to, uint64_t bytes) {
  const uint64_t begin = to.offset, end = begin + bytes;
  IntervalMap& map = content(to.rank, to.buffer);
  Status status;
  bool occupied = false;
  map.for_each(begin, end, [&](const Piece& piece) {
    occupied = true;
    if (!status.ok()) return;
    const uint64_t first = std::max(begin, piece.begin), last = std::min(end, piece.end);
    if (piece.writer == Piece::nobody) {
      status = await_readers(piece, to, first, last);
      return;
    }
    if (to.buffer == Buffer::output) {
      status = failure(current_,
                       fmt::format("writes bytes [{}, {}) of the output of rank {} a second time, after {}",
                                   first, last, to.rank, name(piece.writer)));
      return;
    }
    rely(Hazard::overwrites_written, piece.writer, to, first, last);
    status = await_readers(piece, to, first, last);
  });
  EPCCL_TRY(std::move(status));
  if (occupied) map.erase(begin, end);
  return {};
}

Status DataFlow::await_readers(const Piece& piece, const Location& to, uint64_t begin, uint64_t end) {
  for (uint32_t at = piece.readers; at != Piece::no_readers; at = readers_[at].next) {
    const Reader& reader = readers_[at];
    const uint64_t low = std::max(begin, reader.begin), high = std::min(end, reader.end);
    if (low >= high) continue;
    if (reader.step != current_) {
      rely(Hazard::overwrites_read, reader.step, to, low, high);
    } else if (graph_.step(current_).kind != Kind::reduce) {  // which may: see check_overlap()
      return failure(current_, fmt::format("reads and writes bytes [{}, {}) of the {} of rank {}", low, high,
                                           to_string(to.buffer), to.rank));
    }
  }
  return {};
}

Status DataFlow::write(const Location& to, uint64_t bytes, uint32_t rows, uint64_t stride,
                       std::span<const Fragment> data) {
  const bool contiguous = rows == 1 || stride == bytes;
  const uint64_t run = contiguous ? bytes * rows : bytes;
  const uint32_t runs = contiguous ? 1 : rows;
  if (run == 0) return {};
  Supply supply(data);
  Location at = to;
  for (uint32_t i = 0; i < runs; ++i, at.offset += stride) EPCCL_TRY(write_range(at, run, supply));
  return {};
}

DataFlow::Fragment DataFlow::Supply::take(uint64_t most) {
  const Fragment& from = data_[next_];
  const Fragment taken{std::min(most, from.length - used_), from.offset + used_, from.rank};
  used_ += taken.length;
  if (used_ == from.length) {
    ++next_;
    used_ = 0;
  }
  return taken;
}

Status DataFlow::write_range(const Location& to, uint64_t bytes, Supply& data) {
  note_use(to, true);
  EPCCL_TRY(clear_for_write(to, bytes));
  IntervalMap& map = content(to.rank, to.buffer);
  for (uint64_t begin = to.offset, left = bytes; left > 0;) {
    const Fragment part = data.take(left);
    map.insert({begin, begin + part.length, part.offset, part.rank, current_, Piece::no_readers});
    begin += part.length;
    left -= part.length;
  }
  return {};
}

Status DataFlow::check_reliances() {
  if (reliances_.empty() || before_.search(current_)) return {};
  const auto broken =
      std::ranges::find_if(reliances_, [&](const Reliance& it) { return before_.missing(it.earlier); });
  return race(*broken);
}

Status DataFlow::failure(uint32_t id, const std::string& what) const {
  return step_error(graph_.plan(), graph_.rank_of(id), graph_.index_of(id), what);
}

std::string DataFlow::name(uint32_t id) const {
  return fmt::format("rank {} step {} ({})", graph_.rank_of(id), graph_.index_of(id),
                     to_text(graph_.step(id)));
}

Status DataFlow::race(const Reliance& reliance) const {
  const bool reads = reliance.hazard == Hazard::reads_written;
  const bool was_read = reliance.hazard == Hazard::overwrites_read;
  return failure(
      current_,
      fmt::format("race: {} bytes [{}, {}) of the {} of rank {}, which {} {}, and nothing makes that "
                  "complete first",
                  reads ? "reads" : "overwrites", reliance.begin, reliance.end, to_string(reliance.buffer),
                  reliance.rank, name(reliance.earlier), was_read ? "reads" : "writes"));
}

/// Where some step does write the bytes, the plan has a race; it is only in the order chosen here that it
/// comes later.
Status DataFlow::unwritten(const Location& at, uint64_t begin, uint64_t end) const {
  const auto overlaps = [&](const Location& first, uint64_t bytes) {
    return first.offset < end && begin < first.offset + bytes;
  };
  const auto writes_them = [&](uint32_t id) {
    const Step& step = graph_.step(id);
    if (step.destination.rank != at.rank || step.destination.buffer != at.buffer) return false;
    if (step.kind == Kind::recv) return overlaps(step.destination, step.total_bytes());
    const bool copies = step.kind == Kind::copy;
    if (step.kind == Kind::reduce) return overlaps(step.destination, step.bytes);
    if (!copies && step.kind != Kind::move_rows && step.kind != Kind::reduce_rows) return false;
    Location next = step.destination;
    for (uint32_t row = 0; row < step.rows; ++row, next.offset += step.destination_stride)
      if (overlaps(copies ? next : destination_rows(graph_.rank_plan(id), step)[row], step.bytes))
        return true;
    return false;
  };
  const std::string what =
      fmt::format("reads bytes [{}, {}) of the {} of rank {}", begin, end, to_string(at.buffer), at.rank);
  for (uint32_t id = 0; id < graph_.size(); ++id)
    if (id != current_ && writes_them(id))
      return failure(current_, fmt::format("race: {}, which {} writes, and nothing makes that complete first",
                                           what, name(id)));
  return failure(current_, what + ", which no other step writes");
}

}  // namespace epccl::plan
