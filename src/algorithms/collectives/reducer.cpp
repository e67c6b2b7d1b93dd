#include "algorithms/collectives/reducer.hpp"

#include <algorithm>

namespace epccl::algorithms {

using plan::Builder;
using plan::Location;

/// How the network's part of scratch is divided.
struct Reducer::Places {
  uint64_t chunk = 0;
  size_t sending = 1, receiving = 1, fetching = 1;  // chunks

  explicit Places(const RoundBuilder& b) {
    // So many chunks are under way at once where there is room: one is added up while others travel.
    constexpr uint64_t most = 4;
    const PartCounts counts = part_counts(b.cluster, b.parameters);
    const uint64_t slots = counts.all(), unit = b.call.unit;
    const uint64_t room = b.round.network_bytes / slots;
    const uint64_t wanted = std::min(room / 2 < unit ? room : room / 2, b.parameters.chunk_bytes);
    chunk = std::max(wanted / unit, uint64_t{1}) * unit;
    const size_t under_way = std::clamp(room / chunk, uint64_t{1}, most);
    sending = counts.sent * under_way;
    receiving = counts.received * under_way;
    fetching = std::max(counts.fetched * under_way, size_t{1});  // none is no ring; nobody takes it
  }
};

Reducer::Reducer(RoundBuilder& round) : Reducer(round, Places(round)) {}

Reducer::Reducer(RoundBuilder& round, const Places& places)
    : b_(round),
      chunk_(places.chunk),
      sending_(round.builder.scratch(round.round.network), places.chunk, places.sending),
      receiving_(round.builder.scratch(round.round.network + places.sending * places.chunk), places.chunk,
                 places.receiving),
      fetching_(
          round.builder.scratch(round.round.network + (places.sending + places.receiving) * places.chunk),
          places.chunk, places.fetching) {}

std::vector<Part> Reducer::inputs(int block, const Range& range) {
  const size_t size = b_.exchange.size(), own = b_.exchange.local();
  std::vector<Part> parts(size);
  // Each rank begins with another; they are added up in the order of ranks all the same.
  for (size_t i = 0; i < size; ++i) {
    const size_t local = (own + i) % size;
    const NodeExchange::Readable from = b_.exchange.input(local, block, range.begin);
    parts[local] = {from.at, from.after, from.raw};
    if (b_.parameters.fetch && local != own) parts[local] = fetched(from, range.bytes());
  }
  return parts;
}

Part Reducer::fetched(const NodeExchange::Readable& from, uint64_t bytes) {
  SlotRing::Slot slot = fetching_.take();
  std::vector<uint32_t> after = slot.after;
  after.push_back(from.after);
  const uint32_t step = b_.builder.copy(0, from.at, slot.at, bytes, b_.after_scratch(std::move(after)));
  return {slot.at, step, from.raw, std::move(slot)};
}

Part Reducer::node_part(int block, const Range& range) {
  std::vector<Part> own = inputs(block, range);
  if (is_raw(b_.node())) return own.front();
  SlotRing::Slot slot = sending_.take();
  const Location at = slot.at;
  const uint32_t made = add_up(own, at, range.bytes(), false, std::move(slot.after));
  return {at, made, false, std::move(slot)};
}

Part Reducer::received(int from, uint64_t bytes, bool raw) {
  SlotRing::Slot slot = receiving_.take();
  const uint32_t step = b_.messages.recv(from, slot.at, bytes, b_.after_scratch(slot.after));
  return {slot.at, step, raw, std::move(slot)};
}

uint32_t Reducer::send(int to, const Part& part, uint64_t from, uint64_t bytes) {
  Location at = part.at;
  at.offset += from;
  const std::array after{part.made};
  const uint32_t sent = b_.messages.send(to, at, bytes, after);
  if (part.slot) used_by(*part.slot, sent);
  return sent;
}

uint32_t Reducer::add_up(const std::vector<Part>& parts, const Location& to, uint64_t bytes, bool finishes,
                         std::vector<uint32_t> after) {
  std::vector<Location> raw, partial;
  for (const Part& part : parts) {
    (part.raw ? raw : partial).push_back(part.at);
    if (part.made != Builder::none) after.push_back(part.made);
  }
  const uint32_t made = b_.builder.reduce(finishes ? 2 : 0, raw, partial, to, bytes, finishes,
                                          b_.after_scratch(std::move(after)));
  b_.exchange.uses_scratch(made);
  for (const Part& part : parts)
    if (part.slot) part.slot->used_by(made);
  return made;
}

}  // namespace epccl::algorithms
