// Errors as what torch.distributed raises.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <epccl/epccl.h>

#include <exception>
#include <utility>

namespace epccl_torch {

/// That a rank, this or another, has given up waiting for a silent one. To Python it is a DistBackendError as any other.
class TimedOut : public c10::DistBackendError {
 public:
  using c10::DistBackendError::DistBackendError;
};

/// `Error` with these words, for calls that complete with it.
template <typename Error, typename... Words>
std::exception_ptr error_of(Words&&... words) {
  return std::make_exception_ptr(Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                       c10::str("epccl: ", std::forward<Words>(words)...)));
}

/// torch.distributed.DistBackendError.
template <typename... Words>
std::exception_ptr backend_error(Words&&... words) {
  return error_of<c10::DistBackendError>(std::forward<Words>(words)...);
}

/// The library's failure with this reason.
template <typename... Words>
std::exception_ptr failure_of(epcclReason_t reason, Words&&... words) {
  if (reason == epcclReasonTimeout) return error_of<TimedOut>(std::forward<Words>(words)...);
  return backend_error(std::forward<Words>(words)...);
}

inline bool is_timeout(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const TimedOut&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace epccl_torch
