#include "algorithms/alltoall/two_stage.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "algorithms/alltoall/local.hpp"
#include "algorithms/alltoall/ring_readers.hpp"
#include "algorithms/alltoall/send_window.hpp"
#include "algorithms/alltoall/two_stage_layout.hpp"

namespace epccl::algorithms {
namespace {

using plan::Buffer;
using plan::Builder;
using plan::Location;

constexpr uint16_t sent_slot = first_free_slot;         // a carrier: rounds whose messages have left its ring
constexpr uint16_t arrived_slot = first_free_slot + 1;  // a relay: rounds that are in its ring
constexpr uint16_t first_pair_slot = first_free_slot + 2;

// A rank's counter of the rounds it has packed for the carrier at `local`, and consumed from the relay at `local`.
uint16_t packed_slot(int local) {
  return static_cast<uint16_t>(first_pair_slot + 2 * local);
}
uint16_t consumed_slot(int local) {
  return static_cast<uint16_t>(first_pair_slot + 2 * local + 1);
}

uint32_t value_of(size_t round) {
  return static_cast<uint32_t>(round + 1);
}

/// A block within a message.
struct Piece {
  int source = 0;  // ranks
  int destination = 0;
  uint64_t begin = 0;  // within the message
  uint64_t bytes = 0;
};

class TwoStage {
 public:
  TwoStage(Builder& builder, const topology::Cluster& cluster, const Exchange& exchange, int rank,
           const Parameters& parameters)
      : builder_(builder),
        cluster_(cluster),
        exchange_(exchange),
        rank_(rank),
        node_(cluster.node_of(rank)),
        local_(cluster.local_of(rank)),
        members_(cluster.members(node_)),
        layout_(cluster, exchange, node_, parameters),
        outgoing_(layout_.outgoing(local_)),
        window_(parameters.send_window, bytes_of(outgoing_)),
        push_(parameters.push && parameters.direct && members_.size() > 1) {}

  void append_receives() {
    const Schedule schedule = layout_.incoming(local_);
    StepsOfRounds own_pulls;
    uint32_t arrived = Builder::none;
    std::vector<uint32_t> delivered;
    for (size_t r = 0; r < schedule.rounds.size(); ++r) {
      const TwoStageRound& round = schedule.rounds[r];
      const auto free = ring_free(schedule, r, own_pulls);
      std::vector<uint32_t> received{arrived};
      for (size_t i = round.first_item; i < round.last_item; ++i) {
        const Item& item = schedule.items[i];
        const NodeMessage& message = schedule.messages[static_cast<size_t>(item.message)];
        received.push_back(builder_.recv(message.peer_rank, item.chunk, builder_.scratch(item.offset),
                                         item.end - item.begin, free));
      }
      if (push_) {
        own_pulls.push_back(push_round(schedule, r, received));
        delivered.insert(delivered.end(), own_pulls.back().begin(), own_pulls.back().end());
        continue;
      }
      arrived = builder_.post(1, arrived_slot, value_of(r), received);
      own_pulls.push_back(pull_round(schedule, r, local_, received));
    }
    if (push_ && !schedule.rounds.empty()) builder_.post(2, arrived_slot, 1, delivered);
  }

  void append_sends() {
    const bool alone = layout_.carries_alone();
    if (!alone) {
      for (size_t distance = 1; distance < members_.size(); ++distance)
        pack_for(static_cast<int>((static_cast<size_t>(local_) + distance) % members_.size()));
    }
    const Schedule& schedule = outgoing_;
    uint32_t sent = Builder::none;
    for (size_t r = 0; r < schedule.rounds.size(); ++r) {
      const TwoStageRound& round = schedule.rounds[r];
      std::vector<uint32_t> done{sent};
      for (size_t i = round.first_item; i < round.last_item; ++i)
        done.push_back(send_item(schedule, r, schedule.items[i]));
      if (schedule.ring_reused && !alone) sent = builder_.post(1, sent_slot, value_of(r), done);
    }
  }

  void append_pulls() {
    for (size_t distance = 1; distance < members_.size(); ++distance) {
      const int relay = static_cast<int>((static_cast<size_t>(local_) + distance) % members_.size());
      const Schedule schedule = layout_.incoming(relay);
      uint32_t consumed = Builder::none;
      if (push_) {  // the relay does it all
        if (!schedule.rounds.empty()) builder_.wait(2, members_[static_cast<size_t>(relay)], arrived_slot, 1);
        continue;
      }
      for (size_t r = 0; r < schedule.rounds.size(); ++r) {
        const int relay_rank = members_[static_cast<size_t>(relay)];
        const std::array here{builder_.wait(2, relay_rank, arrived_slot, value_of(r))};
        std::vector<uint32_t> copies = pull_round(schedule, r, relay, here);
        if (!schedule.ring_reused) continue;
        copies.push_back(consumed);
        copies.push_back(here.front());
        consumed = builder_.post(2, consumed_slot(relay), value_of(r), copies);
      }
    }
  }

 private:
  static uint64_t bytes_of(const Schedule& schedule) {
    uint64_t total = 0;
    for (const NodeMessage& message : schedule.messages) total += message.bytes;
    return total;
  }

