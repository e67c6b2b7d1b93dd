// What calls on a device's memory need where there are several nodes: the executor that drives their plans, and the plans it knows.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/engines/engine_use.hpp"
#include "runtime/executor/program_cache.hpp"
#include "runtime/queues/device_executor.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

class AcrossNodes {
 public:
  AcrossNodes(device::Device& device, const topology::Cluster& cluster, int rank,
              transports::NodeMemory& node, transports::MessageTransport& network, FailureMonitor& monitor,
              const EngineConfig& config);

  /// Allocates, and so may wait for what the device does. `width`: queues of one purpose.
  Status prepare(int width);
  /// The queues that compute cores copy in. Any thread.
  Status prepare_cores() { return executor_.prepare_cores(width_); }

  using Build = std::function<Result<plan::RankPlan>()>;
  /// `remember`: `text` names the plan, which is kept for the next such call. The program stays until the next call of this.
  Result<const DeviceProgram*> program(const std::string& text, const Build& build, plan::Makers makers,
                                       bool remember);

  /// Of a plan that its caller keeps.
  Result<DeviceProgram> make(const plan::RankPlan& plan, plan::Makers makers) const;
  uint64_t piece_bytes() const { return executor_.piece_bytes(); }
  /// What messages pass through; free between calls.
  PinnedStage* stage() const { return executor_.stage(); }

  /// As DeviceExecutor::run().
  Status run(const DeviceProgram& program, const QueueCall& call, Waiter& waiter) {
    return executor_.run(program, call, waiter);
  }
  /// Of a call that failed before it could run: as DeviceExecutor::give_up().
  void give_up(uint64_t sequence, const Waiter& waiter) { executor_.give_up(sequence, waiter); }

 private:
  const topology::Cluster& cluster_;
  int width_ = 1;
  DeviceExecutor executor_;
  ProgramCache<DeviceProgram> programs_;
};

}  // namespace epccl::runtime
