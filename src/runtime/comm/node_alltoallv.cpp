#include "runtime/comm/node_alltoallv.hpp"

#include <algorithm>
#include <span>

namespace epccl::runtime {
namespace {

using algorithms::BlockEntry;

/// Of scratch, for what a rank tells: whole cache lines.
uint64_t head_bytes(int ranks) {
  constexpr uint64_t line = 64;
  return (static_cast<uint64_t>(ranks) * sizeof(BlockEntry) + line - 1) / line * line;
}

/// Where the last block ends.
uint64_t extent(const std::vector<uint64_t>& bytes, const std::vector<uint64_t>& offsets) {
  uint64_t end = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > 0) end = std::max(end, offsets[i] + bytes[i]);
  return end;
}

}  // namespace

bool NodeAlltoallv::possible() const {
  const uint64_t slots = static_cast<uint64_t>(cluster_.ranks()) * slot_bytes();
  return cluster_.nodes() == 1 && parameters_.direct && slots > 0 &&
         head_bytes(cluster_.ranks()) + slots <= parameters_.scratch_bytes;
}

void NodeAlltoallv::open() {
  const int ranks = cluster_.ranks();
  small_steps_ = algorithms::build_small_blocks(cluster_, rank_, head_bytes(ranks), slot_bytes());
  large_steps_ = algorithms::build_large_blocks(cluster_, rank_);
  small_ = compile(small_steps_.plan, cluster_);
  large_ = compile(large_steps_.plan, cluster_);
  heard_.resize(static_cast<size_t>(ranks) * static_cast<size_t>(ranks));
}

const BlockEntry& NodeAlltoallv::heard(int rank, int peer) const {
  return heard_[static_cast<size_t>(rank) * static_cast<size_t>(cluster_.ranks()) +
                static_cast<size_t>(peer)];
}

void NodeAlltoallv::fit_small(const Blocks& blocks) {
  const auto fitting = [this](uint64_t bytes) { return bytes <= slot_bytes() ? bytes : 0; };
  for (size_t peer = 0; peer < blocks.send_bytes.size(); ++peer) {
    uint64_t sent = blocks.send_bytes[peer], received = blocks.recv_bytes[peer];
    // The own block is one step: where its sizes differ, which check_heard() will find, neither buffer need hold the other's.
    if (static_cast<int>(peer) == rank_) sent = received = std::min(sent, received);
    algorithms::fit_sent(small_.steps[small_steps_.sent[peer]].step, fitting(sent),
                         blocks.send_offsets[peer]);
    algorithms::fit_received(small_.steps[small_steps_.received[peer]].step, fitting(received),
                             blocks.recv_offsets[peer]);
  }
}

void NodeAlltoallv::fit_large(const Blocks& blocks) {
  const auto left = [this](uint64_t bytes) { return bytes <= slot_bytes() ? 0 : bytes; };
  for (int source = 0; source < cluster_.ranks(); ++source) {
    const auto peer = static_cast<size_t>(source);
    plan::Step& step = large_.steps[large_steps_.received[peer]].step;
    algorithms::fit_sent(step, left(blocks.recv_bytes[peer]), heard(source, rank_).input_offset);
    algorithms::fit_received(step, left(blocks.recv_bytes[peer]), blocks.recv_offsets[peer]);
  }
  large_.input_bytes = extent(blocks.send_bytes, blocks.send_offsets);
  large_.output_bytes = extent(blocks.recv_bytes, blocks.recv_offsets);
  large_.offered = {};
  for (size_t peer = 0; peer < blocks.send_bytes.size(); ++peer)
    if (static_cast<int>(peer) != rank_)
      large_.offered.include(blocks.send_offsets[peer], left(blocks.send_bytes[peer]));
}

Result<uint64_t> NodeAlltoallv::check_heard() const {
  uint64_t most = 0;
  for (int source = 0; source < cluster_.ranks(); ++source)
    for (int destination = 0; destination < cluster_.ranks(); ++destination) {
      const uint64_t sent = heard(source, destination).sent_bytes,
                     expected = heard(destination, source).expected_bytes;
      if (sent != expected)
        return error(Code::invalid_usage, "alltoallv: rank {} sends {} bytes to rank {}, which expects {}",
                     source, sent, destination, expected);
      most = std::max(most, sent);
    }
  return most;
}

Status NodeAlltoallv::run(const std::string& text, const void* input, void* output, const Blocks& blocks) {
  if (heard_.empty()) open();
  const auto ranks = static_cast<size_t>(cluster_.ranks());
  const std::span<BlockEntry> told = std::span(heard_).subspan(static_cast<size_t>(rank_) * ranks, ranks);
  for (size_t peer = 0; peer < ranks; ++peer)
    told[peer] = {blocks.send_bytes[peer], blocks.send_offsets[peer], blocks.recv_bytes[peer]};
  fit_small(blocks);
  Call call{executor_.next_sequence(), input, output, text, nullptr};
  call.tells = std::as_bytes(told);
  call.heard = std::as_writable_bytes(std::span(heard_)).data();
  EPCCL_TRY(executor_.run(small_, call));
  EPCCL_ASSIGN(const uint64_t most, check_heard());
  if (most <= slot_bytes()) return {};
  fit_large(blocks);
  return executor_.run(large_, {executor_.next_sequence(), input, output, text, nullptr});
}

}  // namespace epccl::runtime
