// What steps on token rows are to a device's queues: kernels that move rows by list, and add them up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/kernels/parameters.hpp"
#include "plan/plan.hpp"
#include "runtime/executor/row_buffers.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

/// A rank's rows, as addresses of this process; null: it has none.
struct PeerRows {
  std::array<std::byte*, transports::call_parts> inputs{}, outputs{};
  const float* weights = nullptr;
};

/// Rows that one kernel hands to several ranks of the node (plan/hand_outs.hpp), in one routing: row i of the block goes to the targets
/// [first + i * width, + width) of all, whose peers are local positions.
struct HandOutRows {
  uint64_t first = 0;
  uint32_t rows = 0, width = 0;
};

/// plan::RowTables in the memory of a device: what the steps of a plan use of it.
struct TablesThere {
  const uint32_t* rows = nullptr;
  const device::kernels::Term* terms = nullptr;
  const uint32_t* sum_begin = nullptr;
  // Where there is no sum_begin: sum i has the first term_counts[i] terms from i * width on.
  const uint32_t* term_counts = nullptr;
  uint32_t width = 0;
  const device::kernels::Target* targets = nullptr;
  std::span<const HandOutRows> hand_outs;  // on the host; as the program's
};

/// Where the rows of this rank's input go in its own node, if that is known: then one kernel makes all steps of stage 1 that move rows,
/// reading each row once. All ranks of the node have to be in the call before it runs.
struct Spread {
  const device::kernels::Target* targets =
      nullptr;  // [rows, width], of the device; null: each step is a kernel
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
    is_handed_out_.assign(rows == nullptr ? 0 : rows->tables.hand_outs.size(), false);
  }
  static constexpr uint32_t no_hand_out = UINT32_MAX;
  /// A step on rows. Those of one stage and kind go to one queue. `hand_out`: of the program's, the one that it belongs to.
  Status start(device::Queue& queue, const plan::Step& step, uint32_t hand_out);

 private:
  /// One part of the rows of a location: the first one, and how far it is to the next.
  struct Strip {
    std::byte* base = nullptr;
    uint64_t stride = 0;
  };
  Strip strip(const plan::Location& at, size_t part) const;
  device::kernels::RowList list(uint32_t list, uint32_t first) const;
  device::kernels::SpreadParameters to_ranks(const plan::Location& from) const;
  Status spread(device::Queue& queue, const plan::Step& step) const;
  Status hand_out(device::Queue& queue, const plan::Step& step, const HandOutRows& to) const;
  Status move(device::Queue& queue, const plan::Step& step) const;
  Status reduce(device::Queue& queue, const plan::Step& step, size_t part) const;
  void name_terms(device::kernels::SumParameters& parameters, uint32_t first_sum) const;

  const topology::Cluster& cluster_;
  const RowCall* rows_ = nullptr;
  const std::vector<plan::RowSource>* row_sources_ = nullptr;
  bool is_spread_ = false;
  std::vector<bool> is_handed_out_;
};

}  // namespace epccl::runtime
