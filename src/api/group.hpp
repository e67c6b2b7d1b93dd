// Groups: what is called between epcclGroupStart() and epcclGroupEnd() starts together. Outside a group, a call is a group
// of its own.
#pragma once

#include <functional>
#include <variant>

#include "api/handles.hpp"
#include "base/status.hpp"

namespace epccl::api {

/// One call, checked and ready: a collective's work, or a send or receive.
struct Item {
  CommPtr communicator;
  device::HostStream* stream = nullptr;
  std::variant<std::function<Status()>, runtime::P2pOperation> what;
  // Of a collective:
  double timeout_seconds = 0;  // of silence; 0: the communicator's
  // Last: makes what the caller or the stream is told from how the work ended.
  std::function<Status(Status)> conclude = {};
};

/// Runs the item now, or keeps it when the calling thread has a group open.
Status submit(Item item);
/// Notes that a call of the open group was refused: epcclGroupEnd() will say so. Returns `status`.
Status refuse(Status status);

/// Whether the calling thread has a group open.
bool in_group();

Status group_start();
Status group_end();

}  // namespace epccl::api
