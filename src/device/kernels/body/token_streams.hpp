// The lists of plans of several nodes (token_stream_parameters.hpp).
#pragma once

#include "device/kernels/body/layout_results.hpp"
#include "device/kernels/token_stream_parameters.hpp"

namespace epccl::device::kernels {

/// Goes through the tokens of a block, a lane for each, and numbers what they take.
template <class Warp>
class BlockWalk {
 public:
  EPCCL_DEVICE BlockWalk(const Warp& warp, const StreamRows& stream, uint32_t block, uint32_t tokens)
      : warp_(warp), first_(uint64_t{block} * stream.block_tokens) {
    const uint64_t past = first_ + stream.block_tokens;
    end_ = past < tokens ? past : tokens;
  }

  struct Taken {
    uint32_t rows = 0, places = 0;
  };
  /// take(token): what it takes. use(token, taken, before): what the block's tokens before it took. Returns what all take.
  template <class Take, class Use>
  EPCCL_DEVICE Taken go(Take take, Use use) const {
    typename Warp::template PerLane<Taken> taken;
    typename Warp::template PerLane<uint32_t> rows, places;
    Taken all;
    for (uint64_t first = first_; first < end_; first += warp_lanes) {
      warp_.each([&](uint32_t lane) {
        taken[lane] = first + lane < end_ ? take(static_cast<uint32_t>(first + lane)) : Taken{};
        rows[lane] = taken[lane].rows;
        places[lane] = taken[lane].places;
      });
      const uint32_t more_rows = warp_.before(rows), more_places = warp_.before(places);
      warp_.each([&](uint32_t lane) {
        if (first + lane < end_)
          use(static_cast<uint32_t>(first + lane), taken[lane],
              Taken{all.rows + rows[lane], all.places + places[lane]});
      });
      all.rows += more_rows;
      all.places += more_places;
    }
    return all;
  }
  EPCCL_DEVICE uint64_t first() const { return first_; }

 private:
  const Warp& warp_;
  uint64_t first_, end_ = 0;
};

template <class Warp>
class StreamLists {
 public:
  EPCCL_DEVICE StreamLists(const Warp& warp, const TokenStreamParameters& parameters)
      : warp_(warp), parameters_(parameters), shape_(parameters.layout.shape) {}

  /// One block of the i-th list: those of what is sent come first, then what is received, then what goes on.
  EPCCL_DEVICE void make(uint64_t i, uint32_t block) const {
    if (i < parameters_.sent_count) return make_sent(static_cast<uint32_t>(i), block);
    i -= parameters_.sent_count;
    if (i < parameters_.received_count) return make_received(static_cast<uint32_t>(i), block);
    make_delivered(parameters_.deliveries[i - parameters_.received_count], block);
  }

 private:
  using Walk = BlockWalk<Warp>;
  using Taken = typename Walk::Taken;

  /// Streams of other sources may be cut into fewer blocks.
  EPCCL_DEVICE bool has_block(const StreamRows& stream, uint32_t block) const {
    return uint64_t{block} * stream.block_tokens < shape_.max_tokens;
  }
  EPCCL_DEVICE uint32_t tokens_of(const StreamRows& stream) const {
    return Table(parameters_.layout, stream.source).tokens();
  }
  EPCCL_DEVICE void put_count(uint32_t counts, uint32_t block, uint32_t count) const {
    warp_.each([&](uint32_t lane) {
      if (lane == 0) parameters_.counts[counts + block] = count;
    });
  }

  EPCCL_DEVICE bool goes_to(const Table& table, uint32_t token, uint32_t to) const {
    bool found = false;
    for (uint32_t position = 0; position < shape_.k; ++position) {
      const int64_t id = table.id(uint64_t{token} * shape_.k + position);
      if (!table.is_expert(id)) continue;
      const ExpertPlace& place = parameters_.layout.experts[id];
      found = found || (parameters_.to_ranks != 0 ? place.rank : place.node) == to;
    }
    return found;
  }
  EPCCL_DEVICE void make_sent(uint32_t number, uint32_t block) const {
    const SentStream& stream = parameters_.sent[number];
    if (!has_block(stream.rows, block)) return;
    const Table table(parameters_.layout, stream.rows.source);
    const Walk walk(warp_, stream.rows, block, table.tokens());
    uint32_t* const sent_rows = parameters_.sent_rows + uint64_t{number} * shape_.max_tokens;
    const Taken all = walk.go(
        [&](uint32_t token) {
          const uint32_t goes = goes_to(table, token, stream.to) ? 1 : 0;
          return Taken{stream.rows.every_token != 0 ? 1 : goes, goes};
        },
        [&](uint32_t token, const Taken& taken, const Taken& before) {
          const auto row = static_cast<uint32_t>(walk.first() + before.rows);
          sent_rows[token] = taken.places != 0 ? row : no_row;
          if (stream.tokens != no_row && taken.rows != 0) parameters_.rows[stream.tokens + row] = token;
        });
    put_count(stream.rows.counts, block, all.rows);
  }

