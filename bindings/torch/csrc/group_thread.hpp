// The threads of process groups.
#pragma once

#include <functional>
#include <thread>
#include <utility>

namespace epccl_torch {

/// Whether this is one: then no group may end here, since that waits for its threads.
inline thread_local bool on_group_thread = false;

inline std::thread start_group_thread(std::function<void()> serve) {
  return std::thread([serve = std::move(serve)] {
    on_group_thread = true;
    serve();
  });
}

}  // namespace epccl_torch
