// Results of the library's own calls as values, or exceptions that say what went wrong.
#pragma once

#include <stdexcept>
#include <utility>

#include "base/status.hpp"

namespace epccl::device::test {

template <typename T>
T take(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}
inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

}  // namespace epccl::device::test
