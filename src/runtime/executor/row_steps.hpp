// Runs the steps of a plan that move and add token rows.
#pragma once

#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/host/row_sum.hpp"
#include "device/host/shared_copy.hpp"
#include "plan/plan.hpp"
#include "runtime/executor/compiled_plan.hpp"
#include "runtime/executor/row_buffers.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

class RowSteps {
 public:
  RowSteps(int rank, transports::NodeMemory& node) : rank_(rank), node_(node) {}

  /// A call begins; `buffers` must outlive it.
  void begin(uint64_t sequence, const CompiledPlan& plan, const RowBuffers& buffers);

  /// How rows are written: through the cache; likewise, but to peers as SharedCopy finds best; or past it.
  enum class Writes : uint8_t { cached, shared, streaming };
  Status move(const CompiledStep& step, Writes writes);
  /// Instead of move(): the copies it would make. False: a peer's memory is not mapped, move() has to do it.
  Result<bool> find_copies(const CompiledStep& step, std::vector<device::CopyWork>& copies);
  Status reduce(const plan::Step& step);

 private:
  /// One part of the rows of a location: row r at `base` + (r - first row) * stride. `base` is null where a peer's memory is
  /// not mapped; then `address` is the same in the peer's process.
  struct Strip {
    std::byte* base = nullptr;
    uint64_t address = 0;
    uint64_t stride = 0;
    uint64_t bytes = UINT64_MAX;  // from there on, of a peer's memory
    int local = 0;
  };

  Result<std::array<Strip, 2>> ends_of(const CompiledStep& compiled, size_t part);
  Result<Strip> strip(const plan::Location& location, int local, size_t part);
  /// Whether a peer's array has the rows: one that made another plan of the call must not be written beyond its end.
  Status check_room(const Strip& strip, uint32_t list, uint32_t first, uint32_t rows) const;
  uint32_t row_of(uint32_t list, uint32_t first, uint32_t i) const {
    return list == plan::Step::no_list ? first + i : plan_->tables->rows[list + i];
  }
  Status move_part(const plan::Step& step, const Strip& source, const Strip& destination, uint64_t bytes,
                   Writes writes);
  Status move_unmapped(const plan::Step& step, const Strip& source, const Strip& destination, uint64_t bytes);
  Status reduce_part(const plan::Step& step, size_t part);
  Result<std::vector<const float*>> weights_of(const plan::Step& step);
  Status fetch_unmapped(const plan::Step& step, const std::vector<Strip>& sources, uint64_t bytes);

  const int rank_;
  transports::NodeMemory& node_;
  uint64_t sequence_ = 0;
  const CompiledPlan* plan_ = nullptr;
  const RowBuffers* buffers_ = nullptr;
  std::vector<device::SumTerm> terms_;
  device::SharedCopy shared_copy_;
  std::vector<std::byte> fetched_;  // rows of unmapped peers, one per term of a step, where needed
};

}  // namespace epccl::runtime
