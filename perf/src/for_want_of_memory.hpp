// Memory that is not to be had, as the error that it is to whoever has to clean up.
#pragma once

#include <new>
#include <string>
#include <type_traits>

#include "base/caught.hpp"

namespace epccl::perf {

/// What `work` returns, a Status or a Result; the error "no memory for <what>" where there was none. `what`: "a buffer of 8 bytes".
template <typename Work>
std::invoke_result_t<Work&> with_memory_for(const std::string& what, Work work) {
  return caught([&]() -> std::invoke_result_t<Work&> {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return error(Code::system_error, "no memory for {}", what);
    }
  });
}

}  // namespace epccl::perf
