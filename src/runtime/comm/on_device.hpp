// What a communicator's calls on memory of a GPU need: made with it where the GPU is known, else at the first of them.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/comm/alltoall.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/comm_parts.hpp"
#include "runtime/engines/copy_engines.hpp"
#include "runtime/engines/gpu_messages.hpp"
#include "runtime/engines/kernel_calls.hpp"
#include "runtime/engines/replay_watch.hpp"
#include "runtime/engines/replayed_calls.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/streams/device_rooms.hpp"
#include "runtime/streams/device_worker.hpp"
#include "runtime/streams/staged_calls.hpp"
#include "transports/shm/shm_messages.hpp"

namespace epccl::runtime {

struct OnDevice {
  /// All but what captured calls need. `owner`: of the calls.
  static Result<std::unique_ptr<OnDevice>> make(device::Device& device, CommParts& parts,
                                                FailureMonitor& monitor, Executor& executor,
                                                transports::ShmMessages& shm_messages,
                                                DeviceWorker::Owner owner);
  /// What they need, once.
  Status prepare_captures(ReplayWatch::Owner watching, ReplayedCalls::Owner replaying);

  std::unique_ptr<CopyEngines> engines;
  std::unique_ptr<ReplayWatch> watch;  // null before the first captured call
  std::unique_ptr<AlltoallRunner> alltoall;
  std::unique_ptr<CollectiveRunner> collectives;
  std::unique_ptr<KernelCalls> kernels;
  std::unique_ptr<GpuMessages> messages;
  std::unique_ptr<DeviceRooms> rooms;
  std::unique_ptr<StagedCalls> staged;
  std::unique_ptr<DeviceWorker> worker;  // its thread uses the rest
  std::unique_ptr<ReplayedCalls>
      replayed;  // null before the first captured call; last, as its thread uses the rest
};

}  // namespace epccl::runtime
