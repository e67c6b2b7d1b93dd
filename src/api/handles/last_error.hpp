// The text and the reason of the calling thread's last failing call, and the one way out of every entry point.
#pragma once

#include <exception>

#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::api {

/// Keeps a failure for epcclGetLastError() and epcclGetLastErrorReason(), and gives its code.
epcclResult_t finish(const Status& status);
/// "" when the thread's calls have all succeeded.
const char* last_error();
Reason last_reason();

/// Runs an entry point's body: exceptions (out of memory, in practice) become codes and never cross the C boundary.
template <typename Body>
epcclResult_t guarded(Body body) {
  try {
    return finish(body());
  } catch (const std::exception& failure) {
    return finish(Status(Code::system_error, failure.what()));
  }
}

}  // namespace epccl::api
