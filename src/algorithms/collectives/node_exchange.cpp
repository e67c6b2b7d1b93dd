#include "algorithms/collectives/node_exchange.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace epccl::algorithms {

using plan::Buffer;
using plan::Builder;
using plan::Location;

NodeExchange::NodeExchange(Builder& builder, const topology::Cluster& cluster, const Round& round,
                           Posts& posts, std::vector<uint32_t> after)
    : builder_(builder),
      cluster_(cluster),
      round_(round),
      members_(cluster.members(cluster.node_of(builder.rank()))),
      local_(static_cast<size_t>(cluster.local_of(builder.rank()))),
      posts_(posts),
      after_(std::move(after)),
      ready_(members_.size(), not_asked),
      made_by_others_(members_.size(), not_asked) {}

uint64_t NodeExchange::in_block(int block, uint64_t at) const {
  return static_cast<uint64_t>(block) * round_.block + round_.piece.begin + at;
}

Location NodeExchange::staged(int rank, uint64_t area, int block, uint64_t at) const {
  return {rank, Buffer::scratch, area + static_cast<uint64_t>(block) * round_.piece.bytes() + at};
}

void NodeExchange::open(std::span<const int> blocks) {
  if (size() == 1) return;
  std::vector<uint32_t> copies(after_);
  for (const int block : blocks) {
    if (round_.staged)
      copies.push_back(stage(block));
    else
      builder_.offer(in_block(block, 0), round_.piece.bytes());
  }
  open_received(copies);
}

uint32_t NodeExchange::stage(int block) {
  const Location from = builder_.input(in_block(block, 0)), to = staged_input(block, 0);
  if (!round_.scaled) return builder_.copy(0, from, to, round_.piece.bytes(), after_);
  return builder_.reduce(0, std::array{from}, {}, to, round_.piece.bytes(), false, after_);
}

void NodeExchange::open_all(int blocks) {
  std::vector<int> all(static_cast<size_t>(blocks));
  std::iota(all.begin(), all.end(), 0);
  open(all);
}

void NodeExchange::open_received(std::span<const uint32_t> received) {
  if (size() == 1) return;
  // Copies that lie one behind the other have become one step.
  std::vector<uint32_t> steps(received.begin(), received.end());
  steps.erase(std::ranges::unique(steps).begin(), steps.end());
  opened_ = opens_at_entry() ? posts_[ready_slot] = builder_.enter(ready_slot)
                             : post(0, ready_slot, std::move(steps));
}

Location NodeExchange::staged_input(int block, uint64_t at) const {
  return staged(builder_.rank(), round_.inputs, block, at);
}

uint32_t NodeExchange::post(int stage, uint16_t slot, std::vector<uint32_t> after) {
  after.push_back(posts_[slot]);
  return posts_[slot] = builder_.post(stage, slot, value(), after);
}

// Alike on all ranks of the node.
bool NodeExchange::opens_at_entry() const {
  return !round_.staged && round_.number == 0 && cluster_.nodes() == 1 && after_.empty();
}

uint32_t NodeExchange::ask(std::vector<uint32_t>& known, size_t local, uint16_t slot) {
  if (known[local] != not_asked) return known[local];
  if (local == local_)
    known[local] = Builder::none;
  else if (slot == ready_slot && opens_at_entry())
    known[local] = builder_.wait_for_entry(0, members_[local], slot);
  else
    known[local] = builder_.wait(slot == ready_slot ? 0 : 2, members_[local], slot, value());
  return known[local];
}

uint32_t NodeExchange::ready(size_t local) {
  return ask(ready_, local, ready_slot);
}
uint32_t NodeExchange::made(size_t local) {
  return ask(made_by_others_, local, made_slot);
}

NodeExchange::Readable NodeExchange::input(size_t local, int block, uint64_t at) {
  // In place what is made of it must not overwrite it before it is staged.
  if (local == local_) return {builder_.input(in_block(block, at)), opened(), true};
  const int rank = members_[local];
  if (round_.staged) return {staged(rank, round_.inputs, block, at), ready(local), !round_.scaled};
  return {{rank, Buffer::input, in_block(block, at)}, ready(local), true};
}

