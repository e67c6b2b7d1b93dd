// Runs the steps of a plan that reduce.
#pragma once

#include <vector>

#include "base/status.hpp"
#include "device/host/reduction.hpp"
#include "plan/plan.hpp"
#include "runtime/executor/compiled_plan.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

class ReduceSteps {
 public:
  ReduceSteps(int rank, transports::NodeMemory& node) : rank_(rank), node_(node) {}

  /// This rank's buffers of a call.
  struct Buffers {
    const void* input = nullptr;
    void* output = nullptr;
  };

  /// A call begins; `plan` and `reduction` must outlive it.
  void begin(transports::CallScratch scratch, const CompiledPlan& plan, const Buffers& buffers,
             const device::Reduction& reduction);

  Status run(const plan::Step& step);

 private:
  std::byte* own(const plan::Location& location) const;
  Status find_sources(const plan::Step& step);
  Status fetch_unmapped(const plan::Step& step, uint64_t offset, uint64_t bytes);

  const int rank_;
  transports::NodeMemory& node_;
  transports::CallScratch scratch_;
  const CompiledPlan* plan_ = nullptr;
  Buffers buffers_;
  const device::Reduction* reduction_ = nullptr;
  std::vector<device::ReduceSource> sources_;  // of the current step
  std::vector<size_t> unmapped_;               // those of them that have no address in this process
  std::vector<std::byte> fetched_;             // a piece of each of those
};

}  // namespace epccl::runtime
