// The hubs that serve in this process, until it ends.
#pragma once

#include <memory>

#include "runtime/bootstrap/hub.hpp"

namespace epccl::runtime {

void keep_serving(std::shared_ptr<Hub> hub);

}  // namespace epccl::runtime
