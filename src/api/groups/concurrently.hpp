// Calls that wait for each other, made by one thread: each needs a thread of its own while it lasts.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/status.hpp"

namespace epccl::api {

/// Runs all at the same time, one of them on the calling thread, which does `meanwhile` instead where that is given, and waits for all. The
/// first error in their order. Throws only before any of them runs, unless `meanwhile` does.
Status run_concurrently(std::vector<std::function<Status()>> parts,
                        const std::function<void()>& meanwhile = {});

/// Ends those of its threads that wait for the next time, but for so many.
void keep_idle_threads(size_t most);

/// Starts a thread that nobody waits for here. Where none is to be had, the caller does the work.
void run_in_background(const std::function<void()>& work);

}  // namespace epccl::api
