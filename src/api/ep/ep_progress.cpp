// ep.h: how far started calls are, and waiting for them.
#include "api/ep/ep_arguments.hpp"
#include "api/ep/ep_handles.hpp"
#include "api/handles/last_error.hpp"
#include "ep/kernels/captured_routing.hpp"
#include "ep/kernels/replayed_routing.hpp"
#include "runtime/streams/stream_hold.hpp"

namespace epccl::api {
namespace {

using ep::StartedCalls;
using runtime::CallStage;

Result<StartedCalls::State> end_of(int stage) {
  if (stage == 1) return StartedCalls::State::node;
  if (stage == 2) return StartedCalls::State::over;
  return error(Code::invalid_argument, "stage {} is neither 1 nor 2", stage);
}

Status get_progress(epcclEpHandle_t handle, epcclEpProgress_t* out) {
  EPCCL_ASSIGN(const EpHandlePtr target, find_ep_handle(handle));
  if (out == nullptr) return {Code::invalid_argument, "progress is NULL"};
  const epcclEpProgress_t defaults = EPCCL_EP_PROGRESS_INIT;
  EPCCL_ASSIGN(epcclEpProgress_t progress, read_struct("progress", out, defaults));
  const StartedCalls::Counts counts = target->started.counts();
  progress.calls_started = counts.started;
  progress.calls_past_stage1 = counts.past_network;
  progress.calls_over = counts.over;
  progress.stage1_bytes_done = counts.network.done;
  progress.stage1_bytes = counts.network.total;
  progress.stage2_bytes_done = counts.node.done;
  progress.stage2_bytes = counts.node.total;
  write_sized(out, progress);
  return {};
}

Status complete_stage(epcclEpHandle_t handle, int stage) {
  EPCCL_ASSIGN(const StartedCalls::State end, end_of(stage));
  EPCCL_ASSIGN(const EpHandlePtr target, find_ep_handle(handle));
  EPCCL_TRY(target->started.wait(end));
  if (stage == 1) return {};
  if (const auto replayed = target->replayed()) return replayed->take_error();
  const auto captured = target->captured();
  return captured == nullptr ? Status{} : captured->take_wrong(target->handle->rules().max_topk);
}

// A stream of a GPU waits for a word, which a thread of the handle raises; among the first calls, the calling thread waits for that.
Status hold_back_on(device::Device& device, void* stream, EpHandle& target, StartedCalls::State end) {
  EPCCL_ASSIGN(const std::unique_ptr<device::Queue> queue, device.borrow_stream(stream));
  if (queue->capturing())
    return error(Code::invalid_usage,
                 "the stream is being captured into a graph, and a thread tells it how far calls are, which "
                 "cannot be captured");
  EPCCL_ASSIGN(const auto* on, target.communicator()->on_device(device));
  EPCCL_ASSIGN(std::shared_ptr<runtime::StreamHold> hold, runtime::StreamHold::make(device));
  hold->waits_for(on->worker->watched(), on->worker->communicator());
  const std::shared_ptr<runtime::FirstCalls> waits_as = on->worker->first_call(false);
  if (waits_as == nullptr) EPCCL_TRY(hold->begin(*queue));
  const auto call = std::make_shared<runtime::AwaitedCall>();
  device::HostStream* waiting = target.stage_stream(end);
  target.started.hold_back(waiting, end);
  waiting->enqueue([hold, call, waits_as]() mutable -> Status {
    hold.reset();
    if (waits_as != nullptr) waits_as->reaches(*call, CallStage::over);
    return {};
  });
  const device::HostStream::Watch watch(waits_as != nullptr ? on->worker->stream().watchers() : nullptr);
  if (waits_as == nullptr || waits_as->wait_for(*call, waits_as->longest())) return {};
  return hold->begin(*queue);
}

Status stream_wait_stage(epcclStream_t stream, epcclEpHandle_t handle, int stage) {
  EPCCL_ASSIGN(const StartedCalls::State end, end_of(stage));
  EPCCL_ASSIGN(const EpHandlePtr target, find_ep_handle(handle));
  if (device::Device* device = target->device;
      device != nullptr && stream != nullptr && device::find_stream(stream) == nullptr)
    return hold_back_on(*device, stream, *target, end);
  EPCCL_ASSIGN(device::HostStream * queue, find_stream(stream));
  target->started.hold_back(queue, end);
  return {};
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclEpGetProgress(epcclEpHandle_t handle, epcclEpProgress_t* progress) {
  return guarded([&] { return get_progress(handle, progress); });
}

epcclResult_t epcclEpCompleteStage(epcclEpHandle_t handle, int stage) {
  return guarded([&] { return complete_stage(handle, stage); });
}

epcclResult_t epcclEpComplete(epcclEpHandle_t handle) {
  return guarded([&] { return complete_stage(handle, 2); });
}

epcclResult_t epcclEpStreamWaitStage(epcclStream_t stream, epcclEpHandle_t handle, int stage) {
  return guarded([&] { return stream_wait_stage(stream, handle, stage); });
}
