// An allgather of values of a fixed size.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/bootstrap/bootstrap.hpp"

namespace epccl::runtime {

/// Every rank's value, by rank.
template <typename T>
Result<std::vector<T>> allgather(Bootstrap& bootstrap, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  EPCCL_ASSIGN(const std::vector<Blob> blobs, bootstrap.allgather(std::as_bytes(std::span(&mine, 1))));
  std::vector<T> values(blobs.size());
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    if (blobs[rank].size() != sizeof(T))
      return error(Code::internal_error, "rank {} sent {} bytes", rank, blobs[rank].size());
    std::memcpy(&values[rank], blobs[rank].data(), sizeof(T));
  }
  return values;
}

}  // namespace epccl::runtime
