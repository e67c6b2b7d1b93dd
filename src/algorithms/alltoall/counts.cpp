#include "algorithms/alltoall/counts.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "algorithms/speaker.hpp"

namespace epccl::algorithms {
namespace {

using plan::Buffer;
using plan::Builder;

constexpr uint64_t entry = sizeof(CountEntry);
constexpr uint16_t row_slot = 0;     // my row is in my scratch
constexpr uint16_t counts_slot = 1;  // another node's entries are in my scratch

uint64_t row_bytes(const topology::Cluster& cluster) {
  return static_cast<uint64_t>(cluster.ranks() + 1) * entry;
}

// Entries of one rank for a node of `size` ranks, and its total.
uint64_t slice_bytes(int size) {
  return static_cast<uint64_t>(size + 1) * entry;
}

// Everything node `from` tells node `to`.
uint64_t message_bytes(const topology::Cluster& cluster, int from, int to) {
  return static_cast<uint64_t>(cluster.local_size(from)) * slice_bytes(cluster.local_size(to));
}

class CountsExchange {
 public:
  CountsExchange(const topology::Cluster& cluster, int rank)
      : cluster_(cluster), builder_(rank), rank_(rank), node_(cluster.node_of(rank)) {}

  plan::RankPlan build() && {
    const uint64_t row = row_bytes(cluster_);
    const std::array copied{builder_.copy(0, builder_.input(0), builder_.scratch(0), row)};
    builder_.post(0, row_slot, 1, copied);
    speak();
    for (const int peer : cluster_.members(node_)) {
      const uint64_t target = static_cast<uint64_t>(cluster_.local_of(peer)) * row;
      if (peer == rank_) {
        builder_.copy(2, builder_.input(0), builder_.output(target), row);
        continue;
      }
      const std::array ready{builder_.wait(2, peer, row_slot, 1)};
      builder_.copy(2, {peer, Buffer::scratch, 0}, builder_.output(target), row, ready);
    }
    collect();
    return std::move(builder_).take();
  }

 private:
  // Scratch: my row; then, for each node this rank speaks to, what goes there and what comes from there.
  template <typename Use>
  void for_conversations(int speaking_rank, Use use) const {
    uint64_t offset = row_bytes(cluster_);
    for (int distance = 1; distance < cluster_.nodes(); ++distance) {
      const int other = (node_ + distance) % cluster_.nodes();
      if (speaker(cluster_, node_, other) != speaking_rank) continue;
      const uint64_t out = message_bytes(cluster_, node_, other), in = message_bytes(cluster_, other, node_);
      use(other, offset, offset + out, out, in);
      offset += out + in;
    }
  }

  void speak() {
    for_conversations(rank_, [&](int other, uint64_t out_at, uint64_t in_at, uint64_t out, uint64_t in) {
      std::vector<uint32_t> packed;
      uint64_t target = out_at;
      for (const int source : cluster_.members(node_)) {
        std::vector<uint32_t> ready;
        if (source != rank_) ready.push_back(builder_.wait(0, source, row_slot, 1));
        const auto from = [&](uint64_t offset) {
          return source == rank_ ? builder_.input(offset) : plan::Location{source, Buffer::scratch, offset};
        };
        for (const int destination : cluster_.members(other)) {
          packed.push_back(builder_.copy(0, from(static_cast<uint64_t>(destination) * entry),
                                         builder_.scratch(target), entry, ready));
          target += entry;
        }
        packed.push_back(builder_.copy(0, from(static_cast<uint64_t>(cluster_.ranks()) * entry),
                                       builder_.scratch(target), entry, ready));
        target += entry;
      }
      const int peer = speaker(cluster_, other, node_);
      builder_.send(peer, 0, builder_.scratch(out_at), out, packed);
      received_.push_back(builder_.recv(peer, 0, builder_.scratch(in_at), in));
    });
    uint32_t posted = Builder::none;
    for (size_t i = 0; i < received_.size(); ++i) {
      const std::array after{received_[i], posted};
      posted = builder_.post(1, counts_slot, static_cast<uint32_t>(i + 1), after);
    }
  }

  uint64_t output_of(int other) const {
    uint64_t offset = static_cast<uint64_t>(cluster_.local_size(node_)) * row_bytes(cluster_);
    for (int node = 0; node < other; ++node)
      if (node != node_) offset += message_bytes(cluster_, node, node_);
    return offset;
  }

