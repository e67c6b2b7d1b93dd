// What the collectives that add up are made of: parts of a result, made here or sent by others.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/collectives/building.hpp"

namespace epccl::algorithms {

/// Something to add up, and the step after which it is there.
struct Part {
  plan::Location at;
  uint32_t made = plan::Builder::none;
  bool raw = false;                      // a rank's input; else a partial result
  std::optional<SlotRing::Slot> slot{};  // where it lies, if that is a place of this rank's scratch
};

class Reducer {
 public:
  explicit Reducer(RoundBuilder& round);

  /// Pieces of `range` of the round that the places for messages are large enough for.
  template <typename Use>
  void for_each_piece(const Range& range, Use use) const {
    for_each_chunk(range, chunk_, b_.call.unit, use);
  }

  /// What the ranks of the node have, each for itself; with `fetch` copied into scratch, at most a piece at once.
  std::vector<Part> inputs(int block, const Range& range);
  /// The same, added up by this rank: in scratch, but where it is alone on its node.
  Part node_part(int block, const Range& range);
  /// Whether what a node adds up is just the input of its only rank.
  bool is_raw(int node) const { return b_.cluster.local_size(node) == 1 && !b_.parameters.scaled; }
  /// What `from` sends, `raw` or added up.
  Part received(int from, uint64_t bytes, bool raw);
  /// Sends bytes [from, from + bytes) of a part.
  uint32_t send(int to, const Part& part, uint64_t from, uint64_t bytes);
  /// `parts` added up by this rank, in scratch, for others to go on with.
  Part partial(const std::vector<Part>& parts, uint64_t bytes);
  /// A place in scratch, for a result that goes elsewhere from there.
  SlotRing::Slot place() { return sending_.take(); }
  void used_by(const SlotRing::Slot& slot, uint32_t step) {
    slot.used_by(step);
    b_.exchange.uses_scratch(step);
  }

  /// Adds up `parts` to `to`. Where that is all there is, it `finishes` the result.
  uint32_t add_up(const std::vector<Part>& parts, const plan::Location& to, uint64_t bytes, bool finishes,
                  std::vector<uint32_t> after = {});

  /// Finishes `range` of an allreduce's result, and gives it to the node. It comes after all that handing it out waits for, so the sum may
  /// write peers' outputs itself (plan/fewer_kernels.hpp).
  uint32_t finish_for_node(const std::vector<Part>& parts, const Range& range, std::vector<uint32_t> after);

 private:
  Part fetched(const NodeExchange::Readable& from, uint64_t bytes);
  Reducer(RoundBuilder& round, const SumPlaces& places);

  RoundBuilder& b_;
  uint64_t chunk_;
  SlotRing sending_, receiving_, fetching_;
};

}  // namespace epccl::algorithms