  using StepsOfRounds = std::vector<std::vector<uint32_t>>;

  // After these a relay may overwrite the ring space of round `r`: every other rank, and the relay itself, has consumed
  // what was there.
  std::vector<uint32_t> ring_free(const Schedule& schedule, size_t r, const StepsOfRounds& own_pulls) {
    std::vector<uint32_t> free;
    const int reuses = schedule.rounds[r].reuses;
    if (reuses < 0) return free;
    for (size_t local = 0; local < members_.size() && !push_; ++local)
      if (static_cast<int>(local) != local_)
        free.push_back(
            builder_.wait(1, members_[local], consumed_slot(local_), value_of(static_cast<size_t>(reuses))));
    // The round that the previous one took last may reach into this one's space; those before it do not.
    const int first = r == 0 ? 0 : std::max(0, schedule.rounds[r - 1].reuses);
    for (int reused = first; reused <= reuses; ++reused)
      std::ranges::copy(own_pulls[static_cast<size_t>(reused)], std::back_inserter(free));
    return free;
  }

  // Blocks of message `message` that `keep(source, destination)` selects and that lie in [begin, end), cut to it.
  template <typename Keep, typename Use>
  void for_pieces(const NodeMessage& message, int source_node, int destination_node, uint64_t begin,
                  uint64_t end, Keep keep, Use use) const {
    uint64_t position = 0;
    for (int local = message.first_source; local < message.last_source && position < end; ++local) {
      const int source = cluster_.rank_at(source_node, local);
      for (const int destination : cluster_.members(destination_node)) {
        const uint64_t bytes = exchange_.bytes(source, destination);
        const uint64_t from = std::max(begin, position), to = std::min(end, position + bytes);
        if (from < to && keep(source, destination))
          use(Piece{source, destination, position, bytes}, from, to);
        position += bytes;
      }
    }
  }

  // Copies this rank's blocks of one round of the relay at `relay` to the output.
  std::vector<uint32_t> pull_round(const Schedule& schedule, size_t r, int relay,
                                   Builder::Dependencies after) {
    std::vector<uint32_t> copies;
    const Location ring{members_[static_cast<size_t>(relay)], Buffer::scratch, 0};
    for (size_t i = schedule.rounds[r].first_item; i < schedule.rounds[r].last_item; ++i) {
      const Item& item = schedule.items[i];
      const NodeMessage& message = schedule.messages[static_cast<size_t>(item.message)];
      for_pieces(
          message, message.other_node, node_, item.begin, item.end,
          [this](int, int destination) { return destination == rank_; },
          [&](const Piece& piece, uint64_t from, uint64_t to) {
            Location source = ring;
            source.offset = item.offset + from - item.begin;
            const uint64_t target = exchange_.output_offset(rank_, piece.source) + from - piece.begin;
            const uint32_t step = builder_.copy(2, source, builder_.output(target), to - from, after);
            if (copies.empty() || copies.back() != step) copies.push_back(step);
          });
    }
    return copies;
  }

  // Copies every block of one round of this relay to the output it is for. Peers must be in the call: that is what their
  // first post of the local exchange says.
  std::vector<uint32_t> push_round(const Schedule& schedule, size_t r,
                                   const std::vector<uint32_t>& received) {
    if (peer_is_here_.empty()) {
      for (size_t local = 0; local < members_.size(); ++local)
        peer_is_here_.push_back(static_cast<int>(local) == local_
                                    ? Builder::none
                                    : builder_.wait(2, members_[local], local_ready_slot, 1));
    }
    std::vector<uint32_t> copies;
    for (size_t i = schedule.rounds[r].first_item; i < schedule.rounds[r].last_item; ++i) {
      const Item& item = schedule.items[i];
      const NodeMessage& message = schedule.messages[static_cast<size_t>(item.message)];
      // One dependency list per destination, so that rows of one destination merge.
      for (size_t local = 0; local < members_.size(); ++local) {
        const int target_rank = members_[local];
        std::vector<uint32_t> after{received[1 + i - schedule.rounds[r].first_item]};
        if (peer_is_here_[local] != Builder::none) after.push_back(peer_is_here_[local]);
        for_pieces(
            message, message.other_node, node_, item.begin, item.end,
            [target_rank](int, int destination) { return destination == target_rank; },
            [&](const Piece& piece, uint64_t from, uint64_t to) {
              const Location target{target_rank, Buffer::output,
                                    exchange_.output_offset(target_rank, piece.source) + from - piece.begin};
              const uint32_t step = builder_.copy(2, builder_.scratch(item.offset + from - item.begin),
                                                  target, to - from, after);
              if (copies.empty() || copies.back() != step) copies.push_back(step);
            });
      }
    }
    return copies;
  }

