// The hubs that serve in this process, and its ranks' lines to theirs, until it ends.
#pragma once

#include <memory>

#include "runtime/bootstrap/hub.hpp"

namespace epccl::runtime {

class Client;

void keep_serving(std::shared_ptr<Hub> hub);

/// A line that has joined: if it is there when the process ends regularly, its hub is told.
void keep_line(Client& line);
void forget_line(Client& line);

}  // namespace epccl::runtime