  void collect() {
    for (const int speaking : cluster_.members(node_)) {
      uint32_t conversation = 0;
      for_conversations(speaking, [&](int other, uint64_t, uint64_t in_at, uint64_t, uint64_t in) {
        ++conversation;
        const std::array after{speaking == rank_ ? received_[conversation - 1]
                                                 : builder_.wait(2, speaking, counts_slot, conversation)};
        builder_.copy(2, {speaking, Buffer::scratch, in_at}, builder_.output(output_of(other)), in, after);
      });
    }
  }

  const topology::Cluster& cluster_;
  Builder builder_;
  const int rank_, node_;
  std::vector<uint32_t> received_;
};

}  // namespace

uint64_t counts_input_bytes(const topology::Cluster& cluster) {
  return row_bytes(cluster);
}

uint64_t counts_output_bytes(const topology::Cluster& cluster, int node) {
  uint64_t bytes = static_cast<uint64_t>(cluster.local_size(node)) * row_bytes(cluster);
  for (int other = 0; other < cluster.nodes(); ++other)
    if (other != node) bytes += message_bytes(cluster, other, node);
  return bytes;
}

uint64_t counts_scratch_bytes(const topology::Cluster& cluster) {
  uint64_t most = 0;
  std::vector<uint64_t> of_rank(static_cast<size_t>(cluster.ranks()), row_bytes(cluster));
  for (int node = 0; node < cluster.nodes(); ++node)
    for (int other = 0; other < cluster.nodes(); ++other)
      if (other != node)
        of_rank[static_cast<size_t>(speaker(cluster, node, other))] +=
            message_bytes(cluster, node, other) + message_bytes(cluster, other, node);
  for (const uint64_t bytes : of_rank) most = std::max(most, bytes);
  return most;
}

plan::RankPlan build_counts_exchange(const topology::Cluster& cluster, int rank) {
  return CountsExchange(cluster, rank).build();
}

std::vector<plan::Transfer> counts_transfers(const topology::Cluster& cluster) {
  std::vector<plan::Transfer> list;
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    const int node = cluster.node_of(rank);
    uint64_t offset = 0;
    for (const int peer : cluster.members(node)) {
      list.push_back({peer, 0, rank, offset, row_bytes(cluster)});
      offset += row_bytes(cluster);
    }
    for (int other = 0; other < cluster.nodes(); ++other) {
      if (other == node) continue;
      for (const int source : cluster.members(other)) {
        for (const int destination : cluster.members(node)) {
          list.push_back({source, static_cast<uint64_t>(destination) * entry, rank, offset, entry});
          offset += entry;
        }
        list.push_back({source, static_cast<uint64_t>(cluster.ranks()) * entry, rank, offset, entry});
        offset += entry;
      }
    }
  }
  return list;
}

namespace {

// Where each source's block goes when blocks are packed in rank order.
std::vector<uint64_t> packed_offsets(const std::vector<uint64_t>& column) {
  std::vector<uint64_t> offsets(column.size());
  std::exclusive_scan(column.begin(), column.end(), offsets.begin(), uint64_t{0});
  return offsets;
}

}  // namespace

GatheredCounts read_counts(const topology::Cluster& cluster, int node, const CountEntry* output,
                           bool pack_outputs) {
  const auto ranks = static_cast<size_t>(cluster.ranks());
  const auto& members = cluster.members(node);
  std::vector<std::vector<uint64_t>> rows, inputs, outputs,
      columns(members.size(), std::vector<uint64_t>(ranks));
  uint64_t total = 0;
  for (size_t local = 0; local < members.size(); ++local, output += ranks + 1) {
    std::vector<uint64_t> row(ranks), from(ranks), to(ranks);
    for (size_t peer = 0; peer < ranks; ++peer) {
      row[peer] = output[peer].bytes;
      from[peer] = output[peer].input_offset;
      to[peer] = output[peer].output_offset;
    }
    for (size_t mine = 0; mine < members.size(); ++mine)
      columns[mine][static_cast<size_t>(members[local])] = row[static_cast<size_t>(members[mine])];
    total += output[ranks].bytes;
    rows.push_back(std::move(row));
    inputs.push_back(std::move(from));
    outputs.push_back(std::move(to));
  }
  for (int other = 0; other < cluster.nodes(); ++other) {
    if (other == node) continue;
    for (const int source : cluster.members(other)) {
      for (auto& column : columns) column[static_cast<size_t>(source)] = (output++)->bytes;
      total += (output++)->bytes;
    }
  }
  if (pack_outputs) std::ranges::transform(columns, outputs.begin(), packed_offsets);
  return {Exchange::of_node(cluster.ranks(), members, std::move(rows), std::move(inputs), std::move(columns),
                            std::move(outputs)),
          total};
}

}  // namespace epccl::algorithms
