// How the ranks of a node read what others put in and write what others get out, in one round of a collective.
//
//   staged                                           direct
//     open     copy input -> own scratch; post ready   open     post ready
//     input    wait ready; {peer.scratch}              input    wait ready; {peer.input}
//     deliver  (result is made in own scratch)         deliver  wait ready; copy own output -> peer.output
//     publish  post made                               publish  -
//     fetch    wait made; copy peer.scratch -> output  fetch    -
//     leave    -, or before scratch is used again:     leave    post through; wait through
//              post through; wait through
//
// A round covers bytes `piece` of every block. Buffers are seen as blocks of equal size.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/collectives/split.hpp"
#include "plan/plan.hpp"
#include "topology/cluster.hpp"

namespace epccl::algorithms {

/// One round of a collective.
struct Round {
  uint32_t number = 0;  // 0, 1, ...
  bool staged = false;
  bool is_last = true;
  bool scaled = false;  // staged: as partial results
  Range piece;          // of every block
  uint64_t block = 0;   // bytes of a whole block
  uint64_t unit = 1;
  uint64_t inputs = 0, results = 0;  // staged: where they lie in every rank's scratch, block behind block
  uint64_t network = 0, network_bytes = 0;  // the part of scratch that is for messages
};

class NodeExchange {
 public:
  static constexpr uint16_t slots = 3;  // counters it uses: 0, 1, 2
  /// The last post of each counter: it lasts from round to round.
  using Posts = std::array<uint32_t, slots>;
  static constexpr Posts no_posts{plan::Builder::none, plan::Builder::none, plan::Builder::none};

  NodeExchange(plan::Builder& builder, const topology::Cluster& cluster, const Round& round, Posts& posts,
               std::vector<uint32_t> after);

  size_t size() const { return members_.size(); }
  size_t local() const { return local_; }
  int member(size_t local) const { return members_[local]; }

  /// Lets the others use this rank's buffers, of the input these blocks. Only where somebody will.
  void open(std::span<const int> blocks);
  void open() { open(std::span<const int>()); }
  void open_all(int blocks);
  /// Staged: lets the others read blocks that were received, into staged_input(), as if they were this rank's own.
  void open_received(std::span<const uint32_t> received);
  plan::Location staged_input(int block, uint64_t at) const;

  /// Something to read, the step after which it may be read, and whether it is what a rank puts in, as that is.
  struct Readable {
    plan::Location at;
    uint32_t after;
    bool raw;
  };
  /// Byte `at` of the round's piece of block `block` of a rank's input.
  Readable input(size_t local, int block, uint64_t at);
  /// Copies `range` of a block of a rank's input to a block of the own output.
  void pull(size_t local, int block, int to_block, const Range& range);
  void copy_out(const plan::Location& from, int to_block, const Range& range,
                plan::Builder::Dependencies after);

  /// Where this rank has to make a part of the result that it gives to its node.
  plan::Location result(int block, uint64_t at) const;
  /// Gives what was made there to every rank of the node, or to one of them.
  void deliver(int block, const Range& range, uint32_t made);
  void deliver_to(size_t local, int block, const Range& range, uint32_t made);
  /// Direct rounds: gives what lies elsewhere to one rank. Returns the last step that reads it.
  uint32_t push(size_t local, int block, const Range& range, const plan::Location& from, uint32_t made);
  /// Staged: lets the node read what `steps` put into this rank's scratch, wherever it is there.
  void give(const std::vector<uint32_t>& steps);
  /// The step after which a rank's scratch may be read so.
  uint32_t given(size_t local) { return made(local); }
  /// What deliver() waits for before anything is written: a result that waits for that as well can be written everywhere at once.
  std::vector<uint32_t> ready_to_deliver();
  /// All of deliver() is said.
  void publish();
  /// Takes from `local` what it has made for this rank.
  void fetch(size_t local, int block, const Range& range);

  /// `step` uses this rank's scratch.
  void uses_scratch(uint32_t step) {
    if (step != plan::Builder::none) last_.push_back(step);
  }
  /// This rank is through with the others' buffers, if it uses them; waits for `users`, who use its own; staged rounds, everybody
  /// for everybody. Returns what the next but one round has to wait for.
  std::vector<uint32_t> leave(bool uses_others, std::span<const size_t> users);
  std::vector<uint32_t> leave();

  /// What everything that this rank does first has to wait for: the round that had this part of scratch.
  const std::vector<uint32_t>& after() const { return after_; }

  /// Staged: the step after which this rank's own input may be overwritten; none: at once.
  uint32_t opened() const { return round_.staged ? opened_ : plan::Builder::none; }

 private:
  static constexpr uint16_t ready_slot = 0, through_slot = 1, made_slot = 2;
  static constexpr uint32_t not_asked = plan::Builder::none - 1;

  uint32_t value() const { return round_.number + 1; }
  uint32_t stage(int block);
  uint32_t post(int stage, uint16_t slot, std::vector<uint32_t> after);
  /// Whether a rank's ready says no more than that it is in the call.
  bool opens_at_entry() const;
  uint32_t ready(size_t local);
  uint32_t made(size_t local);
  uint32_t ask(std::vector<uint32_t>& known, size_t local, uint16_t slot);
  plan::Location staged(int rank, uint64_t area, int block, uint64_t at) const;
  uint64_t in_block(int block, uint64_t at) const;

  plan::Builder& builder_;
  const topology::Cluster& cluster_;
  const Round round_;
  const std::vector<int>& members_;
  const size_t local_;
  Posts& posts_;
  std::vector<uint32_t> after_, ready_, made_by_others_;
  uint32_t opened_ = plan::Builder::none;
  std::vector<uint32_t> made_, last_;  // steps: of the result; that use others' memory or own scratch
};

}  // namespace epccl::algorithms
