// A collective as data: what every rank does, as typed steps over symbolic buffers.
//
// A plan is made by a pure function of (topology, layout, counts) in src/algorithms. It has four readers: the executor
// (src/runtime) runs it, the verifier proves it, the simulator times it, the printer shows it.
//
//   rank A                          rank B, same node                rank C, other node
//   copy  input -> scratch
//   post  slot 0, value 1   ----->  wait  A, slot 0, value 1
//                                   copy  A.scratch -> output
//   send  C, tag 3          ------------------------------------->   recv  A, tag 3
//
// Tokens are rows of equal length. Steps that move or add rows name them through index arrays (RowTables) that belong to
// the layout of an exchange, not to one plan: a plan does not grow with the number of tokens in a message.
//
// Steps of one rank form a graph: a step may start when all its dependencies (earlier steps of the same rank) are
// complete. Nothing else orders them. A plan step never names a transport, an address or a clock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topology/cluster.hpp"

namespace epccl::plan {

/// Buffers every rank has during one call. `input` is read-only, `output` is write-once, `scratch` is the library's
/// staging memory (fresh at every call: its content is undefined until written), mapped by every rank of the node.
enum class Buffer : uint8_t { input = 0, output = 1, scratch = 2 };

enum class Kind : uint8_t {
  copy,  // bytes between buffers of this rank or of ranks on the same node
  send,  // to a rank on another node; complete when the source may be overwritten
  recv,  // from a rank on another node; complete when the data is in place
  post,  // raises this rank's counter `slot` to `value`, after which peers on the node see all earlier writes
  wait,  // until `peer`'s counter `slot` has reached `value`
  move_rows,  // copies rows, named by index on either side, between buffers of ranks of this node (gather, scatter)
  reduce_rows,  // every destination row becomes a sum of rows, in the order its terms are listed (scatter-reduce)
  reduce,  // element by element, the destination becomes the reduction of regions, in the order they are listed
};

/// The first byte of a region.
struct Location {
  int32_t rank = -1;
  Buffer buffer = Buffer::input;
  uint64_t offset = 0;
  friend bool operator==(const Location&, const Location&) = default;
};

/// One summand of a row that reduce_rows makes.
struct RowTerm {
  static constexpr uint8_t unweighted = 255;
  enum Ends : uint8_t { nothing = 0, rank_sum = 1, node_sum = 2 };

  uint32_t row = 0;             // of its source
  uint16_t source = 0;          // among the step's sources
  uint8_t weight = unweighted;  // which weight of that row it is multiplied with
  uint8_t ends = nothing;       // Ends: here a rank's partial sum, or a node's, is complete
  friend bool operator==(const RowTerm&, const RowTerm&) = default;
};

/// Index arrays that the steps of one rank refer to.
///
/// A sum is evaluated so, whatever plan computes it (`round`: to the datatype of the rows and back):
///   rank = 0, node = 0, total = 0, in float32;
///   for each term in order: rank += weight * row;  at the end of a rank's terms: node += round(rank), rank = 0;
///                           at the end of a node's terms: total += round(node), node = 0
/// and the result is round(total). A node's sum that was computed elsewhere is one term that ends the rank and the node;
/// rounding it again changes nothing. So every way to spread the additions over ranks gives the same bits. (A sum over
/// several nodes is no such term: the total is not rounded between them.)
struct RowTables {
  std::vector<uint32_t> rows;  // row numbers, for move_rows
  std::vector<RowTerm> terms;
  std::vector<uint32_t> sum_begin;  // sum i consists of terms [sum_begin[i], sum_begin[i + 1])
  std::vector<uint32_t> counts;     // how many rows the steps have that do not know it themselves
};

/// Where a reduce_rows step reads: row r of this source lies at `at.offset` + (r - first_row) * bytes of a row. A reduce step
/// reads from `at` on.
struct RowSource {
  Location at;
  uint32_t first_row = 0;
};

/// One step. Which fields mean something depends on `kind`; the rest are zero.
struct Step {
  Kind kind = Kind::copy;
  uint8_t stage =
      0;  // for people: 0 = inside the node before the network, 1 = network, 2 = inside the node after
  uint16_t slot = 0;   // post, wait: the counter
  int32_t peer = -1;   // send, recv, wait: the other rank
  uint32_t tag = 0;    // send, recv: unique per (source, destination) within the plan
  uint32_t value = 0;  // post, wait: counters start at 0 for every call and only grow
  bool at_entry =
      false;  // post: nothing comes before it; wait: for such a post. Both say nothing to ranks that have met in the call.
  Location source;       // copy, send, move_rows
  Location destination;  // copy, recv, move_rows, reduce_rows
  uint64_t bytes = 0;    // of one row
  // copy: `source_stride` and `destination_stride` apart; send, recv: one behind the other; 0: nothing to do, also of a post or wait.
  uint32_t rows = 1;
  uint64_t source_stride = 0;
  uint64_t destination_stride = 0;
  // move_rows, reduce_rows: row r of source or destination lies at `offset` + (r - first row) * `bytes`. The i-th row of
  // this step is RowTables::rows[list + i], or first row + i where there is no list.
  static constexpr uint32_t no_list = UINT32_MAX;
  uint32_t source_list = no_list;
  uint32_t source_first_row = 0;
  uint32_t destination_list = no_list;
  uint32_t destination_first_row = 0;
  // reduce: of the sources below, in order: what ranks put in comes first (an operation may begin with each of them), then what
  // other reduce steps have made of it. `finishes`: this is all there is (an operation may end with that).
  uint16_t raw_count = 0;
  bool finishes = false;
  // reduce_rows: the i-th row is sum `first_sum` + i of RowTables, over RankPlan::row_sources [first_source, + source_count).
  uint32_t first_sum = 0;
  uint32_t first_source = 0;
  uint16_t source_count = 0;
  // Rows are as many as RowTables::counts[count] says, `rows` is a copy of that: so a plan serves other tables, too. There may
  // be none: such a step does nothing but wait for what it depends on. Not of copies.
  static constexpr uint32_t no_count = UINT32_MAX;
  uint32_t count = no_count;
  // move_rows to a peer: left out where that rank's plan `fetches`.
  bool unless_fetched = false;
  uint32_t first_dependency = 0;  // into RankPlan::dependencies
  uint32_t dependency_count = 0;

