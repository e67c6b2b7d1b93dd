// What a group does, stream by stream.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "api/groups/group.hpp"
#include "api/groups/outcome.hpp"
#include "api/groups/ticket.hpp"

namespace epccl::api {

/// The sends and receives of one communicator in one group, as they were issued, whatever their streams: they are numbered in this order,
/// and none of them waits for another.
struct Batch {
  CommPtr communicator;
  Ticket ticket = {};
  std::vector<runtime::P2pOperation> operations;
  std::vector<Outcome> arrivals = {};  // of the other streams that have a part in this
  std::optional<Teller> end = {};      // these wait for it
  Status outcome = {};
};

struct QueuedCollective {
  CommPtr communicator;
  std::function<Status()> run;
  bool is_captured = false;
};

/// What a group does on one stream.
struct StreamWork {
  device::HostStream* stream = nullptr;
  std::vector<Batch> batches;
  std::vector<QueuedCollective> collectives;  // after them
  std::optional<Teller> end_of_batches = {};  // where the group's end waits for them
  /// This stream's part in a batch that another one runs.
  struct Part {
    CommPtr communicator;
    Teller arrival;  // of this stream
    Outcome end;
    device::HostStream::Watchers watchers;  // of the stream that runs the batch
  };
  std::vector<Part> parts = {};
};

/// What ranks send to themselves is received in the same group, or nothing of it begins.
Status check_own_messages(const std::vector<Item>& items);

/// Empties `items`. Sends and receives first, all of a communicator at once; collectives after them in order. Places in the
/// communicators' orders are taken here.
std::vector<StreamWork> sort_by_stream(std::vector<Item>& items);

/// The work of a collective, its place in the communicator's order taken.
QueuedCollective queued_collective(Item item);

}  // namespace epccl::api
