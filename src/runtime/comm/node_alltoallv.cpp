#include "runtime/comm/node_alltoallv.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "runtime/times/call_times.hpp"

namespace epccl::runtime {
namespace {

using algorithms::BlockEntry;
using algorithms::BlockSums;

uint64_t told_bytes(int ranks) {
  return sizeof(BlockSums) + static_cast<uint64_t>(ranks) * sizeof(BlockEntry);
}

/// Of scratch, for what a rank tells: whole cache lines.
uint64_t head_bytes(int ranks) {
  constexpr uint64_t line = 64;
  return (told_bytes(ranks) + line - 1) / line * line;
}

BlockSums sums_in(const std::byte* told) {
  BlockSums sums;
  std::memcpy(&sums, told, sizeof sums);
  return sums;
}

BlockEntry entry_in(const std::byte* told, int rank) {
  BlockEntry entry;
  std::memcpy(&entry, told + told_bytes(rank), sizeof entry);
  return entry;
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
  tells_.resize(told_bytes(ranks));
  told_.resize(static_cast<size_t>(ranks));
}

void NodeAlltoallv::tell(const Blocks& blocks) {
  BlockSums sums;
  for (int peer = 0; peer < cluster_.ranks(); ++peer) {
    const auto at = static_cast<size_t>(peer);
    const BlockEntry entry{blocks.send_bytes[at], blocks.send_offsets[at], blocks.recv_bytes[at]};
    sums.add_sent(rank_, peer, entry.sent_bytes);
    sums.add_expected(peer, rank_, entry.expected_bytes);
    std::memcpy(tells_.data() + told_bytes(peer), &entry, sizeof entry);
  }
  std::memcpy(tells_.data(), &sums, sizeof sums);
  told_[static_cast<size_t>(rank_)] = tells_.data();
  heard_ = 1;
  sums_ = sums;
  kept_.clear();
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

// One step: where its sizes differ, which find_disagreement() will tell, neither buffer need hold the other's.
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

void NodeAlltoallv::hear(int peer, const std::byte* told) {
  told_[static_cast<size_t>(peer)] = told;
  sums_.add(sums_in(told));
  if (++heard_ == cluster_.ranks() && !sums_.agree()) keep_all();
  const BlockEntry theirs = entry_in(told, rank_);
  const uint64_t expected = entry_in(tells_.data(), peer).expected_bytes;
  if (is_large(theirs.sent_bytes)) algorithms::fit_turn(step(steps_.has_read), true);
  if (!is_large(expected)) return;
  plan::Step& received = step(steps_.received[static_cast<size_t>(peer)]);
  if (theirs.sent_bytes == expected)
    algorithms::fit_source(received, theirs.input_offset);
  else  // which find_disagreement() will tell
    algorithms::fit_received(received, 0, 0);
}

void NodeAlltoallv::keep_all() {
  for (const std::byte* const told : told_) kept_.insert(kept_.end(), told, told + tells_.size());
}

Status NodeAlltoallv::find_disagreement() const {
  if (kept_.empty()) return {};
  const auto entry = [this](int rank, int peer) {
    return entry_in(kept_.data() + static_cast<size_t>(rank) * tells_.size(), peer);
  };
  for (int source = 0; source < cluster_.ranks(); ++source)
    for (int destination = 0; destination < cluster_.ranks(); ++destination) {
      const uint64_t sent = entry(source, destination).sent_bytes,
                     expected = entry(destination, source).expected_bytes;
      if (sent != expected)
        return error(Code::invalid_usage, "alltoallv: rank {} sends {} bytes to rank {}, which expects {}",
                     source, sent, destination, expected);
    }
  return {Code::internal_error, "alltoallv: sums over counts differ, and no count does"};
}

Status NodeAlltoallv::run(const std::string& text, const void* input, void* output, const Blocks& blocks) {
  if (tells_.empty()) open();
  tell(blocks);
  fit(blocks);
  if (cluster_.ranks() == 1 && !sums_.agree()) keep_all();
  Call call{executor_.next_sequence(), input, output, text, nullptr};
  CallTimes::all_wait_for_all(call.sequence);
  call.tells = tells_;
  call.hear = &hear_;
  EPCCL_TRY(executor_.run(plan_, call));
  return find_disagreement();
}

}  // namespace epccl::runtime