  uint64_t total_bytes() const { return bytes * rows; }
};

/// Bytes [begin, end) of a buffer.
struct Extent {
  uint64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  void include(uint64_t first, uint64_t bytes);
};

/// What one rank does. Buffer sizes are what the plan touches.
struct RankPlan {
  int rank = 0;
  std::vector<Step> steps;
  std::vector<uint32_t> dependencies;  // indices of earlier steps of this rank
  std::vector<RowSource> row_sources;
  std::shared_ptr<const RowTables> tables;  // null where no step names rows
  uint64_t input_bytes = 0;
  uint64_t output_bytes = 0;
  uint64_t scratch_bytes = 0;
  Extent offered;  // of the input: what copies and reductions of peers read there
  // This rank reads for itself, from the inputs of its node's ranks, what their steps `unless_fetched` would bring. Each rank chooses for
  // itself: the others learn it from the call.
  bool fetches = false;

  std::span<const uint32_t> dependencies_of(const Step& step) const {
    return {dependencies.data() + step.first_dependency, step.dependency_count};
  }
};

/// For a step of a plan that is to use other tables. The plan must have been built for tables of the same shape, with lists,
/// sums and counts at the same places.
inline void count_rows(Step& step, const RowTables& tables) {
  if (step.count != Step::no_count) step.rows = tables.counts[step.count];
}

/// All ranks' parts, for verifier, simulator and printer. (A rank that executes builds only its own part.)
struct Plan {
  topology::Cluster cluster;
  std::string algorithm;  // "flat", "two_stage"
  std::vector<RankPlan> ranks;
};

/// Whether `step` is left out since the rank that it moves rows to fetches them.
inline bool is_fetched(const Plan& plan, const Step& step) {
  return step.unless_fetched && plan.ranks[static_cast<size_t>(step.destination.rank)].fetches;
}

/// One piece of what a collective must do: these output bytes are those input bytes.
struct Transfer {
  int32_t source_rank = 0;
  uint64_t source_offset = 0;  // in the source's input
  int32_t destination_rank = 0;
  uint64_t destination_offset = 0;  // in the destination's output
  uint64_t bytes = 0;
};

/// What a row of output must be: this sum. Terms of inputs only; their sources are ranks. The result of reduce steps is a sum as
/// well, whose last term ends rank and node; the order of its terms means nothing.
struct RowSum {
  struct Term {
    int32_t rank = 0;
    uint64_t offset = 0;  // of the row, in the rank's input
    uint8_t weight = RowTerm::unweighted;
    uint8_t ends = RowTerm::nothing;
    friend bool operator==(const Term&, const Term&) = default;
  };
  int32_t destination_rank = 0;
  uint64_t destination_offset = 0;
  uint64_t bytes = 0;
  std::vector<Term> terms;
};

/// Counters a rank may use; a plan that needs more is wrong. Of the 256 that there are two count calls (NodeSegment).
inline constexpr int max_slots = 254;

const char* to_string(Kind kind);
const char* to_string(Buffer buffer);

/// Appends steps to a RankPlan. Dependencies are given by step index (what the append functions return). Copies of zero
/// bytes are dropped (their index is `none`, which as a dependency means nothing). A copy that continues the previous copy
/// (same dependencies and stage; contiguous on both sides, or one more row of the same size and strides) is merged into it.
class Builder {
 public:
  static constexpr uint32_t none = UINT32_MAX;
  using Dependencies = std::span<const uint32_t>;

