// Errors as what torch.distributed raises.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <exception>
#include <utility>

namespace epccl_torch {

/// torch.distributed.DistBackendError with these words, for calls that complete with it.
template <typename... Words>
std::exception_ptr backend_error(Words&&... words) {
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                                       c10::str("epccl: ", std::forward<Words>(words)...)));
}

}  // namespace epccl_torch
