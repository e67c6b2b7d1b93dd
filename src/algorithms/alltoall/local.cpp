#include "algorithms/alltoall/local.hpp"

#include <algorithm>
#include <array>

namespace epccl::algorithms {
namespace {

using plan::Buffer;
using plan::Builder;
using plan::Location;

// Staged blocks larger than a slot travel in rounds through two halves of the slot area.
constexpr int halves = 2;
constexpr uint64_t indirect_slot_bytes = 64 << 10;

// Where all is staged slots take half of the scratch at most: messages between nodes need some, too.
uint64_t slot_bytes(const Parameters& parameters, int local_size) {
  if (parameters.direct) return parameters.eager_limit;
  const uint64_t fitting = parameters.scratch_bytes / (2 * halves * static_cast<uint64_t>(local_size));
  return std::clamp<uint64_t>(fitting, 1, std::max(parameters.eager_limit, indirect_slot_bytes));
}

// Slots as large as the blocks, where all ranks know how large those are: small blocks then share pages.
uint64_t slot_bytes(const Parameters& parameters, const topology::Cluster& cluster,
                    const Exchange& exchange) {
  const uint64_t most = std::max<uint64_t>(1, slot_bytes(parameters, cluster.max_local_size()));
  return exchange.is_uniform() ? std::clamp<uint64_t>(exchange.bytes(0, 0), 1, most) : most;
}

class LocalExchange {
 public:
  LocalExchange(Builder& builder, const topology::Cluster& cluster, const Exchange& exchange, int rank,
                const Parameters& parameters)
      : builder_(builder),
        exchange_(exchange),
        parameters_(parameters),
        rank_(rank),
        is_one_node_(cluster.nodes() == 1),
        slot_(slot_bytes(parameters, cluster, exchange)) {
    members_ = cluster.members(cluster.node_of(rank));
    local_ = cluster.local_of(rank);
    size_ = static_cast<int>(members_.size());
  }

  void append() {
    builder_.copy(0, builder_.input(exchange_.input_offset(rank_, rank_)),
                  builder_.output(exchange_.output_offset(rank_, rank_)), exchange_.bytes(rank_, rank_));
    if (size_ == 1) return;
    const uint64_t send_rounds = rounds([&](int peer) { return exchange_.bytes(rank_, peer); });
    const uint64_t recv_rounds = rounds([&](int peer) { return exchange_.bytes(peer, rank_); });
    // Without staged blocks `ready` still says "my input may be read": value 1.
    for (uint64_t round = 0; round < std::max<uint64_t>(send_rounds, 1); ++round) stage(round);
    const bool asked = somebody_reuses_halves();
    for (uint64_t round = 0; round < recv_rounds; ++round) pull_staged(round, asked);
    pull_direct();
  }

 private:
  bool is_direct(uint64_t bytes) const { return parameters_.direct && bytes > parameters_.eager_limit; }
  int peer(int distance) const { return members_[static_cast<size_t>((local_ + distance) % size_)]; }

  template <typename Bytes>
  uint64_t rounds(Bytes bytes_of) const {
    uint64_t count = 0;
    for (int distance = 1; distance < size_; ++distance)
      if (const uint64_t bytes = bytes_of(peer(distance)); !is_direct(bytes))
        count = std::max(count, (bytes + slot_ - 1) / slot_);
    return count;
  }

  /// Whether a rank has more rounds than halves, and so waits for those who read the earlier ones.
  bool somebody_reuses_halves() const {
    for (const int source : members_)
      for (const int destination : members_)
        if (const uint64_t bytes = exchange_.bytes(source, destination);
            source != destination && !is_direct(bytes) && bytes > halves * slot_)
          return true;
    return false;
  }

  // Where `source` stages what round `round` brings to the rank at local position `destination`.
  uint64_t staged_offset(int destination, uint64_t round) const {
    return ((round % halves) * static_cast<uint64_t>(size_) + static_cast<uint64_t>(destination)) * slot_;
  }
  uint64_t piece(uint64_t bytes, uint64_t round) const {
    return is_direct(bytes) || bytes <= round * slot_ ? 0 : std::min(slot_, bytes - round * slot_);
  }

  /// Whether all that this rank's first post says is that it is in the call. (On several nodes two_stage.cpp waits for that post, too, and need not know.)
  bool enters_only(int source) const {
    return is_one_node_ && std::ranges::all_of(members_, [&](int destination) {
             return destination == source || piece(exchange_.bytes(source, destination), 0) == 0;
           });
  }

