// ep.h: dispatch and combine.
#include <array>
#include <functional>
#include <utility>

#include "api/device/device_place.hpp"
#include "api/ep/ep_calls.hpp"
#include "api/ep/ep_capture.hpp"
#include "api/ep/ep_replay.hpp"
#include "api/groups/capturing.hpp"
#include "api/groups/first_call.hpp"
#include "api/handles/arguments.hpp"
#include "base/log.hpp"
#include "ep/calls/row_call.hpp"
#include "ep/calls/staged_transfer.hpp"
#include "ep/kernels/kernel_transfer.hpp"

namespace epccl::api {
namespace {

using runtime::DeviceWorker;
using runtime::StagedCalls;

constexpr auto float_types = {epcclFloat32};
constexpr auto row_types = {epcclFloat32, epcclBfloat16, epcclFloat16};
constexpr auto dispatch_types = {epcclFloat32, epcclBfloat16, epcclFloat16, epcclFloat8e4m3};

// The stream a call runs on: the caller's, or with send_only one of the handle's own.
Result<device::HostStream*> stream_of(EpHandle& handle, epcclStream_t stream, bool send_only) {
  EPCCL_ASSIGN(device::HostStream * queue, find_stream(stream));
  if (!send_only) return queue;
  if (queue != nullptr)
    return Status(Code::invalid_argument, "send_only with a created stream: that is asynchronous as it is");
  return handle.background_stream();
}

// Runs a dispatch or combine, unless the handle's last update failed, which every rank knows alike.
template <typename Call>
Status transfer(EpHandle& target, device::HostStream* queue, Call call,
                std::function<Status(ep::Handle&, const Call&)> move) {
  std::shared_ptr<runtime::CallProgress> progress;
  if (queue != nullptr) progress = target.started.add(*queue);
  call.progress = progress.get();
  const auto work = [handle = target.handle, call, move = std::move(move)](Status& agreed) -> Status {
    agreed = routing_failure(*handle);
    return agreed.ok() ? move(*handle, call) : Status{};
  };
  return run_ep(target, queue, work, std::move(progress));
}

Status run_staged(ep::Handle& handle, const ep::DispatchCall& call, StagedCalls& staged, std::byte* pinned) {
  return ep::dispatch_staged(handle, call, staged, pinned);
}
Status run_staged(ep::Handle& handle, const ep::CombineCall& call, StagedCalls& staged, std::byte* pinned) {
  return ep::combine_staged(handle, call, staged, pinned);
}
Status run_kernels(ep::Handle& handle, const ep::DispatchCall& call, runtime::KernelCalls& kernels,
                   const ep::KernelRooms& rooms) {
  return ep::dispatch_by_kernels(handle, call, kernels, rooms);
}
Status run_kernels(ep::Handle& handle, const ep::CombineCall& call, runtime::KernelCalls& kernels,
                   const ep::KernelRooms& rooms) {
  return ep::combine_by_kernels(handle, call, kernels, rooms);
}

constexpr ep::ReplayedRouting::Kind kind_of(const ep::DispatchCall&) {
  return ep::ReplayedRouting::Kind::dispatch;
}
constexpr ep::ReplayedRouting::Kind kind_of(const ep::CombineCall&) {
  return ep::ReplayedRouting::Kind::combine;
}

/// How a call on a GPU's memory is made.
template <typename Call>
struct Mover {
  /// `behind`: null: the stream has come.
  std::function<Status(ep::Handle&, const Call&, const runtime::QueuedBehind* behind)> move;
  bool can_be_behind = false;
};

// All that has to be allocated is, before the stream waits for it. `replays`: of a call that is captured; else null. Where graphs replay updates of the handle, any of them may have been the last when the call runs, and the host's.
template <typename Call>
Result<Mover<Call>> mover_of(runtime::OnDevice& on, const EpHandle& target, const Call& call,
                             ep::ReplayedRouting* replays) {
  const CommPtr communicator = target.communicator();
  EPCCL_ASSIGN(const runtime::EngineChoice choice,
               choose_maker(on, *target.group->group, replays != nullptr));
  log::info_once(log::coll, communicator->rank(), "ep on GPU {}: {} ({})", on.worker->device().ordinal(),
                 choice.by_cores  ? "kernels, which make all copies, too"
                 : choice.engines ? "kernels"
                                  : "staged through pinned host memory",
                 choice.why);
  if (choice.engines) {
    const uint32_t fixed = target.handle->rules().max_topk;
    const bool has_tables = target.by_kernels && replays == nullptr && target.replayed() == nullptr;
    EPCCL_ASSIGN(
        ep::KernelRooms rooms,
        ep::borrow_rooms(call, {*target.handle, fixed > 0 ? fixed : target.topk_width.load(), has_tables},
                         on.worker->device(), *on.rooms));
    if (replays != nullptr) replays->share(rooms, kind_of(call));
    return Mover<Call>{[kernels = on.kernels.get(), rooms, choice](ep::Handle& handle, const Call& each,
                                                                   const runtime::QueuedBehind* behind) {
                         const auto begun = kernels->begin(choice, behind);
                         return run_kernels(handle, each, *kernels, rooms);
                       },
                       can_queue_behind(*communicator)};
  }
  EPCCL_ASSIGN(runtime::DeviceRooms::Borrowed pinned, on.rooms->borrow(ep::staging_bytes(call)));
  // Then the host makes its own lists from the tables that kernels have read.
  if (target.by_kernels) EPCCL_TRY(target.layout->prepare_reading());
  if (replays != nullptr) replays->share(pinned);
  return Mover<Call>{
      [staged = on.staged.get(), pinned](ep::Handle& handle, const Call& each, const runtime::QueuedBehind*) {
        return run_staged(handle, each, *staged, pinned->data());
      }};
}

// What is on a GPU is done by the thread that makes the calls of the communicator there, in the order of the GPU's stream. With
// send_only the stream goes on at once.
template <typename Call>
Status transfer_on_device(device::Device& device, EpHandle& target, epcclStream_t stream, bool send_only,
                          const Call& call) {
  EPCCL_ASSIGN(auto* on, target.communicator()->on_device(device));
  target.device = &device;
  const DeviceWorker* worker = on->worker.get();
  EPCCL_ASSIGN(auto mover, mover_of(*on, target, call, nullptr));
  EPCCL_ASSIGN(TurnPtr turn, worker->take_turn(stream, send_only ? DeviceWorker::Holds::nothing
                                                                 : DeviceWorker::Holds::stream));
  if (mover.can_be_behind) EPCCL_TRY(turn->queue_behind());
  std::function<Status(ep::Handle&, const Call&)> work = [worker, turn, move = std::move(mover.move)](
                                                             ep::Handle& handle, const Call& each) -> Status {
    const runtime::QueuedBehind* const behind = turn->behind();
    if (behind == nullptr) EPCCL_TRY(worker->begun(*turn));
    return move(handle, each, behind);
  };
  const FirstCall first(turn);
  turn = nullptr;  // the work holds it
  Status issued = transfer<Call>(target, &worker->stream(), call, std::move(work));
  return first.wait_if(std::move(issued));
}

Status capture_call(ep::Handle& handle, const ep::DispatchCall& call, const CaptureOn& capture) {
  return ep::capture_dispatch(handle, call, capture.into, *capture.on->kernels);
}
Status capture_call(ep::Handle& handle, const ep::CombineCall& call, const CaptureOn& capture) {
  return ep::capture_combine(handle, call, capture.into, *capture.on->kernels);
}

template <typename Call>
Status capture_kernels(device::Device& device, EpHandle& target, epcclStream_t stream, const Call& call,
                       const char* text) {
  EPCCL_ASSIGN(const CaptureOn capture, prepare_capture(device, target, text, stream));
  if (!target.update_is_captured && !target.by_kernels)
    return not_capturable(text,
                          "the handle has no routing that kernels have made: its update has to be captured, "
                          "too, or made on the GPU before");
  return run_ep(target, nullptr, [&](Status& agreed) -> Status {
    if (!target.update_is_captured) agreed = routing_failure(*target.handle);
    return agreed.ok() ? capture_call(*target.handle, call, capture) : Status{};
  });
}

// A thread of the library makes the call that would be made now.
template <typename Call>
Status capture_by_host(device::Device& device, runtime::OnDevice& on, EpHandle& target, epcclStream_t stream,
                       const Call& call, const char* text) {
  EPCCL_ASSIGN(auto routing, replayed_routing_of(device, target, text));
  EPCCL_TRY(run_ep(target, nullptr, [&](Status& agreed) -> Status {
    if (!target.update_is_captured) agreed = routing_failure(*target.handle);
    return agreed.ok() ? routing->check(call) : Status{};
  }));
  EPCCL_ASSIGN(auto mover, mover_of(on, target, call, routing.get()));
  auto work = [routing, call, move = std::move(mover.move)]() -> Status {
    return routing->has_routing() ? move(routing->handle(), call, nullptr) : Status{};
  };
  return capture_replayed(device, target.communicator(), text, std::move(work), stream);
}

/// The routing is the one that the handle has when the graph runs: of the last update before, captured or not.
template <typename Call>
Status capture_on_device(device::Device& device, EpHandle& target, epcclStream_t stream, bool send_only,
                         const Call& call, const char* text) {
  if (send_only) return not_capturable(text, "a thread of the host tells how far a call with send_only is");
  EPCCL_ASSIGN(auto* on, target.communicator()->on_device(device));
  return is_replayed(target, *on) ? capture_by_host(device, *on, target, stream, call, text)
                                  : capture_kernels(device, target, stream, call, text);
}

/// On a GPU, now or whenever a graph is launched.
template <typename Call>
Status transfer_or_capture(device::Device& device, EpHandle& target, epcclStream_t stream, bool send_only,
                           const Call& call, const char* text) {
  EPCCL_ASSIGN(const bool captured, is_captured(device, stream));
  return captured ? capture_on_device(device, target, stream, send_only, call, text)
                  : transfer_on_device(device, target, stream, send_only, call);
}

template <typename T>
T* data_of(const Tensor& tensor) {
  return tensor.given ? static_cast<T*>(tensor.data) : nullptr;
}

}  // namespace

Status dispatch(epcclEpHandle_t handle, const epcclEpDispatchInputs_t* inputs,
                const epcclEpDispatchOutputs_t* outputs, const epcclEpDispatchConfig_t* config,
                epcclStream_t stream) {
  EPCCL_ASSIGN(const EpHandlePtr target, find_usable_ep_handle(handle));
  const epcclEpDispatchInputs_t no_inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
  const epcclEpDispatchOutputs_t no_outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
  const epcclEpDispatchConfig_t defaults = EPCCL_EP_DISPATCH_CONFIG_INIT;
  EPCCL_ASSIGN(const auto in, read_struct("inputs", inputs, no_inputs));
  EPCCL_ASSIGN(const auto out, read_struct("outputs", outputs, no_outputs));
  EPCCL_ASSIGN(const auto options, read_struct("config", config, defaults));

  EPCCL_ASSIGN(const Tensor tokens, read_tensor("inputs.tokens", in.tokens, true, 2, dispatch_types));
  EPCCL_ASSIGN(const Tensor weights,
               read_tensor("inputs.topk_weights", in.topk_weights, false, 2, float_types));
  EPCCL_ASSIGN(const Tensor scales, read_tensor("inputs.scales", in.scales, false, 2, float_types));
  EPCCL_ASSIGN(const Tensor received, read_tensor("outputs.tokens", out.tokens, true, 2, dispatch_types));
  EPCCL_ASSIGN(const Tensor received_topk,
               read_tensor("outputs.topk_idx", out.topk_idx, false, 2, index_types));
  EPCCL_ASSIGN(const Tensor received_scales,
               read_tensor("outputs.scales", out.scales, false, 2, float_types));
  const bool by_expert = target->handle->rules().layout == ep::SlotLayout::expert_major;
  EPCCL_ASSIGN(const Tensor received_weights,
               read_tensor("outputs.topk_weights", out.topk_weights, false, by_expert ? 1 : 2, float_types));
  if (tokens.columns() == 0 || tokens.columns() != received.columns())
    return error(Code::invalid_argument, "tokens have {} elements, rows of the output {}", tokens.columns(),
                 received.columns());

  ep::DispatchCall call;
  call.tokens = tokens.data;
  call.type = token_type_of(tokens.datatype);
  call.token_rows = tokens.rows();
  call.hidden = tokens.columns();
  call.weights = {data_of<float>(weights), weights.rows(), weights.columns()};
  call.scales = {data_of<float>(scales), scales.rows(), scales.columns()};
  call.received = received.data;
  call.received_rows = received.rows();
  call.received_type = token_type_of(received.datatype);
  call.received_weights = {data_of<float>(received_weights), received_weights.rows(),
                           received_weights.columns()};
  call.received_scales = {data_of<float>(received_scales), received_scales.rows(), received_scales.columns()};
  call.received_topk = {data_of<void>(received_topk), received_topk.rows(), received_topk.columns()};
  call.received_topk_wide = received_topk.datatype == epcclInt64;
  call.weighted = options.weighted != 0;
  EPCCL_TRY(ep::check_alone(target->handle->rules(), call));
  EPCCL_TRY(check_no_ep_in_group());
  const std::array tensors{&tokens,        &weights,         &scales,          &received,
                           &received_topk, &received_scales, &received_weights};
  EPCCL_TRY(check_apart(tensors, 3));
  EPCCL_ASSIGN(device::Device * device, device_of_transfer(*target, tensors, stream));
  const bool send_only = options.send_only != 0;
  if (device != nullptr) return transfer_or_capture(*device, *target, stream, send_only, call, "a dispatch");
  EPCCL_ASSIGN(device::HostStream * queue, stream_of(*target, stream, send_only));
  return transfer<ep::DispatchCall>(*target, queue, call, ep::dispatch);
}

Status combine(epcclEpHandle_t handle, const epcclEpCombineInputs_t* inputs,
               const epcclEpCombineOutputs_t* outputs, const epcclEpCombineConfig_t* config,
               epcclStream_t stream) {
  EPCCL_ASSIGN(const EpHandlePtr target, find_usable_ep_handle(handle));
  const epcclEpCombineInputs_t no_inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
  const epcclEpCombineOutputs_t no_outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
  const epcclEpCombineConfig_t defaults = EPCCL_EP_COMBINE_CONFIG_INIT;
  EPCCL_ASSIGN(const auto in, read_struct("inputs", inputs, no_inputs));
  EPCCL_ASSIGN(const auto out, read_struct("outputs", outputs, no_outputs));
  EPCCL_ASSIGN(const auto options, read_struct("config", config, defaults));

  const bool by_expert = target->handle->rules().layout == ep::SlotLayout::expert_major;
  EPCCL_ASSIGN(const Tensor tokens, read_tensor("inputs.tokens", in.tokens, true, 2, row_types));
  EPCCL_ASSIGN(const Tensor weights,
               read_tensor("inputs.topk_weights", in.topk_weights, false, by_expert ? 1 : 2, float_types));
  EPCCL_ASSIGN(const Tensor combined, read_tensor("outputs.tokens", out.tokens, true, 2, row_types));
  EPCCL_ASSIGN(const Tensor combined_weights,
               read_tensor("outputs.topk_weights", out.topk_weights, false, 2, float_types));
  if (tokens.columns() == 0 || tokens.columns() != combined.columns() || tokens.datatype != combined.datatype)
    return error(Code::invalid_argument, "rows of {} {} cannot be combined into tokens of {} {}",
                 tokens.columns(), datatype_name(tokens.datatype), combined.columns(),
                 datatype_name(combined.datatype));

  ep::CombineCall call;
  call.tokens = tokens.data;
  call.token_rows = tokens.rows();
  call.type = token_type_of(tokens.datatype);
  call.hidden = tokens.columns();
  call.weights = {data_of<float>(weights), weights.rows(), weights.columns()};
  call.combined = combined.data;
  call.combined_rows = combined.rows();
  call.combined_weights = {data_of<float>(combined_weights), combined_weights.rows(),
                           combined_weights.columns()};
  call.weighted = options.weighted != 0;
  EPCCL_TRY(ep::check_alone(target->handle->rules(), call));
  EPCCL_TRY(check_no_ep_in_group());
  const std::array tensors{&tokens, &weights, &combined, &combined_weights};
  EPCCL_TRY(check_apart(tensors, 2));
  EPCCL_ASSIGN(device::Device * device, device_of_transfer(*target, tensors, stream));
  const bool send_only = options.send_only != 0;
  if (device != nullptr) return transfer_or_capture(*device, *target, stream, send_only, call, "a combine");
  EPCCL_ASSIGN(device::HostStream * queue, stream_of(*target, stream, send_only));
  return transfer<ep::CombineCall>(*target, queue, call, ep::combine);
}

}  // namespace epccl::api