  // Copies this rank's blocks of one item into the ring of the carrier `carrier_rank`.
  void pack_item(const NodeMessage& message, const Item& item, int carrier_rank, Builder::Dependencies after,
                 std::vector<uint32_t>& copies) {
    for_pieces(
        message, node_, message.other_node, item.begin, item.end,
        [this](int source, int) { return source == rank_; },
        [&](const Piece& piece, uint64_t from, uint64_t to) {
          const uint64_t source = exchange_.input_offset(rank_, piece.destination) + from - piece.begin;
          const Location target{carrier_rank, Buffer::scratch, item.offset + from - item.begin};
          const uint32_t step = builder_.copy(0, builder_.input(source), target, to - from, after);
          if (copies.empty() || copies.back() != step) copies.push_back(step);
        });
  }

  bool is_source_of(const NodeMessage& message, int local) const {
    return local >= message.first_source && local < message.last_source;
  }

  // This rank's share of the rounds that the rank at `carrier` sends.
  void pack_for(int carrier) {
    const Schedule schedule = layout_.outgoing(carrier);
    const int carrier_rank = members_[static_cast<size_t>(carrier)];
    uint32_t packed = Builder::none;
    for (size_t r = 0; r < schedule.rounds.size(); ++r) {
      const TwoStageRound& round = schedule.rounds[r];
      std::vector<uint32_t> after, copies;
      if (round.reuses >= 0)
        after.push_back(builder_.wait(0, carrier_rank, sent_slot, static_cast<uint32_t>(round.reuses + 1)));
      for (size_t i = round.first_item; i < round.last_item; ++i) {
        const Item& item = schedule.items[i];
        const NodeMessage& message = schedule.messages[static_cast<size_t>(item.message)];
        if (is_source_of(message, local_)) pack_item(message, item, carrier_rank, after, copies);
      }
      if (copies.empty()) continue;
      copies.push_back(packed);
      packed = builder_.post(0, packed_slot(carrier), value_of(r), copies);
    }
  }

  // Own blocks of [begin, end) of a message of this rank alone lie in its input one after the other.
  bool contiguous_in_input(const NodeMessage& message, const Item& item, Location& where) const {
    bool contiguous = true;
    uint64_t next = 0;
    for_pieces(
        message, node_, message.other_node, item.begin, item.end, [](int, int) { return true; },
        [&](const Piece& piece, uint64_t from, uint64_t to) {
          const uint64_t start = exchange_.input_offset(piece.source, piece.destination) + from - piece.begin;
          if (from == item.begin)
            where = builder_.input(start);
          else
            contiguous = contiguous && start == next;
          next = start + (to - from);
        });
    return contiguous;
  }

  uint32_t send_item(const Schedule& schedule, size_t r, const Item& item) {
    const NodeMessage& message = schedule.messages[static_cast<size_t>(item.message)];
    Location where;
    if (layout_.carries_alone() && contiguous_in_input(message, item, where))
      return send(message, item, where, {});
    const uint64_t end = item.offset + (item.end - item.begin);
    std::vector<uint32_t> free, ready;
    if (schedule.ring_reused) free = sends_from_ring_.take(item.offset, end);
    if (is_source_of(message, local_)) pack_item(message, item, rank_, free, ready);
    for (int local = message.first_source; local < message.last_source; ++local)
      if (local != local_ && has_bytes(message, item, local))
        ready.push_back(
            builder_.wait(1, members_[static_cast<size_t>(local)], packed_slot(local_), value_of(r)));
    const uint32_t step = send(message, item, builder_.scratch(item.offset), std::move(ready));
    if (schedule.ring_reused) sends_from_ring_.add(item.offset, end, step);
    return step;
  }

  uint32_t send(const NodeMessage& message, const Item& item, const Location& from,
                std::vector<uint32_t> after) {
    const uint64_t bytes = item.end - item.begin;
    after.push_back(window_.wait_for(bytes));
    const uint32_t step = builder_.send(message.peer_rank, item.chunk, from, bytes, after);
    window_.add(step, bytes);
    return step;
  }

  bool has_bytes(const NodeMessage& message, const Item& item, int local) const {
    bool found = false;
    const int source_rank = members_[static_cast<size_t>(local)];
    for_pieces(
        message, node_, message.other_node, item.begin, item.end,
        [&](int source, int) { return source == source_rank; },
        [&](const Piece&, uint64_t, uint64_t) { found = true; });
    return found;
  }

  Builder& builder_;
  const topology::Cluster& cluster_;
  const Exchange& exchange_;
  const int rank_, node_, local_;
  const std::vector<int>& members_;
  TwoStageLayout layout_;
  const Schedule outgoing_;  // what this rank carries
  SendWindow window_;
  RingReaders sends_from_ring_;
  const bool push_;
  std::vector<uint32_t> peer_is_here_;  // by local position
};

}  // namespace

plan::RankPlan build_two_stage(const topology::Cluster& cluster, const Exchange& exchange, int rank,
                               const Parameters& parameters) {
  Builder builder(rank);
  TwoStage two_stage(builder, cluster, exchange, rank, parameters);
  if (cluster.nodes() > 1) {
    two_stage.append_sends();
    two_stage.append_receives();
  }
  append_local_exchange(builder, cluster, exchange, rank, parameters);
  if (cluster.nodes() > 1) two_stage.append_pulls();
  return std::move(builder).take();
}

}  // namespace epccl::algorithms
