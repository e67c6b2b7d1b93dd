#include "runtime/comm/engine_reach.hpp"

#include "runtime/engines/mapping_trial.hpp"

namespace epccl::runtime {
namespace {

constexpr uint64_t registered_bytes = 2 << 20;

/// Whether the network reads and writes memory of this GPU as it lies there.
Status try_network(transports::MessageTransport& network, device::Device& gpu) {
  EPCCL_ASSIGN(void* memory, gpu.allocate(device::MemoryKind::shareable, registered_bytes));
  Status reached = network.device_memory(gpu, memory, registered_bytes).status();
  EPCCL_TRY(gpu.free(memory));
  return std::move(reached).with_context("messages between nodes would pass host memory");
}

Result<device::Device*> usable_gpu(Communicator& communicator, const Result<device::Device*>& mine) {
  if (communicator.engine_use() == EngineUse::never)
    return Status(Code::invalid_usage, "the copy engine is never to be used");
  if (mine.ok() && communicator.network() != nullptr) EPCCL_TRY(try_network(*communicator.network(), **mine));
  return mine;
}

}  // namespace

Result<EngineReach> find_engine_reach(Communicator& communicator, const Result<device::Device*>& mine) {
  const auto tell = [&communicator](const TrialWord& word, std::vector<TrialWord>& all) {
    all.assign(static_cast<size_t>(communicator.ranks()), TrialWord{});
    return communicator.tell_all(&word, sizeof word, reinterpret_cast<std::byte*>(all.data()),
                                 "whether copy engines reach all ranks");
  };
  EPCCL_ASSIGN(const std::string why_not, try_mapping(communicator.cluster(), communicator.rank(),
                                                      usable_gpu(communicator, mine), tell));
  return EngineReach{why_not.empty(), why_not};
}

}  // namespace epccl::runtime
