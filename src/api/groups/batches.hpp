// The sends and receives that a group has on one stream: in the turns of their communicators, all of these at once.
#pragma once

#include <vector>

#include "api/groups/stream_work.hpp"
#include "base/status.hpp"

namespace epccl::api {

/// Runs all of them, once the other streams have come that have a part in one. Blocks until they are over; the first error.
Status run_batches(std::vector<Batch>& batches);

}  // namespace epccl::api
