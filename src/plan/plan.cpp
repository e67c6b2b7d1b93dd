#include "plan/plan.hpp"

#include <algorithm>

namespace epccl::plan {

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::copy:
      return "copy";
    case Kind::send:
      return "send";
    case Kind::recv:
      return "recv";
    case Kind::post:
      return "post";
    case Kind::wait:
      return "wait";
    case Kind::move_rows:
      return "move_rows";
    case Kind::reduce_rows:
      return "reduce_rows";
    case Kind::reduce:
      return "reduce";
  }
  return "?";
}

const char* to_string(Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return "input";
    case Buffer::output:
      return "output";
    case Buffer::scratch:
      return "scratch";
  }
  return "?";
}

void Extent::include(uint64_t first, uint64_t bytes) {
  if (bytes == 0) return;
  begin = empty() ? first : std::min(begin, first);
  end = std::max(end, first + bytes);
}

void Builder::touch(const Location& location, uint64_t end) {
  if (location.rank != plan_.rank) return;
  auto grow = [end](uint64_t& size) { size = std::max(size, end); };
  if (location.buffer == Buffer::input) grow(plan_.input_bytes);
  if (location.buffer == Buffer::output) grow(plan_.output_bytes);
  if (location.buffer == Buffer::scratch) grow(plan_.scratch_bytes);
}

/// Lists, and row numbers before the first, that are wrong are left to well_formed(), which says so.
void Builder::touch(const Rows& rows, RowCount most, uint64_t bytes) {
  uint64_t length = most.rows;
  if (rows.list != Step::no_list) {
    const uint32_t count = rows_now(most);
    if (count == 0) return;
    if (plan_.tables == nullptr || uint64_t{rows.list} + count > plan_.tables->rows.size()) return;
    const uint32_t highest = std::ranges::max(std::span(plan_.tables->rows).subspan(rows.list, count));
    if (highest < rows.first_row) return;
    length = uint64_t{highest} - rows.first_row + 1;
  }
  touch(rows.at, rows.at.offset + length * bytes);
}

void Builder::touch_terms(uint32_t first_sum, uint32_t count, std::span<const RowSource> sources,
                          uint64_t bytes) {
  if (plan_.tables == nullptr || uint64_t{first_sum} + count >= plan_.tables->sum_begin.size()) return;
  const RowTables& tables = *plan_.tables;
  const uint64_t end = std::min<uint64_t>(tables.sum_begin[uint64_t{first_sum} + count], tables.terms.size());
  for (uint64_t i = tables.sum_begin[first_sum]; i < end; ++i) {
    const RowTerm& term = tables.terms[i];
    if (term.source >= sources.size() || term.row < sources[term.source].first_row) continue;
    const RowSource& source = sources[term.source];
    touch(source.at, source.at.offset + (uint64_t{term.row} - source.first_row + 1) * bytes);
  }
}

uint32_t Builder::append(Step step, Dependencies after) {
  step.first_dependency = static_cast<uint32_t>(plan_.dependencies.size());
  for (const uint32_t dependency : after)
    if (dependency != none) plan_.dependencies.push_back(dependency);
  step.dependency_count = static_cast<uint32_t>(plan_.dependencies.size()) - step.first_dependency;
  plan_.steps.push_back(step);
  return size() - 1;
}

bool Builder::merge(const Step& step, Dependencies after) {
  if (plan_.steps.empty()) return false;
  Step& last = plan_.steps.back();
  if (last.kind != Kind::copy || last.stage != step.stage) return false;
  if (last.source.rank != step.source.rank || last.source.buffer != step.source.buffer) return false;
  if (last.destination.rank != step.destination.rank || last.destination.buffer != step.destination.buffer)
    return false;
  const auto same_dependencies = plan_.dependencies_of(last);
  if (!std::ranges::equal(after, same_dependencies)) return false;
  const bool continues = last.rows == 1 && step.source.offset == last.source.offset + last.bytes &&
                         step.destination.offset == last.destination.offset + last.bytes;
  if (continues) {
    last.bytes += step.bytes;
    return true;
  }
  if (last.bytes != step.bytes) return false;
  const auto next_row = [&](const Location& start, uint64_t stride) {
    return start.offset + stride * last.rows;
  };
  if (last.rows == 1) {
    if (step.source.offset < last.source.offset + last.bytes) return false;
    if (step.destination.offset < last.destination.offset + last.bytes) return false;
    last.source_stride = step.source.offset - last.source.offset;
    last.destination_stride = step.destination.offset - last.destination.offset;
  } else if (step.source.offset != next_row(last.source, last.source_stride) ||
             step.destination.offset != next_row(last.destination, last.destination_stride)) {
    return false;
  }
  ++last.rows;
  return true;
}

uint32_t Builder::copy(int stage, Location source, Location destination, uint64_t bytes, Dependencies after) {
  if (bytes == 0) return none;
  touch(source, source.offset + bytes);
  touch(destination, destination.offset + bytes);
  Step step;
  step.kind = Kind::copy;
  step.stage = static_cast<uint8_t>(stage);
  step.source = source;
  step.destination = destination;
  step.bytes = bytes;
  if (merge(step, after)) return size() - 1;
  return append(step, after);
}

