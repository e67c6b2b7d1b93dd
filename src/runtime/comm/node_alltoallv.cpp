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
  steps_ = algorithms::build_blocks(cluster_, rank_, head_bytes(ranks), slot_bytes());
  plan_ = compile(steps_.plan, cluster_);
  heard_.resize(static_cast<size_t>(ranks) * static_cast<size_t>(ranks));
}

const BlockEntry& NodeAlltoallv::heard(int rank, int peer) const {
  return heard_[static_cast<size_t>(rank) * static_cast<size_t>(cluster_.ranks()) +
                static_cast<size_t>(peer)];
}

void NodeAlltoallv::fit(const Blocks& blocks) {
  const auto large = [this](const std::vector<uint64_t>& all) {
    return std::ranges::any_of(all, [this](uint64_t bytes) { return is_large(bytes); });
  };
  // Else nobody needs to know where the buffers lie, and nothing is long enough to go past the cache.
  const bool any_large = large(blocks.send_bytes) || large(blocks.recv_bytes);
  plan_.input_bytes = any_large ? extent(blocks.send_bytes, blocks.send_offsets) : 0;
  plan_.output_bytes = any_large ? extent(blocks.recv_bytes, blocks.recv_offsets) : 0;
  plan_.offered = {};
  algorithms::fit_turn(step(steps_.has_read), false);  // until a peer says that it is read from
  for (int peer = 0; peer < cluster_.ranks(); ++peer) {
    const auto at = static_cast<size_t>(peer);
    if (peer == rank_) {
      fit_own(blocks);
    } else {
      fit_sent(peer, blocks.send_bytes[at], blocks.send_offsets[at]);
      fit_received(peer, blocks.recv_bytes[at], blocks.recv_offsets[at]);
    }
  }
}

// One step: where its sizes differ, which check_heard() will find, neither buffer need hold the other's.
void NodeAlltoallv::fit_own(const Blocks& blocks) {
  const auto own = static_cast<size_t>(rank_);
  const uint64_t bytes = std::min(blocks.send_bytes[own], blocks.recv_bytes[own]);
  algorithms::fit_sent(step(steps_.sent[own]), bytes, blocks.send_offsets[own]);
  algorithms::fit_received(step(steps_.received[own]), bytes, blocks.recv_offsets[own]);
}

void NodeAlltoallv::fit_sent(int peer, uint64_t bytes, uint64_t offset) {
  const auto at = static_cast<size_t>(peer);
  algorithms::fit_sent(step(steps_.sent[at]), is_large(bytes) ? 0 : bytes, offset);
  algorithms::fit_turn(step(steps_.let_go[at]), is_large(bytes));
  if (is_large(bytes)) plan_.offered.include(offset, bytes);
}

void NodeAlltoallv::fit_received(int peer, uint64_t bytes, uint64_t offset) {
  plan::Step& received = step(steps_.received[static_cast<size_t>(peer)]);
  algorithms::fit_received(received, bytes, offset);
  algorithms::fit_slot(received, rank_, head_bytes(cluster_.ranks()), slot_bytes());
}

void NodeAlltoallv::has_heard(int peer) {
  const BlockEntry& told = heard(peer, rank_);
  const uint64_t expected = heard(rank_, peer).expected_bytes;
  if (is_large(told.sent_bytes)) algorithms::fit_turn(step(steps_.has_read), true);
  if (!is_large(expected)) return;
  plan::Step& received = step(steps_.received[static_cast<size_t>(peer)]);
  if (told.sent_bytes == expected)
    algorithms::fit_source(received, told.input_offset);
  else  // which check_heard() will find
    algorithms::fit_received(received, 0, 0);
}

Status NodeAlltoallv::check_heard() const {
  for (int source = 0; source < cluster_.ranks(); ++source)
    for (int destination = 0; destination < cluster_.ranks(); ++destination) {
      const uint64_t sent = heard(source, destination).sent_bytes,
                     expected = heard(destination, source).expected_bytes;
      if (sent != expected)
        return error(Code::invalid_usage, "alltoallv: rank {} sends {} bytes to rank {}, which expects {}",
                     source, sent, destination, expected);
    }
  return {};
}

Status NodeAlltoallv::run(const std::string& text, const void* input, void* output, const Blocks& blocks) {
  if (heard_.empty()) open();
  const auto ranks = static_cast<size_t>(cluster_.ranks());
  const std::span<BlockEntry> told = std::span(heard_).subspan(static_cast<size_t>(rank_) * ranks, ranks);
  for (size_t peer = 0; peer < ranks; ++peer)
    told[peer] = {blocks.send_bytes[peer], blocks.send_offsets[peer], blocks.recv_bytes[peer]};
  fit(blocks);
  Call call{executor_.next_sequence(), input, output, text, nullptr};
  call.tells = std::as_bytes(told);
  call.heard = std::as_writable_bytes(std::span(heard_)).data();
  call.has_heard = &has_heard_;
  EPCCL_TRY(executor_.run(plan_, call));
  return check_heard();
}

}  // namespace epccl::runtime