  EPCCL_DEVICE const Target* targets_of(uint32_t number, uint32_t token) const {
    const bool own = number + 1 == parameters_.received_count;
    const Target* const table =
        own ? parameters_.layout.targets
            : parameters_.layout.relayed + uint64_t{number} * shape_.max_tokens * shape_.k;
    return table + uint64_t{token} * shape_.k;
  }
  /// Whether the stream has a row for the token.
  EPCCL_DEVICE bool has_row(uint32_t number, uint32_t token) const {
    if (parameters_.received[number].rows.every_token != 0) return true;
    bool here = false;
    const Target* const targets = targets_of(number, token);
    for (uint32_t position = 0; position < shape_.k; ++position)
      here = here || load_eight(targets + position).peer != no_row;
    return here;
  }
  EPCCL_DEVICE void hand_on(uint32_t number, uint32_t token, uint64_t row) const {
    if (parameters_.handed == nullptr || number + 1 == parameters_.received_count) return;
    const Target* const targets = targets_of(number, token);
    Target* const handed = parameters_.handed + (uint64_t{number} * shape_.max_tokens + row) * shape_.k;
    for (uint32_t position = 0; position < shape_.k; ++position)
      handed[position] = load_eight(targets + position);
  }
  EPCCL_DEVICE void make_received(uint32_t number, uint32_t block) const {
    const ReceivedStream& stream = parameters_.received[number];
    if (!has_block(stream.rows, block)) return;
    const bool by_expert = parameters_.layout.rules.by_expert != 0;
    const Walk walk(warp_, stream.rows, block, tokens_of(stream.rows));
    const Taken all = walk.go(
        [&](uint32_t token) {
          return Taken{has_row(number, token) ? 1U : 0U, 0};
        },
        [&](uint32_t token, const Taken& taken, const Taken& before) {
          if (taken.rows == 0) return;
          hand_on(number, token, walk.first() + before.rows);
          if (stream.first_sum == no_row) return;
          const uint64_t sum = stream.first_sum + walk.first() + before.rows;
          parameters_.term_counts[sum] =
              put_terms(targets_of(number, token), shape_.k, by_expert, parameters_.terms + sum * shape_.k);
        });
    put_count(stream.rows.counts, block, all.rows);
  }

  EPCCL_DEVICE void make_delivered(const DeliveredList& list, uint32_t block) const {
    const StreamRows& stream = parameters_.received[list.stream].rows;
    if (!has_block(stream, block)) return;
    const Walk walk(warp_, stream, block, tokens_of(stream));
    const uint64_t begin = walk.first() * (parameters_.layout.rules.by_expert != 0 ? shape_.k : 1);
    const Taken all = walk.go(
        [&](uint32_t token) {
          Taken taken{has_row(list.stream, token) ? 1U : 0U, 0};
          for_each_row(list, token, [&](uint32_t) { ++taken.places; });
          return taken;
        },
        [&](uint32_t token, const Taken&, const Taken& before) {
          uint64_t place = begin + before.places;
          for_each_row(list, token, [&](uint32_t slot) {
            parameters_.rows[list.rows + place] = static_cast<uint32_t>(walk.first() + before.rows);
            parameters_.rows[list.slots + place] = slot;
            ++place;
          });
        });
    put_count(list.counts, block, all.places);
  }
  template <class Use>
  EPCCL_DEVICE void for_each_row(const DeliveredList& list, uint32_t token, Use use) const {
    const Target* const targets = targets_of(list.stream, token);
    for (uint32_t position = 0; position < shape_.k; ++position)
      if (const Target target = load_eight(targets + position);
          target.row != no_row && target.peer == list.peer)
        use(target.row);
  }

  const Warp& warp_;
  const TokenStreamParameters& parameters_;
  const LayoutShape& shape_;
};

template <class Warp>
EPCCL_DEVICE void lists_body(const Warp& warp, const TokenStreamParameters& parameters) {
  const uint64_t lists =
      uint64_t{parameters.sent_count} + parameters.received_count + parameters.delivery_count;
  const StreamLists<Warp> made(warp, parameters);
  for (Tiles tiles(warp.index(), warp.count(), parameters.most_blocks); tiles.row() < lists; tiles.next())
    made.make(tiles.row(), tiles.tile());
}

/// The terms of what comes back for one token.
EPCCL_DEVICE void add_final_sum(const TokenStreamParameters& parameters, uint64_t token) {
  const LayoutShape& shape = parameters.layout.shape;
  const uint64_t sum = parameters.first_final_sum + token;
  Term* const terms = parameters.terms + sum * shape.k;
  uint32_t count = 0, open = 0;
  for (uint32_t i = 0; i < parameters.part_count; ++i) {
    const SumPart& part = parameters.parts[i];
    if (part.stream == no_row) {
      const uint32_t own = parameters.own_counts[token];
      for (uint32_t k = 0; k < own; ++k)
        terms[count++] = load_eight(parameters.own_terms + token * shape.k + k);
    } else if (const uint32_t row = parameters.sent_rows[uint64_t{part.stream} * shape.max_tokens + token];
               row != no_row) {
      Term term;
      term.row = row;
      term.source = static_cast<uint16_t>(part.source);
      term.ends = Term::rank_sum;
      terms[count++] = term;
      open = 1;
    }
    if (part.ends_node != 0 && open != 0) terms[count - 1].ends = Term::rank_sum | Term::node_sum;
    if (part.ends_node != 0) open = 0;
  }
  parameters.term_counts[sum] = count;
}

template <class Warp>
EPCCL_DEVICE void final_sums_body(const Warp& warp, const TokenStreamParameters& parameters) {
  const uint32_t tokens = Table(parameters.layout, parameters.layout.rank).tokens();
  for_each_number(warp, tokens, [&](uint64_t token) { add_final_sum(parameters, token); });
}

}  // namespace epccl::device::kernels
