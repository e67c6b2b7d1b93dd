#include "algorithms/collectives/doubling.hpp"

#include "algorithms/partners.hpp"

namespace epccl::algorithms {
namespace {

/// Gives what this node has to one of those that double, and gets the result from it.
void leave_to(RoundBuilder& b, Reducer& reducer, int inner, const Range& chunk) {
  const Part own = reducer.node_part(0, chunk);
  // In place the result overwrites what was sent or added up.
  const std::vector<uint32_t> read{own.made, reducer.send(inner, own, 0, chunk.bytes())};
  b.exchange.deliver(
      0, chunk,
      b.messages.recv(inner, b.exchange.result(0, chunk.begin), chunk.bytes(), b.after_scratch(read)));
}

}  // namespace

void finish_by_doubling(RoundBuilder& b, Reducer& reducer, int position, const Range& chunk) {
  const Doubling doubling(b.cluster.nodes());
  const int node = b.node();
  const auto rank_of = [&](int other) { return rank_at(b.cluster, other, position); };
  const auto has_other = [&](int inner) { return inner + doubling.inner < b.cluster.nodes(); };
  if (node >= doubling.inner) {
    leave_to(b, reducer, rank_of(node - doubling.inner), chunk);
    return;
  }
  Part mine = reducer.node_part(0, chunk);
  if (has_other(node)) {
    const int other = node + doubling.inner;
    const std::vector<Part> both{mine,
                                 reducer.received(rank_of(other), chunk.bytes(), reducer.is_raw(other))};
    mine = reducer.partial(both, chunk.bytes());
  }
  std::vector<uint32_t> read;  // steps that send the own input, which in place the result overwrites
  for (int distance = 1; distance < doubling.inner; distance *= 2) {
    const int other = node ^ distance;
    const uint32_t sent = reducer.send(rank_of(other), mine, 0, chunk.bytes());
    if (mine.raw) read.push_back(sent);
    const bool raw = distance == 1 && !has_other(other) && reducer.is_raw(other);
    const Part theirs = reducer.received(rank_of(other), chunk.bytes(), raw);
    const std::vector<Part> both = node < other ? std::vector{mine, theirs} : std::vector{theirs, mine};
    if (2 * distance < doubling.inner) {
      mine = reducer.partial(both, chunk.bytes());
      continue;
    }
    const plan::Location result = b.exchange.result(0, chunk.begin);
    const uint32_t made = reducer.finish_for_node(both, chunk, std::move(read));
    if (has_other(node))
      b.exchange.uses_scratch(
          b.messages.send(rank_of(node + doubling.inner), result, chunk.bytes(), std::array{made}));
    return;
  }
}

}  // namespace epccl::algorithms
