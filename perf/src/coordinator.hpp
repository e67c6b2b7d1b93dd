// How the ranks keep step while they measure. An interface, so that a barrier with less skew can take its
// place.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/status.hpp"

namespace epccl::perf {

class Coordinator {
 public:
  virtual ~Coordinator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Collective: returns when every rank has called it.
  virtual Status barrier() = 0;

  /// Collective: every rank's bytes, in rank order; the same number of bytes on every rank.
  virtual Result<std::vector<std::byte>> gather_bytes(std::span<const std::byte> mine) = 0;

  /// Collective: every rank's values, in rank order; the same number of values on every rank.
  template <typename T>
  Result<std::vector<T>> gather(std::span<const T> mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    EPCCL_ASSIGN(const std::vector<std::byte> bytes, gather_bytes(std::as_bytes(mine)));
    std::vector<T> all(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }
};

}  // namespace epccl::perf