  explicit Builder(int rank) { plan_.rank = rank; }

  uint32_t copy(int stage, Location source, Location destination, uint64_t bytes, Dependencies after = {});
  uint32_t send(int peer, uint32_t tag, Location source, uint64_t bytes, Dependencies after = {});
  uint32_t recv(int peer, uint32_t tag, Location destination, uint64_t bytes, Dependencies after = {});

  /// As many rows, or as many as the tables' counts[index] says, and at most `rows`.
  struct RowCount {
    RowCount(uint32_t most, uint32_t count = Step::no_count)
        : rows(most), index(count) {}  // NOLINT: a number is one
    uint32_t rows;
    uint32_t index;
    /// Not to be built at all.
    bool nothing() const { return rows == 0 && index == Step::no_count; }
  };
  uint32_t send(int peer, uint32_t tag, Location source, RowCount rows, uint64_t row_bytes,
                Dependencies after = {});
  uint32_t recv(int peer, uint32_t tag, Location destination, RowCount rows, uint64_t row_bytes,
                Dependencies after = {});
  uint32_t post(int stage, uint16_t slot, uint32_t value, Dependencies after = {});
  uint32_t wait(int stage, int peer, uint16_t slot, uint32_t value, Dependencies after = {});
  /// Posts 1 before anything else: this rank is in the call.
  uint32_t enter(uint16_t slot);
  /// Waits for the enter() of `peer`.
  uint32_t wait_for_entry(int stage, int peer, uint16_t slot);

  /// Rows of one side of a move: a list in the tables, or consecutive rows.
  struct Rows {
    Location at;  // where `first_row` lies
    uint32_t first_row = 0;
    uint32_t list = Step::no_list;
  };
  /// Moves `count` rows of `bytes`; none when there are none.
  uint32_t move_rows(int stage, const Rows& source, const Rows& destination, RowCount count, uint64_t bytes,
                     Dependencies after = {});
  /// The move `step` is left out where the peer it goes to fetches.
  void unless_fetched(uint32_t step) { plan_.steps[step].unless_fetched = true; }
  /// This rank fetches what peers' moves that are `unless_fetched` would bring.
  void fetch() { plan_.fetches = true; }
  /// Makes `count` rows, sums `first_sum`... over `sources`.
  uint32_t reduce_rows(int stage, uint32_t first_sum, std::span<const RowSource> sources,
                       const Rows& destination, RowCount count, uint64_t bytes, Dependencies after = {});
  /// Makes `bytes` of `destination` the reduction of `raw`, which are ranks' inputs (or copies of them), and of `partial`, which
  /// reduce steps have made. A destination may be one of the sources.
  uint32_t reduce(int stage, std::span<const Location> raw, std::span<const Location> partial,
                  Location destination, uint64_t bytes, bool finishes, Dependencies after = {});
  void use_tables(std::shared_ptr<const RowTables> tables) { plan_.tables = std::move(tables); }
  /// Peers read these bytes of this rank's input, as their plans say.
  void offer(uint64_t offset, uint64_t bytes) { plan_.offered.include(offset, bytes); }

  int rank() const { return plan_.rank; }
  Location input(uint64_t offset) const { return {plan_.rank, Buffer::input, offset}; }
  Location output(uint64_t offset) const { return {plan_.rank, Buffer::output, offset}; }
  Location scratch(uint64_t offset) const { return {plan_.rank, Buffer::scratch, offset}; }
  uint32_t size() const { return static_cast<uint32_t>(plan_.steps.size()); }

  RankPlan take() && { return std::move(plan_); }

 private:
  uint32_t append(Step step, Dependencies after);
  uint32_t message(Kind kind, int peer, uint32_t tag, Location place, RowCount rows, uint64_t row_bytes,
                   Dependencies after);
  uint32_t rows_now(RowCount count) const;
  bool merge(const Step& step, Dependencies after);
  void touch(const Location& location, uint64_t end);
  void touch(const Rows& rows, RowCount count, uint64_t bytes);
  void touch_terms(uint32_t first_sum, uint32_t count, std::span<const RowSource> sources, uint64_t bytes);

  RankPlan plan_;
};

}  // namespace epccl::plan
