// Groups: what is called between epcclGroupStart() and epcclGroupEnd() starts together. Outside a group, a call is a group
// of its own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "api/handles/handles.hpp"
#include "base/status.hpp"

namespace epccl::api {

/// A call that becomes part of a graph.
struct CapturedOn {
  const device::Device* device = nullptr;
  void* stream = nullptr;  // that is being captured
  std::string text;        // of the call
  // Whether its ranks meet for that. Else it only writes, and needs no place in the communicator's order.
  bool meets = true;
};

/// A call that is no send or receive (a collective, a dispatch, a capture): what runs in its turn, and what is known of it.
struct CollectiveWork {
  std::function<Status()> run;
  // Seconds that the cost model expects of it; empty: it does not know the call.
  std::function<double()> predict = {};
  double timeout_seconds = 0;  // of silence; 0: the communicator's
  // Last: makes what the caller or the stream is told from how the work ended.
  std::function<Status(Status)> conclude = {};
};

/// One call, checked and ready.
struct Item {
  CommPtr communicator;
  device::HostStream* stream = nullptr;
  std::variant<CollectiveWork, runtime::P2pOperation> what;
  std::optional<CapturedOn> captured = {};
};

/// A call that makes or ends communicators: it waits for other ranks, and so, maybe, for other calls of its group.
struct Job {
  // Takes the call's place in the order of its communicator's calls; throws nothing.
  std::function<void()> begin;
  std::function<Status()> run;   // on any thread, beside the group's other jobs
  std::function<void()> cancel;  // instead of both, where a call of the group was refused
  bool blocking = true;          // the group's end waits for it; else it goes on in the background
  // Instead of `run`, where it has begun and there is no memory to run it.
  std::function<void(const Status&)> end = [](const Status&) {};
  // Instead of all others, where the group will never end: memory of the caller may be gone.
  std::function<void(const Status&)> drop = [](const Status&) {};
  HandlePtr handle = {};  // of the communicator that is made or ended
  HandlePtr parent = {};  // of a split or shrink
  // Ends a run that waits for others, where another of the group's has failed. Any thread.
  std::function<void()> interrupt = [] {};
};

/// A collective of host memory in the NULL stream, outside a group: runs here and now, as cheap as it can be.
template <typename Work>
Status run_now(runtime::Communicator& communicator, const Work& work) {
  return communicator.run_next(std::cref(work));
}
/// Runs the item now, or keeps it when the calling thread has a group open.
Status submit(Item item);
/// The same of a message of host memory.
Status submit(CommPtr communicator, device::HostStream* stream, runtime::P2pOperation operation);
/// in_progress where the job goes on in the background.
Status submit(Job job);
/// Notes that a call of the open group was refused: epcclGroupEnd() will say so. Returns `status`.
Status refuse(Status status);

/// Whether the calling thread has a group open.
bool in_group();
/// How many calls of the communicator the calling thread's open group holds.
size_t calls_in_group(const HandlePtr& handle);
/// Whether the calling thread's open group holds a call on the stream.
bool group_uses(const device::HostStream* stream);
/// The communicator was aborted: takes its calls out of the calling thread's open group, whose end will say so and do nothing.
void drop_from_group(const HandlePtr& handle);

/// A call's turn in a stream of a GPU. All calls of a group share one in each stream, which is taken at the group's end: they
/// begin together, and what the stream is given next waits for all of them, or is given when they are over (FirstCall).
using TurnPtr = std::shared_ptr<runtime::Turn>;
Result<TurnPtr> turn_of_call(const runtime::DeviceWorker& worker, void* stream);

Status group_start();
/// `beside` is called when the group's calls on streams are under way, and before streams of GPUs wait for them: what it gives these
/// streams runs beside the calls. It is called at the outermost end only, and not if the group does nothing.
Status group_end(const std::function<void()>& beside = {});
/// As group_end(), without running anything: microseconds that the calls would take.
Status group_simulate_end(float& microseconds);

}  // namespace epccl::api