void NodeExchange::pull(size_t local, int block, int to_block, const Range& range) {
  const Readable from = input(local, block, range.begin);
  copy_out(from.at, to_block, range, std::array{from.after});
}

void NodeExchange::copy_out(const Location& from, int to_block, const Range& range,
                            Builder::Dependencies after) {
  const bool is_mine = from.rank == builder_.rank() && from.buffer == Buffer::input;
  const uint32_t copied = builder_.copy(
      is_mine ? 0 : 2, from, builder_.output(in_block(to_block, range.begin)), range.bytes(), after);
  if (!is_mine && copied != Builder::none) last_.push_back(copied);
}

Location NodeExchange::result(int block, uint64_t at) const {
  // A rank alone gives to nobody.
  if (round_.staged && size() > 1) return staged(builder_.rank(), round_.results, block, at);
  return builder_.output(in_block(block, at));
}

void NodeExchange::deliver(int block, const Range& range, uint32_t made) {
  // Each rank begins with another.
  for (size_t i = 1; i <= size(); ++i) deliver_to((local_ + i) % size(), block, range, made);
}

std::vector<uint32_t> NodeExchange::ready_to_deliver() {
  std::vector<uint32_t> waits;
  if (!round_.staged)
    for (size_t local = 0; local < size(); ++local)
      if (local != local_) waits.push_back(ready(local));
  return waits;
}

void NodeExchange::deliver_to(size_t local, int block, const Range& range, uint32_t made) {
  if (made == Builder::none || size() == 1) return;
  if (!round_.staged) {
    if (local != local_) push(local, block, range, result(block, range.begin), made);
    return;
  }
  if (made_.empty() || made_.back() != made) made_.push_back(made);
  if (local != local_) return;
  const std::array after{made};
  uses_scratch(builder_.copy(2, result(block, range.begin), builder_.output(in_block(block, range.begin)),
                             range.bytes(), after));
}

uint32_t NodeExchange::push(size_t local, int block, const Range& range, const Location& from,
                            uint32_t made) {
  const std::array after{made, ready(local)};
  const uint32_t copied = builder_.copy(
      2, from, {members_[local], Buffer::output, in_block(block, range.begin)}, range.bytes(), after);
  if (copied != Builder::none) last_.push_back(copied);
  return copied;
}

void NodeExchange::give(const std::vector<uint32_t>& steps) {
  if (size() > 1) post(2, made_slot, steps);
}

void NodeExchange::publish() {
  if (round_.staged && size() > 1) post(2, made_slot, made_);
}

void NodeExchange::fetch(size_t local, int block, const Range& range) {
  if (!round_.staged || local == local_ || range.bytes() == 0) return;
  const std::array after{made(local)};
  last_.push_back(builder_.copy(2, staged(members_[local], round_.results, block, range.begin),
                                builder_.output(in_block(block, range.begin)), range.bytes(), after));
}

std::vector<uint32_t> NodeExchange::leave() {
  std::vector<size_t> everybody(size());
  std::iota(everybody.begin(), everybody.end(), size_t{0});
  return leave(true, everybody);
}

std::vector<uint32_t> NodeExchange::leave(bool uses_others, std::span<const size_t> users) {
  // The next call has another part of scratch, and the executor sees to it that the next but one waits.
  if (round_.staged && round_.is_last) return {};
  std::vector<uint32_t> waits;
  if (size() == 1) {
    // One step for all of them, since whatever uses this part of scratch again waits for what this returns.
    if (round_.staged && !last_.empty()) waits.push_back(post(2, through_slot, last_));
    return waits;
  }
  last_.push_back(opened());
  last_.erase(std::ranges::unique(last_).begin(), last_.end());
  if (uses_others || round_.staged) waits.push_back(post(2, through_slot, last_));
  for (size_t user = 0; user < size(); ++user)
    if (user != local_ && (round_.staged || std::ranges::find(users, user) != users.end()))
      waits.push_back(builder_.wait(2, members_[user], through_slot, value()));
  return waits;
}

}  // namespace epccl::algorithms