uint32_t Builder::send(int peer, uint32_t tag, Location source, uint64_t bytes, Dependencies after) {
  return message(Kind::send, peer, tag, source, {1}, bytes, after);
}

uint32_t Builder::recv(int peer, uint32_t tag, Location destination, uint64_t bytes, Dependencies after) {
  return message(Kind::recv, peer, tag, destination, {1}, bytes, after);
}

uint32_t Builder::send(int peer, uint32_t tag, Location source, RowCount rows, uint64_t row_bytes,
                       Dependencies after) {
  return message(Kind::send, peer, tag, source, rows, row_bytes, after);
}

uint32_t Builder::recv(int peer, uint32_t tag, Location destination, RowCount rows, uint64_t row_bytes,
                       Dependencies after) {
  return message(Kind::recv, peer, tag, destination, rows, row_bytes, after);
}

uint32_t Builder::message(Kind kind, int peer, uint32_t tag, Location place, RowCount rows,
                          uint64_t row_bytes, Dependencies after) {
  Step step;
  step.kind = kind;
  step.stage = 1;
  step.peer = peer;
  step.tag = tag;
  (kind == Kind::send ? step.source : step.destination) = place;
  step.bytes = row_bytes;
  step.rows = rows_now(rows);
  step.count = rows.index;
  touch(place, place.offset + rows.rows * row_bytes);
  return append(step, after);
}

/// A count that is not there is left to well_formed(), which says so.
uint32_t Builder::rows_now(RowCount count) const {
  if (count.index == Step::no_count) return count.rows;
  return plan_.tables == nullptr || count.index >= plan_.tables->counts.size()
             ? 0
             : plan_.tables->counts[count.index];
}

uint32_t Builder::post(int stage, uint16_t slot, uint32_t value, Dependencies after) {
  Step step;
  step.kind = Kind::post;
  step.stage = static_cast<uint8_t>(stage);
  step.slot = slot;
  step.value = value;
  return append(step, after);
}

uint32_t Builder::wait(int stage, int peer, uint16_t slot, uint32_t value, Dependencies after) {
  Step step;
  step.kind = Kind::wait;
  step.stage = static_cast<uint8_t>(stage);
  step.peer = peer;
  step.slot = slot;
  step.value = value;
  return append(step, after);
}

uint32_t Builder::enter(uint16_t slot) {
  const uint32_t posted = post(0, slot, 1);
  plan_.steps[posted].at_entry = true;
  return posted;
}

uint32_t Builder::wait_for_entry(int stage, int peer, uint16_t slot) {
  const uint32_t waited = wait(stage, peer, slot, 1);
  plan_.steps[waited].at_entry = true;
  return waited;
}

uint32_t Builder::move_rows(int stage, const Rows& source, const Rows& destination, RowCount count,
                            uint64_t bytes, Dependencies after) {
  if (count.nothing() || bytes == 0) return none;
  touch(source, count, bytes);
  touch(destination, count, bytes);
  Step step;
  step.kind = Kind::move_rows;
  step.stage = static_cast<uint8_t>(stage);
  step.source = source.at;
  step.source_list = source.list;
  step.source_first_row = source.first_row;
  step.destination = destination.at;
  step.destination_list = destination.list;
  step.destination_first_row = destination.first_row;
  step.bytes = bytes;
  step.rows = rows_now(count);
  step.count = count.index;
  return append(step, after);
}

uint32_t Builder::reduce_rows(int stage, uint32_t first_sum, std::span<const RowSource> sources,
                              const Rows& destination, RowCount count, uint64_t bytes, Dependencies after) {
  if (count.nothing() || bytes == 0) return none;
  const uint32_t rows = rows_now(count);
  touch_terms(first_sum, rows, sources, bytes);
  touch(destination, count, bytes);
  Step step;
  step.kind = Kind::reduce_rows;
  step.stage = static_cast<uint8_t>(stage);
  step.first_sum = first_sum;
  step.first_source = static_cast<uint32_t>(plan_.row_sources.size());
  step.source_count = static_cast<uint16_t>(sources.size());
  step.destination = destination.at;
  step.destination_list = destination.list;
  step.destination_first_row = destination.first_row;
  step.bytes = bytes;
  step.rows = rows;
  step.count = count.index;
  plan_.row_sources.insert(plan_.row_sources.end(), sources.begin(), sources.end());
  return append(step, after);
}

uint32_t Builder::reduce(int stage, std::span<const Location> raw, std::span<const Location> partial,
                         Location destination, uint64_t bytes, bool finishes, Dependencies after) {
  if (bytes == 0) return none;
  Step step;
  step.kind = Kind::reduce;
  step.stage = static_cast<uint8_t>(stage);
  step.first_source = static_cast<uint32_t>(plan_.row_sources.size());
  step.source_count = static_cast<uint16_t>(raw.size() + partial.size());
  step.raw_count = static_cast<uint16_t>(raw.size());
  step.finishes = finishes;
  step.destination = destination;
  step.bytes = bytes;
  for (const auto& sources : {raw, partial})
    for (const Location& at : sources) {
      touch(at, at.offset + bytes);
      plan_.row_sources.push_back({at, 0});
    }
  touch(destination, destination.offset + bytes);
  return append(step, after);
}

}  // namespace epccl::plan
