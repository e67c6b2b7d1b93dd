// The sends and receives of a group, until all are through.
#pragma once

#include <vector>

#include "base/status.hpp"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

/// Progresses the started batches of several communicators side by side: ranks may have issued them in different orders, so none may wait
/// for another. In each communicator's turn.
Status move_messages(std::vector<runtime::Communicator*> open);

}  // namespace epccl::api
