// What the calls of an EP handle share: how their work is run, and where.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "api/ep/ep_arguments.hpp"
#include "api/ep/ep_handles.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/executor/call_progress.hpp"

namespace epccl::api {

/// What it puts into its argument is an error that all ranks have found alike; it does not break the communicator. What it
/// returns does.
using EpWork = std::function<Status(Status& agreed)>;

Status check_no_ep_in_group();

/// A call of the handle. `stream`: null: by the calling thread. `progress`: of a call that others wait for, or null.
Status run_ep(const EpHandle& handle, device::HostStream* stream, const EpWork& work,
              std::shared_ptr<runtime::CallProgress> progress = nullptr);
/// A call that makes a group, by the calling thread.
Status run_ep(CommPtr communicator, const EpWork& work);

/// Why the last update came to nothing, which every rank knows alike; ok after one that did.
Status routing_failure(const ep::Handle& handle);

// On which GPU a call is made; null: on the host. The handle remembers it: with nothing to move and no stream a call is made where the
// last one was. Error: tensors of several kinds, or of several GPUs.
Result<device::Device*> device_of_transfer(EpHandle& handle, std::span<const Tensor* const> tensors,
                                           epcclStream_t stream);
/// Some of whose tensors may be host memory.
Result<device::Device*> device_of_update(EpHandle& handle, const Tensor& table,
                                         std::span<const Tensor* const> results, epcclStream_t stream);

/// Who makes calls on a GPU's memory, and, in static mode, their layout; the same on every rank. Before the call's turn: makes what those
/// need. `replays`: of a call that the host makes at each run of a graph.
Result<runtime::EngineChoice> choose_maker(const runtime::OnDevice& on, const ep::Group& group, bool replays);

// The calls of ep.h.
Status update(EpHandle& target, const epcclEpTensor_t* topk_idx, const epcclEpLayoutInfo_t* info,
              epcclStream_t stream);
Status dispatch(epcclEpHandle_t handle, const epcclEpDispatchInputs_t* inputs,
                const epcclEpDispatchOutputs_t* outputs, const epcclEpDispatchConfig_t* config,
                epcclStream_t stream);
Status combine(epcclEpHandle_t handle, const epcclEpCombineInputs_t* inputs,
               const epcclEpCombineOutputs_t* outputs, const epcclEpCombineConfig_t* config,
               epcclStream_t stream);

}  // namespace epccl::api
