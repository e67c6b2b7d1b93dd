// Exceptions (memory that is not to be had, a thread that does not start) as the errors they are to who has to clean up.
#pragma once

#include <exception>
#include <type_traits>

#include "base/status.hpp"

namespace epccl {

/// What `work` returns, a Status or a Result; what it throws, as an error.
template <typename Work>
std::invoke_result_t<Work&> caught(Work work) {
  try {
    return work();
  } catch (const std::exception& thrown) {
    return Status(Code::system_error, thrown.what());
  }
}

}  // namespace epccl
