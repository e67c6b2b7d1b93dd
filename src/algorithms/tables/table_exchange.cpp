#include "algorithms/tables/table_exchange.hpp"

#include <algorithm>
#include <array>

#include "algorithms/node_gate.hpp"
#include "algorithms/speaker.hpp"

namespace epccl::algorithms {
namespace {

using plan::Buffer;
using plan::Builder;

constexpr uint16_t written_slot = NodeGate::slots;  // my block is in the outputs of my node

class TableExchange {
 public:
  TableExchange(const topology::Cluster& cluster, int rank, uint64_t block_bytes, uint64_t chunk_bytes)
      : cluster_(cluster),
        node_(cluster.node_of(rank)),
        block_(block_bytes),
        chunk_(std::max<uint64_t>(chunk_bytes, 1)),
        builder_(rank),
        gate_(builder_, cluster, rank) {}

  plan::RankPlan build() && {
    const std::vector<uint32_t> own =
        give_out(builder_.input(0), table_offset(cluster_, builder_.rank(), block_), block_, Builder::none);
    if (cluster_.nodes() > 1) {
      if (cluster_.local_size(node_) > 1) builder_.post(0, written_slot, 1, own);
      for (int distance = 1; distance < cluster_.nodes(); ++distance) {
        send_to((node_ + distance) % cluster_.nodes(), own);
        receive_from((node_ + cluster_.nodes() - distance) % cluster_.nodes());
      }
    }
    gate_.leave(given_out_);
    return std::move(builder_).take();
  }

 private:
  uint64_t node_begin(int node) const { return table_offset(cluster_, cluster_.rank_at(node, 0), block_); }
  uint64_t node_bytes(int node) const { return static_cast<uint64_t>(cluster_.local_size(node)) * block_; }

  // Copies a piece to the same place of every output of the node, except where it lies already. Each rank begins with another.
  std::vector<uint32_t> give_out(const plan::Location& from, uint64_t offset, uint64_t bytes, uint32_t here) {
    std::vector<uint32_t> copies;
    const auto& members = cluster_.members(node_);
    const auto own = static_cast<size_t>(cluster_.local_of(builder_.rank()));
    for (size_t i = 0; i < members.size(); ++i) {
      const size_t local = (own + i) % members.size();
      if (i == 0 && from.buffer == Buffer::output) continue;
      const std::array after{here, gate_.ready(local)};
      const uint32_t copied = builder_.copy(from.buffer == Buffer::input ? 0 : 2, from,
                                            {members[local], Buffer::output, offset}, bytes, after);
      if (copied != Builder::none) copies.push_back(copied);
    }
    given_out_.insert(given_out_.end(), copies.begin(), copies.end());
    return copies;
  }

  void send_to(int other, const std::vector<uint32_t>& own) {
    if (speaker(cluster_, node_, other) != builder_.rank()) return;
    if (all_written_.empty()) {
      all_written_ = own;
      for (const int member : cluster_.members(node_))
        if (member != builder_.rank()) all_written_.push_back(builder_.wait(0, member, written_slot, 1));
    }
    for_each_piece(node_, [&](uint64_t offset, uint64_t bytes, uint32_t tag) {
      builder_.send(speaker(cluster_, other, node_), tag, builder_.output(offset), bytes, all_written_);
    });
  }

  void receive_from(int other) {
    if (speaker(cluster_, node_, other) != builder_.rank()) return;
    for_each_piece(other, [&](uint64_t offset, uint64_t bytes, uint32_t tag) {
      const uint32_t received =
          builder_.recv(speaker(cluster_, other, node_), tag, builder_.output(offset), bytes);
      give_out(builder_.output(offset), offset, bytes, received);
    });
  }

  template <typename Use>
  void for_each_piece(int node, Use use) const {
    const uint64_t end = node_begin(node) + node_bytes(node);
    uint32_t tag = 0;
    for (uint64_t at = node_begin(node); at < end; at += chunk_) use(at, std::min(chunk_, end - at), tag++);
  }

  const topology::Cluster& cluster_;
  const int node_;
  const uint64_t block_, chunk_;
  Builder builder_;
  NodeGate gate_;
  std::vector<uint32_t> all_written_, given_out_;
};

}  // namespace

uint64_t table_offset(const topology::Cluster& cluster, int source, uint64_t block_bytes) {
  uint64_t blocks = static_cast<uint64_t>(cluster.local_of(source));
  for (int node = 0; node < cluster.node_of(source); ++node)
    blocks += static_cast<uint64_t>(cluster.local_size(node));
  return blocks * block_bytes;
}

plan::RankPlan build_table_exchange(const topology::Cluster& cluster, int rank, uint64_t block_bytes,
                                    uint64_t chunk_bytes) {
  return TableExchange(cluster, rank, block_bytes, chunk_bytes).build();
}

std::vector<plan::Transfer> table_transfers(const topology::Cluster& cluster, uint64_t block_bytes) {
  std::vector<plan::Transfer> transfers;
  for (int source = 0; source < cluster.ranks(); ++source)
    for (int destination = 0; destination < cluster.ranks(); ++destination)
      transfers.push_back({source, 0, destination, table_offset(cluster, source, block_bytes), block_bytes});
  return transfers;
}

}  // namespace epccl::algorithms
