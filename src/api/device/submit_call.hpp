// How a call on a GPU's memory is made, of whatever kind. submit_call() decides, in this order:
//
//   1. what may make it, and whether its stream is being captured: a graph that can make it gets it, and that was all
//   2. who makes it: the GPU's queues, or the host by way of its own memory; the same on all ranks
//   3. what that needs of the GPU. To allocate may wait for what the GPU does, and from 4 on that may be waiting for this call
//   4. its place in the stream, and whether it is queued behind what the stream had: what queues make all of
//   5. the work: for a thread that makes it whenever the graph runs, or for the communicator's order
//
// What kinds of calls differ in is a GpuCall. A new kind is a class of that, and a submit_on_device() (device_calls.cpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "api/device/device_place.hpp"
#include "api/device/mappable.hpp"
#include "api/groups/capturing.hpp"
#include "api/groups/group.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/on_device.hpp"

namespace epccl::api {

/// Memory of the library's that a call needs. Its work holds it: it is given back before anybody is told that the call is over.
struct CallMemory {
  runtime::DeviceRooms::Borrowed input_copy;     // of a call that reads a copy of its input
  MappableBuffers buffers;                       // where queues make the call
  runtime::DeviceRooms::Borrowed input, output;  // where it is staged, if its kind wants them
};

/// Whether ranks know how much such a call moves before they meet: then its type has these. Else no graph makes it.
template <typename CallType>
constexpr bool sizes_are_known = requires(CallType call) {
  call.capture;
};

/// A call, and what submit_call() asks of its kind. Nothing here may hold the call's place or memory: it may outlive the call.
template <typename CallType>
class GpuCall {
 public:
  /// `target` stays until the call is over. `copied`: the call reads a copy of its input, since its output overlaps that.
  GpuCall(runtime::Communicator& target, CallType given, bool copied)
      : communicator(target), call(std::move(given)), input_is_copied(copied) {}
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;
  virtual ~GpuCall() = default;

  /// For messages, and the graph's name of it.
  virtual std::string text() const = 0;
  /// Of a block, by which it is chosen who makes the call; 0: there is nothing to move.
  virtual uint64_t bytes() const = 0;
  virtual MappableBuffers::Used input() const = 0;
  virtual MappableBuffers::Used output() const = 0;

  /// Whether a graph's kernels and copies make the call, where sizes_are_known; else a thread of the library does at each run.
  virtual bool graph_makes_it(const runtime::OnDevice& /*on*/) const {
    return communicator.cluster().nodes() == 1 && call.engines != runtime::EngineUse::never;
  }
  virtual runtime::EngineChoice choose(const runtime::OnDevice& on) const {
    return on.engines->choose(call.engines, bytes());
  }
  /// Whether some of the call itself is memory of the GPU, which read() reads into `each` once the stream has come.
  virtual bool has_to_be_read() const { return false; }
  virtual Status read(const Place& /*place*/, CallType& /*each*/) const { return {}; }

  /// By the GPU's queues: now, or into a graph, as `each` says.
  virtual Status run_on_engines(const runtime::OnDevice& on, const CallType& each) const = 0;
  /// What run_staged() will need, beside the slices that StagedCalls has.
  virtual Status borrow_for_staging(const runtime::OnDevice& /*on*/, CallMemory& /*memory*/) const {
    return {};
  }
  /// The same call of host memory, and the copies to it and back.
  virtual Status run_staged(const Place& place, const CallMemory& memory, CallType each) const = 0;
  /// Seconds that the cost model expects.
  virtual double predict() const = 0;

