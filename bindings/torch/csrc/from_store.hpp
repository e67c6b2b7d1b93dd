// What is asked of the store that a process group was made with.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace epccl_torch {

/// What `ask` gives. Where the store does not answer any more the error says so, and which work, `what`, needed it.
template <typename Ask>
auto from_store(const std::string& what, const Ask& ask) {
  try {
    return ask();
  } catch (const c10::DistNetworkError& lost) {
    TORCH_CHECK_WITH(
        DistBackendError, false, "epccl: ", what,
        ": the store of the process group does not answer: the process that holds it (the launcher's, or "
        "rank 0's) has ended (",
        lost.what_without_backtrace(), ")");
  }
}

}  // namespace epccl_torch
