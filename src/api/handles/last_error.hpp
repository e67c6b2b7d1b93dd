// The text and the reason of the calling thread's last failing call, and the one way out of every entry point.
#pragma once

#include <exception>

#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::api {

/// Keeps a failure for epcclGetLastError() and epcclGetLastErrorReason(), and gives its code. Throws where there is no memory for its text.
epcclResult_t finish(const Status& status);
/// The same of what was thrown, which it says if there is memory for that. Never throws.
epcclResult_t finish_thrown(const std::exception& failure);

// Neither throws.
/// "" when the thread's calls have all succeeded.
const char* last_error();
Reason last_reason();
/// What it is where there is no memory for a text.
inline constexpr const char* no_memory_for_text = "out of memory: there is none for a longer text either";

/// Runs an entry point's body: exceptions (out of memory, in practice) become codes and never cross the C boundary.
template <typename Body>
epcclResult_t guarded(Body body) {
  try {
    return finish(body());
  } catch (const std::exception& failure) {
    return finish_thrown(failure);
  }
}

/// That of one that returns no code: where it throws, it gives `otherwise`, and the last error stays.
template <typename Value, typename Body>
Value guarded_or(Value otherwise, Body body) {
  try {
    return body();
  } catch (const std::exception&) {
    return otherwise;
  }
}

}  // namespace epccl::api
