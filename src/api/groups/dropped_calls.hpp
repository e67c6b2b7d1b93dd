// Calls of groups that will never be issued: the thread ended with its group open, or a communicator in it was aborted.
#pragma once

#include <vector>

#include "api/groups/group.hpp"

namespace epccl::api {

/// How many of them are the communicator's.
size_t count_calls(const std::vector<Job>& jobs, const std::vector<Item>& items, const HandlePtr& handle);

/// Takes out those of an aborted communicator. Not ok where there were any: says how many.
Status drop_calls(std::vector<Job>& jobs, std::vector<Item>& items, const HandlePtr& handle);

/// The thread of the group ends. Warns once; communicators that were to be made have failed.
void drop_unended(std::vector<Job>& jobs, std::vector<Item>& items);

}  // namespace epccl::api
