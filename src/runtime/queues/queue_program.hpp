// A rank's plan as what is put into the queues of a device, in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "plan/fewer_kernels.hpp"
#include "plan/plan.hpp"
#include "plan/queues.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

struct QueueOperation {
  enum class Kind : uint8_t {
    step,    // copy, reduce or post, and, where signals are chained, wait: `index` is the step
    wait,    // for the counter of the wait step `index`
    record,  // the event `index`
    join,    // waits for the event `index`
  };
  Kind kind = Kind::step;
  uint16_t queue = 0;
  uint32_t index = 0;
  uint32_t also = 0;  // of a sum: so many copies of its result, the steps behind it, are made by it
  bool begins_list =
      false;  // of a copy: it comes after those right before it in the queue (plan/copy_lists.hpp)
};

using BufferUses = std::array<bool, 3>;  // by plan::Buffer

/// Made once for a plan, used for each of its calls.
struct QueueProgram {
  std::vector<plan::Step> steps;
  std::vector<plan::RowSource> row_sources;
  std::vector<QueueOperation> operations;
  std::vector<std::vector<uint32_t>> of_queue;  // by queue: its operations, in order
  std::vector<plan::Lane> queues;
  bool by_cores = false;  // copies are kernels
  uint32_t events = 0;
  std::vector<uint16_t> ends;        // queues that no other waits for to their end: the call does
  std::vector<uint32_t> last_waits;  // wait steps that nothing of the plan waits for: the call does
  std::vector<BufferUses> uses;      // by local position: what this rank reads or writes

  size_t bytes() const;  // what it takes in memory
};

/// Of a rank's plan, by local position: which buffers of the node's ranks it copies or adds up, or moves rows of.
std::vector<BufferUses> find_uses(const plan::RankPlan& plan, const topology::Cluster& cluster);

/// Of plans of one node without messages and rows.
Result<QueueProgram> make_queue_program(const plan::RankPlan& plan, const topology::Cluster& cluster,
                                        int width, plan::Signals signals, plan::Makers makers);

}  // namespace epccl::runtime
