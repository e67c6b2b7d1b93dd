// Errors as what torch.distributed raises.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <exception>
#include <string_view>
#include <utility>

namespace epccl_torch {

/// torch.distributed.DistBackendError with these words, for calls that complete with it.
template <typename... Words>
std::exception_ptr backend_error(Words&&... words) {
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                                       c10::str("epccl: ", std::forward<Words>(words)...)));
}

/// Whether a rank, this or another, has given up waiting for a silent one. The library has one code for that and for ranks that died.
inline bool tells_of_timeout(std::string_view failure) {
  return failure.find("timeout: ") != std::string_view::npos;
}

}  // namespace epccl_torch
