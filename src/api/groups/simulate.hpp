// What a group's calls will take, by the cost model.
#pragma once

#include <span>

#include "api/groups/group.hpp"
#include "base/status.hpp"

namespace epccl::api {

/// Seconds. Calls of one communicator follow each other, its sends and receives are one call; communicators run side by side.
/// Error: a call that has no prediction.
Result<double> predict_group(std::span<const Item> items);

}  // namespace epccl::api
