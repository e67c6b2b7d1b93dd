// Calls on a stream that is being captured into a CUDA graph.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/groups/group.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

/// Whether the stream's work is being recorded into a graph. Error: a capture that failed.
Result<bool> is_captured(device::Device& device, void* stream);

Status not_capturable(const std::string& text, const std::string& why);

/// What a call needs to be made by a thread of the library at each run of the graph.
struct Replaying {
  runtime::ReplayedCalls* calls = nullptr;
  std::shared_ptr<device::Queue> stream;
};
/// Error: it cannot be captured, `text` names it.
Result<Replaying> prepare_replays(device::Device& device, runtime::Communicator& communicator,
                                  runtime::OnDevice& on, const std::string& text, void* stream);

/// Puts a call into the graph, at the group's end: `work` makes it, as often as the graph runs, in the communicator's order.
Status capture_replayed(device::Device& device, CommPtr communicator, const std::string& text,
                        std::function<Status()> work, void* stream);

/// Error: ranks of one communicator have collectives on one stream that is being captured.
Status check_captured_streams(const std::vector<Item>& items);

/// Takes the sends and receives of streams that are being captured out of a group's calls, and puts them into the graph: those of a
/// communicator are one call there, and calls of several communicators begin before the graph waits for any.
Status capture_messages(std::vector<Item>& items);

}  // namespace epccl::api
