#include "api/ep/ep_calls.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "api/device/device_calls.hpp"
#include "api/groups/group.hpp"

namespace epccl::api {
namespace {

std::vector<NamedBuffer> buffers_of(std::span<const Tensor* const> tensors) {
  std::vector<NamedBuffer> buffers;
  for (const Tensor* tensor : tensors)
    if (tensor->given) buffers.push_back({tensor->name, tensor->address, tensor->bytes});
  return buffers;
}

/// `tells`: the call's tensors, or its stream, say that it is made on `named`.
device::Device* place(EpHandle& handle, EpHandle::Kind kind, bool tells, device::Device* named,
                      std::span<const NamedBuffer> buffers) {
  if (tells) {
    handle.set_place(kind, named);
    return named;
  }
  if (const auto last = handle.place(kind)) return *last;
  const bool any =
      std::ranges::any_of(buffers, [](const NamedBuffer& one) { return one.address != nullptr; });
  return any ? nullptr : handle.communicator()->device_in_use();
}

Status submit_ep(CommPtr communicator, device::HostStream* stream, uint32_t timeout_ms, const EpWork& work,
                 std::shared_ptr<runtime::CallProgress> progress) {
  auto agreed = std::make_shared<Status>();
  const auto conclude = [agreed, progress = std::move(progress)](Status status) {
    if (status.ok()) status = *agreed;
    if (progress != nullptr) progress->finish(status);
    return status;
  };
  return submit({std::move(communicator), stream,
                 CollectiveWork{[agreed, work] { return work(*agreed); }, {}, timeout_ms * 1e-3, conclude}});
}

}  // namespace

Status run_ep(const EpHandle& handle, device::HostStream* stream, const EpWork& work,
              std::shared_ptr<runtime::CallProgress> progress) {
  return submit_ep(handle.communicator(), stream, handle.handle->group().options().timeout_ms, work,
                   std::move(progress));
}

Status run_ep(CommPtr communicator, const EpWork& work) {
  return submit_ep(std::move(communicator), nullptr, 0, work, nullptr);
}

Status routing_failure(const ep::Handle& handle) {
  return Status(handle.failure()).with_context("the handle has no valid routing");
}

Status check_no_ep_in_group() {
  return in_group() ? Status(Code::invalid_usage, "EP calls cannot be part of a group") : Status{};
}

Result<device::Device*> device_of_transfer(EpHandle& handle, std::span<const Tensor* const> tensors,
                                           epcclStream_t stream) {
  const std::vector<NamedBuffer> buffers = buffers_of(tensors);
  EPCCL_ASSIGN(device::Device * named, device_of(*handle.communicator(), buffers, stream));
  const bool moves = std::ranges::any_of(buffers, [](const NamedBuffer& one) { return one.bytes > 0; });
  return place(handle, EpHandle::Kind::transfer, moves || stream != nullptr || named != nullptr, named,
               buffers);
}

Result<device::Device*> device_of_update(EpHandle& handle, const Tensor& table,
                                         std::span<const Tensor* const> results, epcclStream_t stream) {
  std::vector<NamedBuffer> buffers = buffers_of(results), of_gpus;
  buffers.push_back({table.name, table.address, table.bytes});
  std::ranges::copy_if(buffers, std::back_inserter(of_gpus),
                       [](const NamedBuffer& one) { return is_gpu_memory(one.address); });
  // Host tensors may be in the order of a GPU's stream.
  EPCCL_ASSIGN(device::Device * named, device_of(*handle.communicator(), of_gpus, stream));
  return place(handle, EpHandle::Kind::update, table.bytes > 0 || stream != nullptr || named != nullptr,
               named, buffers);
}

// In a combine with strategy FLAT each rank of other nodes has a part in a sum; so it may be with AUTO.
Result<runtime::EngineChoice> choose_maker(const runtime::OnDevice& on, const ep::Group& group,
                                           bool replays) {
  EPCCL_ASSIGN(const runtime::EngineUse use, group.communicator().gpu_engine_use());
  const runtime::EngineChoice choice = on.kernels->choose(use);
  EPCCL_TRY(on.engines->prepare_for(choice));
  const bool may_be_flat = group.options().strategy.value_or(ep::Strategy::flat) == ep::Strategy::flat;
  const auto ranks = static_cast<uint32_t>(group.cluster().ranks());
  if (choice.engines && may_be_flat && ranks > device::kernels::max_peers)
    return runtime::EngineChoice::host("more ranks than a kernel can name, if the strategy is FLAT");
  // On one node the host makes the layouts of these runs, and what is made of them.
  if (choice.by_cores && replays && group.cluster().nodes() == 1)
    return runtime::EngineChoice::host("never, in a graph of one node");
  return choice;
}

}  // namespace epccl::api
