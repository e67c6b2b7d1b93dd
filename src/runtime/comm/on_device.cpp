#include "runtime/comm/on_device.hpp"

#include <utility>

#include "device/held_streams.hpp"

namespace epccl::runtime {

Result<std::unique_ptr<OnDevice>> OnDevice::make(device::Device& device, CommParts& parts,
                                                 FailureMonitor& monitor, Executor& executor,
                                                 transports::ShmMessages& shm_messages,
                                                 DeviceWorker::Owner owner) {
  auto made = std::make_unique<OnDevice>();
  made->engines = std::make_unique<CopyEngines>(device, parts.cluster, parts.rank, *parts.node, monitor,
                                                executor, parts.config.engines);
  EPCCL_TRY(made->engines->prepare());
  made->alltoall = std::make_unique<AlltoallRunner>(parts.cluster, parts.rank, parts.config, parts.cost,
                                                    executor, *made->engines);
  made->collectives = std::make_unique<CollectiveRunner>(parts.cluster, parts.rank, parts.config, parts.cost,
                                                         executor, *made->engines);
  made->kernels = std::make_unique<KernelCalls>(device, parts.cluster, parts.rank, *parts.node, monitor,
                                                executor, *made->engines);
  EPCCL_TRY(made->kernels->prepare());
  made->messages = std::make_unique<GpuMessages>(device, parts.cluster, parts.rank, *parts.node, shm_messages,
                                                 made->engines->stage(), parts.config.message_piece_bytes);
  EPCCL_TRY(made->messages->prepare());
  made->rooms = std::make_unique<DeviceRooms>(device);
  EPCCL_ASSIGN(made->worker, DeviceWorker::open(device, std::move(owner)));
  EPCCL_ASSIGN(made->staged, StagedCalls::open(*made->worker, *made->rooms, parts.config.stage_bytes,
                                               16 * static_cast<uint64_t>(parts.cluster.ranks())));
  return made;
}

Status OnDevice::prepare_captures(ReplayWatch::Owner watching, ReplayedCalls::Owner replaying) {
  if (watch != nullptr) return {};
  const device::HeldStreams::Quiet quiet;
  EPCCL_TRY(engines->prepare_captures());
  watch = std::make_unique<ReplayWatch>(engines->captures()->room(), std::move(watching));
  replayed = std::make_unique<ReplayedCalls>(*engines->captures(), std::move(replaying));
  return {};
}

}  // namespace epccl::runtime
