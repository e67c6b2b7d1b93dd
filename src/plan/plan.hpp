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
// Steps of one rank form a graph: a step may start when all its dependencies (earlier steps of the same rank) are
// complete. Nothing else orders them. A plan step never names a transport, an address or a clock.
#pragma once

#include <cstdint>
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
};

/// The first byte of a region.
struct Location {
  int32_t rank = -1;
  Buffer buffer = Buffer::input;
  uint64_t offset = 0;
  friend bool operator==(const Location&, const Location&) = default;
};

/// One step. Which fields mean something depends on `kind`; the rest are zero.
struct Step {
  Kind kind = Kind::copy;
  uint8_t stage = 0;      // for people: 0 = inside the node before the network, 1 = network, 2 = inside the node after
  uint16_t slot = 0;      // post, wait: the counter
  int32_t peer = -1;      // send, recv, wait: the other rank
  uint32_t tag = 0;       // send, recv: unique per (source, destination) within the plan
  uint32_t value = 0;     // post, wait: counters start at 0 for every call and only grow
  Location source;        // copy, send
  Location destination;   // copy, recv
  uint64_t bytes = 0;     // copy: of one row; send, recv: all
  uint32_t rows = 1;      // copy: rows of `bytes`, `source_stride` and `destination_stride` apart
  uint64_t source_stride = 0;
  uint64_t destination_stride = 0;
  uint32_t first_dependency = 0;  // into RankPlan::dependencies
  uint32_t dependency_count = 0;

  uint64_t total_bytes() const { return bytes * rows; }
};

/// What one rank does. Buffer sizes are what the plan touches.
struct RankPlan {
  int rank = 0;
  std::vector<Step> steps;
  std::vector<uint32_t> dependencies;  // indices of earlier steps of this rank
  uint64_t input_bytes = 0;
  uint64_t output_bytes = 0;
  uint64_t scratch_bytes = 0;

  std::span<const uint32_t> dependencies_of(const Step& step) const {
    return {dependencies.data() + step.first_dependency, step.dependency_count};
  }
};

/// All ranks' parts, for verifier, simulator and printer. (A rank that executes builds only its own part.)
struct Plan {
  topology::Cluster cluster;
  std::string algorithm;  // "flat", "two_stage"
  std::vector<RankPlan> ranks;
};

/// One piece of what a collective must do: these output bytes are those input bytes.
struct Transfer {
  int32_t source_rank = 0;
  uint64_t source_offset = 0;  // in the source's input
  int32_t destination_rank = 0;
  uint64_t destination_offset = 0;  // in the destination's output
  uint64_t bytes = 0;
};

/// Counters a rank may use; a plan that needs more is wrong.
inline constexpr int max_slots = 256;

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
  uint32_t post(int stage, uint16_t slot, uint32_t value, Dependencies after = {});
  uint32_t wait(int stage, int peer, uint16_t slot, uint32_t value, Dependencies after = {});

  Location input(uint64_t offset) const { return {plan_.rank, Buffer::input, offset}; }
  Location output(uint64_t offset) const { return {plan_.rank, Buffer::output, offset}; }
  Location scratch(uint64_t offset) const { return {plan_.rank, Buffer::scratch, offset}; }
  uint32_t size() const { return static_cast<uint32_t>(plan_.steps.size()); }

  RankPlan take() && { return std::move(plan_); }

 private:
  uint32_t append(Step step, Dependencies after);
  bool merge(const Step& step, Dependencies after);
  void touch(const Location& location, uint64_t end);

  RankPlan plan_;
};

}  // namespace epccl::plan
