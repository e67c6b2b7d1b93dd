#include "algorithms/collectives/reducer.hpp"

#include <algorithm>

namespace epccl::algorithms {

using plan::Builder;
using plan::Location;

/// How the network's part of scratch is divided.
struct Reducer::Places {
  uint64_t chunk = 0;
  size_t sending = 1, receiving = 1;  // chunks

  explicit Places(const RoundBuilder& b) {
    // So many chunks are under way at once where there is room: one is added up while others travel.
    constexpr uint64_t most = 4;
    const PartCounts counts = part_counts(b.cluster, b.parameters);
    const uint64_t slots = counts.sent + counts.received, unit = b.call.unit;
    const uint64_t room = b.round.network_bytes / slots;
    const uint64_t wanted = std::min(room / 2 < unit ? room : room / 2, b.parameters.chunk_bytes);
    chunk = std::max(wanted / unit, uint64_t{1}) * unit;
    const size_t under_way = std::clamp(room / chunk, uint64_t{1}, most);
    sending = counts.sent * under_way;
    receiving = counts.received * under_way;
  }
};

Reducer::Reducer(RoundBuilder& round) : Reducer(round, Places(round)) {}

Reducer::Reducer(RoundBuilder& round, const Places& places)
    : b_(round),
      chunk_(places.chunk),
      sending_(round.builder.scratch(round.round.network), places.chunk, places.sending),
      receiving_(round.builder.scratch(round.round.network + places.sending * places.chunk), places.chunk,
                 places.receiving) {}

std::vector<Part> Reducer::inputs(int block, const Range& range) {
  std::vector<Part> parts;
  for (size_t local = 0; local < b_.exchange.size(); ++local) {
    const NodeExchange::Readable from = b_.exchange.input(local, block, range.begin);
    parts.push_back({from.at, from.after, from.raw});
  }
  return parts;
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
