#include <algorithm>
#include <array>

#include "algorithms/alltoall/send_window.hpp"
#include "algorithms/ep/dispatch.hpp"
#include "algorithms/ep/ring.hpp"
#include "algorithms/ep/turns.hpp"
#include "algorithms/node_gate.hpp"

namespace epccl::algorithms {
namespace {

using plan::Builder;

class Combine {
 public:
  Combine(const topology::Cluster& cluster, const TokenExchange& exchange, int rank,
          const TokenParameters& parameters)
      : builder_(rank),
        cluster_(cluster),
        exchange_(exchange),
        parameters_(parameters),
        send_ring_(0, parameters.scratch_bytes / 2),
        recv_ring_(parameters.scratch_bytes / 2, parameters.scratch_bytes / 2),
        window_(parameters.send_window, bytes_to_send()) {
    builder_.use_tables(exchange.sums);
  }

  plan::RankPlan build() && {
    NodeGate gate(builder_, cluster_, builder_.rank());
    const auto& members = cluster_.members(cluster_.node_of(builder_.rank()));
    for (size_t local = 0; local < members.size(); ++local) {
      node_inputs_.push_back({{members[local], plan::Buffer::input, 0}, 0});
      node_ready_.push_back(gate.ready(local));
    }
    // What comes first is started first: receives, then what others wait for.
    for (size_t block = 0; block < exchange_.own.blocks.size(); ++block) receive(block);
    for_each_message(exchange_.incoming, std::max(parameters_.turn_blocks, 1U),
                     [&](const TokenStream& stream, size_t block) { give_back(stream, block); });
    gate.leave(reduced_);
    return std::move(builder_).take();
  }

 private:
  uint64_t bytes_to_send() const {
    uint64_t rows = 0;
    for (const TokenStream& stream : exchange_.incoming) rows += stream.blocks.places();
    return rows * parameters_.row_bytes;
  }

  // As relay: what the node's ranks have for one block, added up and sent to the source.
  void give_back(const TokenStream& stream, size_t block) {
    const Builder::RowCount rows = stream.blocks.count(block);
    if (rows.rows == 0) return;
    const uint32_t first = stream.blocks.begin[block];
    const uint64_t bytes = rows.rows * parameters_.row_bytes;
    std::vector<uint32_t> after = node_ready_;
    const Ring::Space space = send_ring_.take(bytes, after);
    const plan::Location ring = builder_.scratch(space.offset);
    const uint32_t reduced = builder_.reduce_rows(0, stream.first_sum + first, node_inputs_, {ring}, rows,
                                                  parameters_.row_bytes, after);
    reduced_.push_back(reduced);
    const std::array ready{reduced, window_.wait_for(bytes)};
    const uint32_t sent =
        builder_.send(stream.source, static_cast<uint32_t>(block), ring, rows, parameters_.row_bytes, ready);
    window_.add(sent, bytes);
    send_ring_.in_use_until(space, sent);
  }

  // As source: the tokens of one block, from what the relays send and what lies in this node.
  void receive(size_t block) {
    std::vector<plan::RowSource> sources = node_inputs_;
    std::vector<uint32_t> after = node_ready_;
    std::vector<Ring::Space> spaces;
    for (const TokenStream& stream : exchange_.outgoing) {
      const Builder::RowCount rows = stream.blocks.count(block);
      sources.push_back({builder_.scratch(0), 0});
      if (rows.rows == 0) continue;
      std::vector<uint32_t> free;
      spaces.push_back(recv_ring_.take(rows.rows * parameters_.row_bytes, free));
      sources.back() = {builder_.scratch(spaces.back().offset), stream.blocks.begin[block]};
      after.push_back(builder_.recv(stream.relay, static_cast<uint32_t>(block),
                                    builder_.scratch(spaces.back().offset), rows, parameters_.row_bytes,
                                    free));
    }
    const uint32_t first = exchange_.own.blocks.begin[block];
    const plan::Location output = builder_.output(first * parameters_.row_bytes);
    reduced_.push_back(builder_.reduce_rows(2, exchange_.first_final_sum + first, sources, {output, first},
                                            exchange_.own.blocks.count(block), parameters_.row_bytes, after));
    for (const Ring::Space& space : spaces) recv_ring_.in_use_until(space, reduced_.back());
  }

  Builder builder_;
  const topology::Cluster& cluster_;
  const TokenExchange& exchange_;
  const TokenParameters& parameters_;
  Ring send_ring_, recv_ring_;
  SendWindow window_;
  std::vector<plan::RowSource> node_inputs_;
  std::vector<uint32_t> node_ready_, reduced_;
};

}  // namespace

plan::RankPlan build_combine(const topology::Cluster& cluster, const TokenExchange& exchange, int rank,
                             const TokenParameters& parameters) {
  return Combine(cluster, exchange, rank, parameters).build();
}

}  // namespace epccl::algorithms
