#include "algorithms/ep/dispatch.hpp"

#include <array>

#include "algorithms/alltoall/send_window.hpp"
#include "algorithms/ep/ring.hpp"
#include "algorithms/ep/turns.hpp"
#include "algorithms/node_gate.hpp"

namespace epccl::algorithms {
namespace {

using plan::Builder;

constexpr size_t turn_blocks = 4;

class Dispatch {
 public:
  Dispatch(const topology::Cluster& cluster, const TokenExchange& exchange, int rank,
           const TokenParameters& parameters)
      : builder_(rank),
        cluster_(cluster),
        exchange_(exchange),
        parameters_(parameters),
        send_ring_(0, parameters.scratch_bytes / 2),
        recv_ring_(parameters.scratch_bytes / 2, parameters.scratch_bytes / 2),
        window_(parameters.send_window, bytes_to_send()) {
    builder_.use_tables(parameters.fetch ? exchange.fetched_tables : exchange.tables);
  }

  plan::RankPlan build() && {
    NodeGate gate(builder_, cluster_, builder_.rank());
    for_each_message(exchange_.incoming, turn_blocks,
                     [&](const TokenStream& stream, size_t block) { relay(stream, block, gate); });
    for_each_message(exchange_.outgoing, turn_blocks,
                     [&](const TokenStream& stream, size_t block) { send(stream, block); });
    // Block by block, so that the network is looked after in between.
    for (size_t block = 0; block < exchange_.own.blocks.size(); ++block)
      deliver(1, exchange_.own, block, {builder_.input(0), 0}, Builder::none, gate);
    if (parameters_.fetch) fetch(gate);
    gate.leave(delivered_);
    return std::move(builder_).take();
  }

 private:
  uint64_t bytes_to_send() const {
    uint64_t rows = 0;
    for (const TokenStream& stream : exchange_.outgoing) rows += stream.blocks.places();
    return rows * parameters_.row_bytes;
  }

  void send(const TokenStream& stream, size_t block) {
    const Builder::RowCount rows = stream.blocks.count(block);
    if (rows.rows == 0) return;
    const uint32_t first = stream.blocks.begin[block];
    const uint64_t bytes = rows.rows * parameters_.row_bytes;
    const bool in_place = stream.tokens == TokenStream::every_token && parameters_.contiguous_input;
    plan::Location from = builder_.input(first * parameters_.row_bytes);
    uint32_t packed = Builder::none;
    Ring::Space space;
    if (!in_place) {
      std::vector<uint32_t> free;
      space = send_ring_.take(bytes, free);
      from = builder_.scratch(space.offset);
      const uint32_t list = stream.tokens == TokenStream::every_token ? stream.tokens : stream.tokens + first;
      const uint32_t first_token = stream.tokens == TokenStream::every_token ? first : 0;
      packed = builder_.move_rows(0, {builder_.input(first_token * parameters_.row_bytes), first_token, list},
                                  {from}, rows, parameters_.row_bytes, free);
    }
    const std::array after{packed, window_.wait_for(bytes)};
    const uint32_t sent =
        builder_.send(stream.relay, static_cast<uint32_t>(block), from, rows, parameters_.row_bytes, after);
    window_.add(sent, bytes);
    if (!in_place) send_ring_.in_use_until(space, sent);
  }

  void relay(const TokenStream& stream, size_t block, NodeGate& gate) {
    const Builder::RowCount rows = stream.blocks.count(block);
    if (rows.rows == 0) return;
    const uint64_t bytes = rows.rows * parameters_.row_bytes;
    std::vector<uint32_t> free;
    const Ring::Space space = recv_ring_.take(bytes, free);
    const uint32_t received =
        builder_.recv(stream.source, static_cast<uint32_t>(block), builder_.scratch(space.offset), rows,
                      parameters_.row_bytes, free);
    recv_ring_.in_use_until(space, received);
    const size_t first = delivered_.size();
    deliver(2, stream, block, {builder_.scratch(space.offset), stream.blocks.begin[block]}, received, gate);
    for (size_t i = first; i < delivered_.size(); ++i) recv_ring_.in_use_until(space, delivered_[i]);
  }

  // Hands out the rows of one block that lie at `from`. Every rank begins with another receiver, so that not all write to one.
  void deliver(int stage, const TokenStream& stream, size_t block, const Builder::Rows& from, uint32_t here,
               NodeGate& gate) {
    const auto start = static_cast<size_t>(cluster_.local_of(builder_.rank())) + 1;
    for (size_t i = 0; i < stream.deliveries.size(); ++i) {
      const Delivery& delivery = stream.deliveries[(start + i) % stream.deliveries.size()];
      const uint32_t first = delivery.blocks.begin[block];
      const Builder::RowCount count = delivery.blocks.count(block);
      if (count.rows == 0) continue;
      const std::array after{here, gate.ready(static_cast<size_t>(cluster_.local_of(delivery.rank)))};
      Builder::Rows source = from;
      source.list = delivery.rows + first;
      const bool listed = delivery.slots != plan::Step::no_list;
      const uint64_t offset = listed ? 0 : (delivery.first_slot + first) * parameters_.row_bytes;
      const Builder::Rows target{{delivery.rank, plan::Buffer::output, offset},
                                 0,
                                 listed ? delivery.slots + first : plan::Step::no_list};
      delivered_.push_back(builder_.move_rows(stage, source, target, count, parameters_.row_bytes, after));
      const bool straight = stream.source == builder_.rank() && delivery.rank != builder_.rank();
      if (straight) builder_.unless_fetched(delivered_.back());
    }
  }

  // What the node's ranks would bring. Every rank begins with another, so that not all read from one.
  void fetch(NodeGate& gate) {
    builder_.fetch();
    const auto start = static_cast<size_t>(cluster_.local_of(builder_.rank()));
    for (size_t i = 0; i < exchange_.fetched.size(); ++i) {
      const TokenStream& stream = exchange_.fetched[(start + i) % exchange_.fetched.size()];
      for (size_t block = 0; block < stream.blocks.size(); ++block)
        deliver(1, stream, block, {{stream.source, plan::Buffer::input, 0}, 0},
                gate.ready(static_cast<size_t>(cluster_.local_of(stream.source))), gate);
    }
  }

  Builder builder_;
  const topology::Cluster& cluster_;
  const TokenExchange& exchange_;
  const TokenParameters& parameters_;
  Ring send_ring_, recv_ring_;
  SendWindow window_;
  std::vector<uint32_t> delivered_;
};

}  // namespace

plan::RankPlan build_dispatch(const topology::Cluster& cluster, const TokenExchange& exchange, int rank,
                              const TokenParameters& parameters) {
  return Dispatch(cluster, exchange, rank, parameters).build();
}

}  // namespace epccl::algorithms
