// How what a group does on a stream is run: in the stream, or on the calling thread.
#pragma once

#include <vector>

#include "api/groups/stream_work.hpp"
#include "base/status.hpp"

namespace epccl::api {

/// Gives to each stream what it has to do. Streams wait for nothing but what other streams were given before: so groups of several threads
/// on the same streams never wait for each other in a circle.
void enqueue(std::vector<StreamWork>& streams);

/// The work of no stream, on this thread. The first error.
Status run_inline(StreamWork work);

}  // namespace epccl::api
