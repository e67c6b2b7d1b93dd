#include "algorithms/collectives/reducer.hpp"

namespace epccl::algorithms {

using plan::Builder;
using plan::Location;

Reducer::Reducer(RoundBuilder& round)
    : Reducer(round,
              sum_places(part_counts(round.cluster, round.call, round.parameters), round.round.piece.bytes(),
                         round.call.unit, round.parameters.chunk_bytes, round.round.network_bytes)) {}

Reducer::Reducer(RoundBuilder& round, const SumPlaces& places)
    : b_(round),
      chunk_(places.chunk),
      sending_(round.builder.scratch(round.round.network), places.chunk, places.sending),
      receiving_(round.builder.scratch(round.round.network + places.sending * places.chunk), places.received,
                 places.receiving),
      fetching_(round.builder.scratch(round.round.network + places.sending * places.chunk +
                                      places.receiving * places.received),
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
  return partial(own, range.bytes());
}

Part Reducer::partial(const std::vector<Part>& parts, uint64_t bytes) {
  SlotRing::Slot slot = sending_.take();
  const Location at = slot.at;
  const uint32_t made = add_up(parts, at, bytes, false, std::move(slot.after));
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

uint32_t Reducer::finish_for_node(const std::vector<Part>& parts, const Range& range,
                                  std::vector<uint32_t> after) {
  const std::vector<uint32_t> ready = b_.exchange.ready_to_deliver();
  after.insert(after.end(), ready.begin(), ready.end());
  const uint32_t made =
      add_up(parts, b_.exchange.result(0, range.begin), range.bytes(), true, std::move(after));
  b_.exchange.deliver(0, range, made);
  return made;
}

}  // namespace epccl::algorithms
