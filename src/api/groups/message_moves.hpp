// The sends and receives of a group, until all are through.
#pragma once

#include <vector>

#include "base/status.hpp"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

/// A communicator whose batch has been started, and where it is put what becomes of that.
struct Moving {
  runtime::Communicator* communicator = nullptr;
  Status* outcome = nullptr;
};

/// What has failed ends at once: its peers are told, whatever the others have yet to wait for. In its turn.
void end_failed(const Moving& failed);

/// Progresses the started batches of several communicators side by side: ranks may have issued them in different orders, so none may wait
/// for another, and one that fails ends no other. In each communicator's turn.
void move_messages(std::vector<Moving> open);

/// Sends and receives of one, whose streams have come, in its turn. Blocks until they are over.
Status run_messages(runtime::Communicator& communicator,
                    const std::vector<runtime::P2pOperation>& operations);

}  // namespace epccl::api