  uint32_t wait_for_input(int source) {
    return enters_only(source) ? builder_.wait_for_entry(2, source, local_ready_slot)
                               : builder_.wait(2, source, local_ready_slot, 1);
  }

  void stage(uint64_t round) {
    std::vector<uint32_t> after;  // the half is free when its readers have consumed it
    for (int distance = 1; distance < size_ && round >= halves; ++distance)
      if (piece(exchange_.bytes(rank_, peer(distance)), round - halves) > 0)
        after.push_back(
            builder_.wait(0, peer(distance), local_done_slot, static_cast<uint32_t>(round - halves + 1)));
    std::vector<uint32_t> posted_after{last_ready_};
    for (int position = 0; position < size_; ++position) {
      if (position == local_) continue;
      const int destination = members_[static_cast<size_t>(position)];
      const uint64_t bytes = exchange_.bytes(rank_, destination);
      posted_after.push_back(
          builder_.copy(0, builder_.input(exchange_.input_offset(rank_, destination) + round * slot_),
                        builder_.scratch(staged_offset(position, round)), piece(bytes, round), after));
    }
    deduplicate(posted_after);
    last_ready_ = enters_only(rank_)
                      ? builder_.enter(local_ready_slot)
                      : builder_.post(0, local_ready_slot, static_cast<uint32_t>(round + 1), posted_after);
  }

  static void deduplicate(std::vector<uint32_t>& steps) {
    std::ranges::sort(steps);
    steps.erase(std::ranges::unique(steps).begin(), steps.end());
  }

  void pull_staged(uint64_t round, bool asked) {
    std::vector<uint32_t> copies{last_consumed_};
    for (int distance = 1; distance < size_; ++distance) {
      const int source = peer(size_ - distance);
      const uint64_t bytes = piece(exchange_.bytes(source, rank_), round);
      if (bytes == 0) continue;
      const std::array ready{builder_.wait(2, source, local_ready_slot, static_cast<uint32_t>(round + 1))};
      copies.push_back(builder_.copy(2, {source, Buffer::scratch, staged_offset(local_, round)},
                                     builder_.output(exchange_.output_offset(rank_, source) + round * slot_),
                                     bytes, ready));
    }
    if (asked) last_consumed_ = builder_.post(2, local_done_slot, static_cast<uint32_t>(round + 1), copies);
  }

  void pull_direct() {
    std::vector<uint32_t> copies{last_consumed_};
    for (int distance = 1; distance < size_; ++distance) {
      const int source = peer(size_ - distance);
      const uint64_t bytes = exchange_.bytes(source, rank_);
      if (!is_direct(bytes)) continue;
      const std::array ready{wait_for_input(source)};
      copies.push_back(builder_.copy(2, {source, Buffer::input, exchange_.input_offset(source, rank_)},
                                     builder_.output(exchange_.output_offset(rank_, source)), bytes, ready));
    }
    if (copies.size() > 1) builder_.post(2, local_done_slot, 1, copies);
    for (int distance = 1; distance < size_; ++distance)
      if (const uint64_t bytes = exchange_.bytes(rank_, peer(distance)); is_direct(bytes)) {
        builder_.offer(exchange_.input_offset(rank_, peer(distance)), bytes);
        builder_.wait(2, peer(distance), local_done_slot, 1);
      }
  }

  Builder& builder_;
  const Exchange& exchange_;
  const Parameters& parameters_;
  const int rank_;
  const bool is_one_node_;
  const uint64_t slot_;
  std::vector<int> members_;
  int local_ = 0, size_ = 1;
  uint32_t last_ready_ = Builder::none, last_consumed_ = Builder::none;
};

}  // namespace

uint64_t local_scratch_bytes(int local_size, const Parameters& parameters) {
  const uint64_t count = parameters.direct ? 1 : halves;
  return local_size > 1 ? count * static_cast<uint64_t>(local_size) * slot_bytes(parameters, local_size) : 0;
}

void append_local_exchange(plan::Builder& builder, const topology::Cluster& cluster, const Exchange& exchange,
                           int rank, const Parameters& parameters) {
  LocalExchange(builder, cluster, exchange, rank, parameters).append();
}

}  // namespace epccl::algorithms