  runtime::Communicator& communicator;
  CallType call;
  const bool input_is_copied;
};

template <typename CallType>
using GpuCallPtr = std::shared_ptr<const GpuCall<CallType>>;

/// A line of the log: whether queues make the call, or it goes by way of host memory.
void log_maker(const Place& place, const runtime::Communicator& communicator, const std::string& text,
               const runtime::EngineChoice& choice);

/// Gives the work, which holds the place's turn, to the worker of the place's GPU.
Status submit_at(Place place, CommPtr communicator, CollectiveWork work);

/// Gives a call that a graph makes to the graph that `stream` is being captured into: `add` does, and is given that stream. The
/// caller's thread calls it: it meets the node, so in a group of one thread for several ranks it comes at the group's end.
Status capture(runtime::OnDevice& on, device::Device& device, CommPtr communicator, const std::string& text,
               void* stream, std::function<Status(device::Queue&)> add);

/// Null: the call reads its input where it lies.
template <typename CallType>
Result<runtime::DeviceRooms::Borrowed> borrow_input_copy(const GpuCall<CallType>& made,
                                                         const runtime::OnDevice& on) {
  if (!made.input_is_copied) return runtime::DeviceRooms::Borrowed();
  return on.rooms->borrow(made.input().bytes, device::MemoryKind::shareable);
}

/// Into the graph, which keeps the copy's memory.
Status copy_in_graph(device::Queue& users, const MappableBuffers::Used& input,
                     const runtime::DeviceRooms::Borrowed& copy);

/// What the call needs of the GPU's memory, if queues make it.
template <typename CallType>
Result<CallMemory> borrow_memory(const GpuCall<CallType>& made, const runtime::OnDevice& on,
                                 bool by_engines) {
  CallMemory memory;
  EPCCL_ASSIGN(memory.input_copy, borrow_input_copy(made, on));
  MappableBuffers::Used input = made.input();
  if (memory.input_copy != nullptr) input = {memory.input_copy->data(), input.bytes};
  if (by_engines) {
    EPCCL_ASSIGN(memory.buffers, MappableBuffers::make(on, input, made.output()));
  } else {
    EPCCL_TRY(made.borrow_for_staging(on, memory));
  }
  return memory;
}

/// Makes the call when it has its turn.
template <typename CallType>
Status run_call(const GpuCall<CallType>& made, const Place& place, const CallMemory& memory,
                bool by_engines) {
  CallType call = made.call;
  EPCCL_TRY(made.read(place, call));
  if (memory.input_copy != nullptr) {
    EPCCL_TRY(place.on->worker->begun(*place.turn));
    EPCCL_TRY(place.on->staged->copy_pieces_in(made.input().all_pieces(), memory.input_copy->data()));
    call.input = memory.input_copy->data();
  }
  if (!by_engines) return made.run_staged(place, memory, std::move(call));
  return memory.buffers.run(*place.on, *place.turn, std::move(call), [&](const CallType& mappable) {
    return made.run_on_engines(*place.on, mappable);
  });
}

/// Queues the call on `stream`, or gives it to the graph that the stream is being captured into.
template <typename CallType>
Status submit_call(device::Device& device, CommPtr communicator, std::shared_ptr<GpuCall<CallType>> given,
                   void* stream) {
  EPCCL_ASSIGN(given->call.engines, communicator->gpu_engine_use());
  const GpuCallPtr<CallType> made = std::move(given);
  EPCCL_ASSIGN(const bool captured, is_captured(device, stream));
  if (captured && made->bytes() == 0) return {};
  EPCCL_ASSIGN(runtime::OnDevice * on, communicator->on_device(device));
  if constexpr (sizes_are_known<CallType>) {
    if (captured && made->graph_makes_it(*on)) {
      EPCCL_ASSIGN(auto copy, borrow_input_copy(*made, *on));
      return capture(*on, device, std::move(communicator), made->text(), stream,
                     [on, made, copy](device::Queue& users) -> Status {
                       CallType call = made->call;
                       call.capture = &users;
                       if (copy != nullptr) {
                         EPCCL_TRY(copy_in_graph(users, made->input(), copy));
                         call.input = copy->data();
                       }
                       return made->run_on_engines(*on, call);
                     });
    }
  }

  const runtime::EngineChoice choice = made->choose(*on);
  EPCCL_TRY(on->engines->prepare_for(choice));
  EPCCL_ASSIGN(CallMemory memory, borrow_memory(*made, *on, choice.engines));

  EPCCL_ASSIGN(Place place, captured ? begun_place(*on) : take_place(*on, stream));
  log_maker(place, *communicator, made->text(), choice);
  const bool all_by_queues = choice.engines && !made->has_to_be_read() && !made->input_is_copied;
  if (all_by_queues && can_queue_behind(*communicator)) EPCCL_TRY(place.turn->queue_behind());

  auto run = [made, place, memory = std::move(memory), by_engines = choice.engines] {
    return run_call(*made, place, memory, by_engines);
  };
  if (captured)
    return capture_replayed(device, std::move(communicator), made->text(), std::move(run), stream);
  return submit_at(std::move(place), std::move(communicator),
                   {std::move(run), [made] { return made->predict(); }});
}

}  // namespace epccl::api
