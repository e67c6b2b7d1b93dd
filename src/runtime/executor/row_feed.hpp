// What steps on token rows are to a device's queues: kernels that move rows by list, and add them up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "device/cuda/kernels/parameters.hpp"
#include "device/device.hpp"
#include "plan/plan.hpp"
#include "runtime/executor/row_buffers.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

/// A rank's rows, as addresses of this process; null: it has none.
struct PeerRows {
  std::array<std::byte*, transports::call_parts> inputs{}, outputs{};
  const float* weights = nullptr;
};

/// plan::RowTables in the memory of a device: what the steps of a plan use of it.
struct TablesThere {
  const uint32_t* rows = nullptr;
  const device::cuda::Term* terms = nullptr;
  const uint32_t* sum_begin = nullptr;
};

/// Where the rows of this rank's input go in its own node, if that is known: then one kernel makes all steps of stage 1 that move rows,
/// reading each row once. All ranks of the node have to be in the call before it runs.
struct Spread {
  const device::cuda::Target* targets = nullptr;  // [rows, width], of the device; null: each step is a kernel
  uint32_t rows = 0, width = 0;
};

/// The rows of one call.
struct RowCall {
  RowFormat format;
  std::vector<PeerRows> ranks;   // by local position
  std::byte* scratch = nullptr;  // this rank's
  uint32_t weights_per_row = 0;
  TablesThere tables;
  Spread spread;
};

class RowFeed {
 public:
  explicit RowFeed(const topology::Cluster& cluster) : cluster_(cluster) {}

  /// `rows` (null: the call has none) and the plan's `row_sources` stay until all is fed.
  void begin(const RowCall* rows, const std::vector<plan::RowSource>& row_sources) {
    rows_ = rows;
    row_sources_ = &row_sources;
    is_spread_ = false;
  }
  /// A step on rows. Those of one stage and kind go to one queue.
  Status start(device::Queue& queue, const plan::Step& step);

 private:
  /// One part of the rows of a location: the first one, and how far it is to the next.
  struct Strip {
    std::byte* base = nullptr;
    uint64_t stride = 0;
  };
  Strip strip(const plan::Location& at, size_t part) const;
  device::cuda::RowList list(uint32_t list, uint32_t first) const;
  Status spread(device::Queue& queue, int own) const;
  Status move(device::Queue& queue, const plan::Step& step) const;
  Status reduce(device::Queue& queue, const plan::Step& step, size_t part) const;

  const topology::Cluster& cluster_;
  const RowCall* rows_ = nullptr;
  const std::vector<plan::RowSource>* row_sources_ = nullptr;
  bool is_spread_ = false;
};

}  // namespace epccl::runtime
