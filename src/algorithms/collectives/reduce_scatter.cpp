// reduce_scatter: block r of all ranks is added up for rank r.
//
//   two_level   rank of the rail                                   rank r
//     add up block r of the node's ranks --> scratch --send------> recv, from every other node
//                                                                  add up with what the own node has --> output
//   flat        every rank of another node sends its block r as it is
#include "algorithms/collectives/reducer.hpp"
#include "algorithms/partners.hpp"

namespace epccl::algorithms {
namespace {

void send_flat(RoundBuilder& b, const Range& chunk) {
  for (const int to : remote_partners(b.cluster, b.rank(), 1))
    b.messages.send(to, b.own_input(to, chunk.begin), chunk.bytes(), {});
}

void send_along_rail(RoundBuilder& b, Reducer& reducer, const Range& chunk) {
  for (int distance = 1; distance < b.cluster.nodes(); ++distance)
    for (const int to : b.cluster.members((b.node() + distance) % b.cluster.nodes()))
      if (rank_at(b.cluster, b.node(), b.cluster.local_of(to)) == b.rank())
        reducer.send(to, reducer.node_part(to, chunk), 0, chunk.bytes());
}

std::vector<Part> receive_flat(RoundBuilder& b, Reducer& reducer, const Range& chunk) {
  std::vector<Part> parts;
  for (const int from : remote_partners(b.cluster, b.rank(), -1))
    parts.push_back(reducer.received(from, chunk.bytes(), true));
  return parts;
}

std::vector<Part> receive_along_rail(RoundBuilder& b, Reducer& reducer, const Range& chunk) {
  std::vector<Part> parts;
  for (int distance = 1; distance < b.cluster.nodes(); ++distance) {
    const int from = (b.node() + distance) % b.cluster.nodes();
    parts.push_back(reducer.received(rank_at(b.cluster, from, b.cluster.local_of(b.rank())), chunk.bytes(),
                                     reducer.is_raw(from)));
  }
  return parts;
}

}  // namespace

RoundEnd append_reduce_scatter(RoundBuilder& b) {
  b.exchange.open_all(b.cluster.ranks());
  const bool flat = b.parameters.form == Form::flat;
  Reducer reducer(b);
  reducer.for_each_piece(b.piece(), [&](const Range& chunk) {
    flat ? send_flat(b, chunk) : send_along_rail(b, reducer, chunk);
    std::vector<Part> parts = reducer.inputs(b.rank(), chunk);
    for (Part& part : flat ? receive_flat(b, reducer, chunk) : receive_along_rail(b, reducer, chunk))
      parts.push_back(std::move(part));
    reducer.add_up(parts, b.own_output(0, chunk.begin), chunk.bytes(), true);
  });
  return b.exchange.leave();
}

}  // namespace epccl::algorithms
